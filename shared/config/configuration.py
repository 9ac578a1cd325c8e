"""What a stream is, and how the config topic's records add up to all that is configured.

The config topic is compacted: the last value of a key counts, an empty one removes the object.
`Configuration` is the pure fold of those records; a service keeps the newest and asks it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass as config_dataclass

from shared.config.access import DEFAULT_TENANT, ApiKey, Tenant
from shared.config.destination import Destination
from shared.config.model import CONFIG, ConfigError, ConfigObject
from shared.config.values import Name, Pointer
from shared.event.topics import STREAM_PARTITIONS, config_key

# A schema travels to every gateway through the config topic, under Kafka's limit for a record.
SCHEMA_CHARS_MAX = 262_144


def _check_schema(text: str) -> str:
    if not text:
        return text
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from error
    if not isinstance(schema, dict | bool):
        raise ValueError("a schema is an object")  # noqa: TRY004 - pydantic knows this one only
    return text


@config_dataclass(frozen=True, slots=True, config=CONFIG)
class Stream(ConfigObject):
    name: Name
    partition_count: Annotated[int, Field(ge=1, le=1000)] = STREAM_PARTITIONS
    # Whose keys may use it.
    tenant: Name = DEFAULT_TENANT
    # Where an event holds its ordering key, as a JSON pointer; empty when it has none.
    key_pointer: Pointer = ""
    # The JSON Schema that each event must fit, as JSON text; empty when any object will do.
    json_schema: Annotated[
        str, Field(max_length=SCHEMA_CHARS_MAX), AfterValidator(_check_schema)
    ] = ""

    @property
    def config_key(self) -> bytes:
        return config_key("stream", self.name)


# How a record's key begins: where such objects are, and what they are.
_KINDS: Mapping[str, tuple[str, type[ConfigObject]]] = {
    "stream": ("streams", Stream),
    "destination": ("destinations", Destination),
    "key": ("keys", ApiKey),
    "tenant": ("tenants", Tenant),
}


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
        if kind not in _KINDS:
            return self
        member, made = _KINDS[kind]
        objects = {each: value for each, value in getattr(self, member).items() if each != name}
        if value:
            objects[name] = _open(made, key, value)
        return replace(self, **{member: objects})

    def object(self, key: bytes) -> ConfigObject | None:
        """The object whose record has this key."""
        kind, _, name = key.decode().partition(":")
        objects: Mapping[str, ConfigObject] = getattr(self, _KINDS[kind][0])
        return objects.get(name)

    def destinations_of(self, stream: str) -> Iterator[Destination]:
        return (d for d in self.destinations.values() if d.stream == stream)


def _open(kind: type[ConfigObject], key: bytes, value: bytes) -> ConfigObject:
    """Read one object; whatever is wrong with it comes out as a ConfigError."""
    try:
        fields = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ConfigError("", f"{key!r}: not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ConfigError("", f"{key!r}: not a JSON object")
    opened = kind.of(fields)
    if opened.config_key != key:
        raise ConfigError("", f"{key!r}: the value is that of {opened.config_key!r}")
    return opened
