"""Decides what a stream is, and how the config topic's records become all that is configured.

The config topic is compacted: the last value of a key counts, an empty one removes the object.
`Configuration` is the pure fold of those records; a service keeps the newest and asks it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from shared.config.access import DEFAULT_TENANT, ApiKey, Tenant
from shared.config.checks import ConfigError, check_count, check_name, check_pointer
from shared.config.destination import Destination
from shared.event.topics import STREAM_PARTITIONS, stream_config_key

# A schema travels to every gateway through the config topic, under Kafka's limit for a record.
SCHEMA_CHARS_MAX = 262_144


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
        check_name("stream", self.name)
        check_count("partition_count", self.partition_count, 1, 1000)
        check_name("tenant", self.tenant)
        check_pointer("key_pointer", self.key_pointer)
        _check_schema(self.json_schema)

    @property
    def config_key(self) -> bytes:
        return stream_config_key(self.name)

    def to_json(self) -> bytes:
        return _dump(asdict(self))


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
        opened = kind.of(fields) if kind in (ApiKey, Destination) else kind(**fields)
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
