"""Decides what a stream and a destination are, and how the config topic's records become them.

The config topic is compacted: the last value of a key counts, an empty one removes the object.
`Configuration` is the pure fold of those records; a service keeps the newest and asks it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from shared.topics import (
    STREAM_PARTITIONS,
    destination_config_key,
    destination_id,
    is_name,
    stream_config_key,
)

BodyFormat = Literal["json", "cloudevents"]
BODY_FORMATS: tuple[BodyFormat, ...] = ("json", "cloudevents")


class ConfigError(ValueError):
    """A setting is wrong; the text names it and says what it takes."""


@dataclass(frozen=True, slots=True)
class Stream:
    name: str
    partition_count: int = STREAM_PARTITIONS

    def __post_init__(self) -> None:
        _check_name("stream", self.name)
        _check_count("partition_count", self.partition_count, 1, 1000)

    @property
    def config_key(self) -> bytes:
        return stream_config_key(self.name)

    def to_json(self) -> bytes:
        return _dump(asdict(self))


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a stream's events go, and how they are sent there."""

    stream: str
    name: str
    url: str
    body_format: BodyFormat = "json"
    # What batch receivers take without asking: 500 events (Mixpanel), 1 MiB (Event Grid).
    batch_count_max: int = 500
    batch_bytes_max: int = 1_048_576
    # Requests under way at once, for each Kafka partition of the stream.
    parallel_max: int = 4
    # The whole exchange, from connect to the last byte that we read (Svix: 15 s; spec: 15-30 s).
    timeout_s: float = 15.0
    retry_on: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        _check_name("stream", self.stream)
        _check_name("destination", self.name)
        if not _is_web_address(self.url):
            raise ConfigError(f"url: {self.url!r} is not an http or https address with a host")
        if self.body_format not in BODY_FORMATS:
            raise ConfigError(f"body_format: {self.body_format!r} is none of {BODY_FORMATS}")
        _check_count("batch_count_max", self.batch_count_max, 1, 10_000)
        _check_count("batch_bytes_max", self.batch_bytes_max, 1, 64 * 1_048_576)
        _check_count("parallel_max", self.parallel_max, 1, 256)
        _check_range("timeout_s", self.timeout_s, 0.001, 300)
        if not all(type(status) is int and 400 <= status <= 499 for status in self.retry_on):  # noqa: PLR2004 - RFC 9110
            raise ConfigError("retry_on: only statuses from 400 to 499 can be added")

    @property
    def id(self) -> str:
        return destination_id(self.stream, self.name)

    @property
    def config_key(self) -> bytes:
        return destination_config_key(self.id)

    def to_json(self) -> bytes:
        return _dump({**asdict(self), "retry_on": sorted(self.retry_on)})


Configured = TypeVar("Configured", Stream, Destination)


@dataclass(frozen=True, slots=True)
class Configuration:
    """Every stream and destination there is, as of the config records read so far."""

    streams: Mapping[str, Stream] = field(default_factory=dict)
    destinations: Mapping[str, Destination] = field(default_factory=dict)

    def apply(self, key: bytes, value: bytes | None) -> "Configuration":
        """The configuration after one more record; ConfigError when the record makes no sense.

        An unknown kind of key is not ours to judge.
        """
        kind, _, name = key.decode(errors="replace").partition(":")
        match kind:
            case "stream":
                stream = _open(Stream, key, value) if value else None
                return replace(self, streams=_with(self.streams, name, stream))
            case "destination":
                destination = _open(Destination, key, value) if value else None
                return replace(self, destinations=_with(self.destinations, name, destination))
            case _:
                return self

    def destinations_of(self, stream: str) -> Iterator[Destination]:
        return (d for d in self.destinations.values() if d.stream == stream)


def _open(kind: type[Configured], key: bytes, value: bytes) -> Configured:
    """Read one object; whatever is wrong with it comes out as a ConfigError."""
    try:
        fields = json.loads(value)
        if isinstance(fields, dict) and "retry_on" in fields:
            fields["retry_on"] = frozenset(fields["retry_on"])
        opened = kind(**fields)
    except ConfigError:
        raise
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{key!r}: not a {kind.__name__.lower()}: {error}") from error
    if opened.config_key != key:
        raise ConfigError(f"{key!r}: the value is that of {opened.config_key!r}")
    return opened


def _with(objects: Mapping[str, Any], name: str, changed: Any) -> dict[str, Any]:
    others = {key: value for key, value in objects.items() if key != name}
    return others if changed is None else {**others, name: changed}


def _dump(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True).encode()


def _check_name(what: str, name: str) -> None:
    if not is_name(name):
        raise ConfigError(
            f"{what}: {name!r} is not a name; use 1 to 100 of a-z, 0-9, _ and -,"
            " starting with a letter or digit"
        )


def _is_web_address(text: str) -> bool:
    # What urlsplit would silently drop (line breaks) or let pass (blanks) no client can send to.
    if not text.isprintable() or " " in text:
        return False
    try:
        url = urlsplit(text)
        return url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        return False


def _check_count(what: str, number: int, low: int, high: int) -> None:
    # From JSON it may be anything: 2.5 is within a range and no count.
    if type(number) is not int:
        raise ConfigError(f"{what}: {number!r} is not a whole number")
    _check_range(what, number, low, high)


def _check_range(what: str, number: float, low: float, high: float) -> None:
    if not low <= number <= high:
        raise ConfigError(f"{what}: {number} is not from {low} to {high}")
