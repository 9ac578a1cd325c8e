"""Decides what a stream and a destination are, and how the config topic's records become them.

The config topic is compacted: the last value of a key counts, an empty one removes the object.
`Configuration` is the pure fold of those records; a service keeps the newest and asks it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from shared.access import DEFAULT_TENANT, ApiKey, Tenant
from shared.topics import (
    STREAM_PARTITIONS,
    destination_config_key,
    destination_id,
    is_name,
    stream_config_key,
)

BodyFormat = Literal["json", "cloudevents"]
BODY_FORMATS: tuple[BodyFormat, ...] = ("json", "cloudevents")


# Members only: the order of an array is no name for an entity.
_POINTER = re.compile(r"(/([^/~]|~0|~1)+){0,8}")
# A schema travels to every gateway through the config topic, under Kafka's limit for a record.
SCHEMA_CHARS_MAX = 262_144


class ConfigError(ValueError):
    """A setting is wrong; the text names it and says what it takes."""


@dataclass(frozen=True, slots=True)
class Stream:
    name: str
    partition_count: int = STREAM_PARTITIONS
    # Whose keys may use it.
    tenant: str = DEFAULT_TENANT
    # Where an event holds its ordering key, as a JSON pointer; empty when it has none.
    key_pointer: str = ""
    # The JSON Schema that each event must fit, as JSON text; empty when any object will do.
    json_schema: str = ""

    def __post_init__(self) -> None:
        _check_name("stream", self.name)
        _check_count("partition_count", self.partition_count, 1, 1000)
        _check_name("tenant", self.tenant)
        if type(self.key_pointer) is not str or not _POINTER.fullmatch(self.key_pointer):
            raise ConfigError(
                f"key_pointer: {self.key_pointer!r} is not a pointer such as /user/id"
            )
        _check_schema(self.json_schema)

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


Configured = TypeVar("Configured", Stream, Destination, ApiKey, Tenant)


@dataclass(frozen=True, slots=True)
class Configuration:
    """Every object there is, as of the config records read so far."""

    streams: Mapping[str, Stream] = field(default_factory=dict)
    destinations: Mapping[str, Destination] = field(default_factory=dict)
    keys: Mapping[str, ApiKey] = field(default_factory=dict)
    tenants: Mapping[str, Tenant] = field(default_factory=dict)

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
            case "key":
                api_key = _open(ApiKey, key, value) if value else None
                return replace(self, keys=_with(self.keys, name, api_key))
            case "tenant":
                tenant = _open(Tenant, key, value) if value else None
                return replace(self, tenants=_with(self.tenants, name, tenant))
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
        opened = ApiKey.of(fields) if kind is ApiKey else kind(**fields)
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


def _check_schema(text: str) -> None:
    if type(text) is not str or len(text) > SCHEMA_CHARS_MAX:
        raise ConfigError(f"json_schema: it is not a text of at most {SCHEMA_CHARS_MAX} characters")
    if not text:
        return
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"json_schema: it is not JSON: {error}") from error
    if not isinstance(schema, dict | bool):
        raise ConfigError("json_schema: a schema is an object")


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
