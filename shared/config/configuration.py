"""Streams, removed objects, and the configuration built from the config topic's records.

The config topic is compacted: the last value of a key counts, and an empty value removes the
object. When a stream, destination, pipeline or table is removed, a record stays, so that its name
and Kafka's data under that name still have an owner (ADR 0047). `Configuration` is the pure fold of
those records; a service keeps the newest one.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator
from pydantic.dataclasses import dataclass as config_dataclass

from shared.config.access import DEFAULT_TENANT, ApiKey, Tenant
from shared.config.destination import Destination
from shared.config.model import CONFIG, ConfigError, ConfigObject
from shared.config.outside.channel import Channel
from shared.config.partitioning import Partitioning
from shared.config.pipeline import Pipeline
from shared.config.table import Table
from shared.config.values import Name, Pointer
from shared.event.times import DAY_MS
from shared.event.topics import (
    RECEIPTS_RETENTION_MS,
    STREAM_PARTITIONS,
    config_key,
    destination_id,
    pipeline_of,
)

# A destination's receipts are kept this long, until Kafka deletes their segment. Events that wait
# for the destination are given up long before.
REMOVED_KEPT_MS = RECEIPTS_RETENTION_MS + 7 * DAY_MS
# A schema travels to every gateway through the config topic, under Kafka's limit for a record.
SCHEMA_CHARS_MAX = 262_144
# Kafka handles this many partitions of one topic without a noticeable cost.
PARTITIONS_MAX = 1000


def _check_schema(text: str) -> str:
    if not text:
        return text
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from error
    if not isinstance(schema, dict | bool):
        raise ValueError("a schema must be an object")  # noqa: TRY004 - pydantic catches only this
    return text


@config_dataclass(frozen=True, slots=True, config=CONFIG)
class Stream(ConfigObject):
    name: Name
    partition_count: Annotated[int, Field(ge=1, le=PARTITIONS_MAX)] = STREAM_PARTITIONS
    # The tenant whose keys may use it.
    tenant: Name = DEFAULT_TENANT
    # JSON pointer to an event's ordering key; empty when events have none.
    key_pointer: Pointer = ""
    # The JSON Schema that each event must match, as JSON text; empty allows any object.
    json_schema: Annotated[
        str, Field(max_length=SCHEMA_CHARS_MAX), AfterValidator(_check_schema)
    ] = ""
    # Assigns events to Kafka partitions by shard names instead of ordering keys.
    partitioning: Partitioning | None = None

    @model_validator(mode="after")
    def _check_shards(self) -> "Stream":
        if self.partitioning is not None:
            count = len(self.partitioning.shards)
            if count > self.partition_count:
                wrong = f"{self.partition_count} are too few for {count} shards: each needs one"
                raise ConfigError("partition_count", wrong)
        return self

    @property
    def config_key(self) -> bytes:
        return config_key("stream", self.name)


@config_dataclass(frozen=True, slots=True, config=CONFIG)
class RemovedStream(ConfigObject):
    """The record of a removed stream: the owner of its name and of its data in Kafka."""

    name: Name
    tenant: Name
    # Its topic stays, with this many Kafka partitions.
    partition_count: int
    removed_at_ms: int
    # The partitioning of the events that are left in it.
    partitioning: Partitioning | None = None

    @property
    def config_key(self) -> bytes:
        return config_key("stream", self.name)


@config_dataclass(frozen=True, slots=True, config=CONFIG)
class RemovedDestination(ConfigObject):
    """The record of a removed destination, without its settings and secrets."""

    stream: Name
    name: Name
    # The stream's tenant: a later owner of the stream's name never had this destination.
    tenant: Name
    removed_at_ms: int
    starts_late: bool = False

    @property
    def id(self) -> str:
        return destination_id(self.stream, self.name)

    @property
    def config_key(self) -> bytes:
        return config_key("destination", self.id)


@config_dataclass(frozen=True, slots=True, config=CONFIG)
class RemovedPipeline(ConfigObject):
    """The record of a removed pipeline: the owner of its name, and the stream that it read."""

    name: Name
    tenant: Name
    stream: Name
    # Part of event ids: a pipeline that is created again keeps its generation.
    generation: int
    removed_at_ms: int
    starts_late: bool = False
    # Whether it kept windows or keys of the events that it read; they are gone.
    keeps: bool = False

    @property
    def config_key(self) -> bytes:
        return config_key("pipeline", self.name)


@config_dataclass(frozen=True, slots=True, config=CONFIG)
class Replacement(ConfigObject):
    """A pipeline's next version, which is built beside the pipeline until it replaces it.

    It reads the stream's events up to the pipeline's position. Until it replaces the pipeline,
    nobody reads its tables.
    """

    name: Name
    # The document's generation; without a document, it was abandoned and is never used again.
    generation: int
    document: Pipeline | None = None
    # The generation of each table that it writes.
    tables: dict[Name, int] = field(default_factory=dict)

    @model_validator(mode="after")
    def _check_whole(self) -> "Replacement":
        known = self.document
        if known is not None and (known.name, known.generation) != (self.name, self.generation):
            raise ConfigError("document", "it belongs to another pipeline or generation")
        return self

    @property
    def config_key(self) -> bytes:
        return config_key("replacement", self.name)

    def to_json(self) -> bytes:
        """Return it as unsorted JSON, like a pipeline's: columns keep their order."""
        return json.dumps(self.to_fields()).encode()

    def built(self, tables: Mapping[str, Table]) -> list[Table]:
        """Return those tables that it writes, with the generations that it writes."""
        return [
            replace(tables[name], generation=generation)
            for name, generation in self.tables.items()
            if name in tables
        ]


@config_dataclass(frozen=True, slots=True, config=CONFIG)
class RemovedTable(ConfigObject):
    """The record of a removed table: the owner of its name. Its rows are gone."""

    name: Name
    tenant: Name
    # A recreated table has the next one; a writer unaware of it writes to a topic without readers.
    generation: int
    removed_at_ms: int

    @property
    def config_key(self) -> bytes:
        return config_key("table", self.name)


@config_dataclass(frozen=True, slots=True, config=CONFIG)
class ChangeCount(ConfigObject):
    """The number of a tenant's recorded changes, which is also the number of its last change."""

    tenant: Name
    count: Annotated[int, Field(ge=1)]

    @property
    def config_key(self) -> bytes:
        return config_key("changes", self.tenant)


# For each prefix of a record's key: the member that holds its objects, and their class.
_KINDS: Mapping[str, tuple[str, type[ConfigObject]]] = {
    "stream": ("streams", Stream),
    "destination": ("destinations", Destination),
    "pipeline": ("pipelines", Pipeline),
    "replacement": ("replacements", Replacement),
    "table": ("tables", Table),
    "channel": ("channels", Channel),
    "key": ("keys", ApiKey),
    "tenant": ("tenants", Tenant),
    "changes": ("change_counts", ChangeCount),
}
# The same for removed objects; only their records have the member below.
_REMOVED: Mapping[str, tuple[str, type[ConfigObject]]] = {
    "stream": ("removed_streams", RemovedStream),
    "destination": ("removed_destinations", RemovedDestination),
    "pipeline": ("removed_pipelines", RemovedPipeline),
    "table": ("removed_tables", RemovedTable),
}
_REMOVED_AT = "removed_at_ms"


@dataclass(frozen=True, slots=True)
class Configuration:
    """Every object, according to the config records read so far."""

    streams: Mapping[str, Stream] = field(default_factory=dict)
    destinations: Mapping[str, Destination] = field(default_factory=dict)
    pipelines: Mapping[str, Pipeline] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    channels: Mapping[str, Channel] = field(default_factory=dict)
    keys: Mapping[str, ApiKey] = field(default_factory=dict)
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    replacements: Mapping[str, Replacement] = field(default_factory=dict)
    change_counts: Mapping[str, ChangeCount] = field(default_factory=dict)
    removed_streams: Mapping[str, RemovedStream] = field(default_factory=dict)
    removed_destinations: Mapping[str, RemovedDestination] = field(default_factory=dict)
    removed_pipelines: Mapping[str, RemovedPipeline] = field(default_factory=dict)
    removed_tables: Mapping[str, RemovedTable] = field(default_factory=dict)

    def apply(self, key: bytes, value: bytes | None) -> "Configuration":
        """Return the configuration after one more record; ConfigError if the record is invalid.

        Records with an unknown kind of key are ignored.
        """
        kind, _, name = key.decode(errors="replace").partition(":")
        if kind not in _KINDS:
            return self
        changed = {
            member: {each: item for each, item in getattr(self, member).items() if each != name}
            for member, _ in (_KINDS[kind], _REMOVED.get(kind, _KINDS[kind]))
        }
        if value:
            fields = _fields(key, value)
            is_removed = kind in _REMOVED and _REMOVED_AT in fields
            member, made = (_REMOVED if is_removed else _KINDS)[kind]
            changed[member][name] = _open(made, key, fields)
        return replace(self, **changed)

    def object(self, key: bytes) -> ConfigObject | None:
        """Return the object whose record has this key."""
        kind, _, name = key.decode().partition(":")
        objects: Mapping[str, ConfigObject] = getattr(self, _KINDS[kind][0])
        return objects.get(name)

    def destinations_of(self, stream: str) -> Iterator[Destination]:
        return (d for d in self.destinations.values() if d.stream == stream)

    def replacement_of(self, pipeline: str) -> Pipeline | None:
        """Return the document that is being built to replace the pipeline."""
        known, current = self.replacements.get(pipeline), self.pipelines.get(pipeline)
        # A leftover replacement belongs to an earlier generation.
        if known is None or current is None or known.generation <= current.generation:
            return None
        return known.document

    @property
    def followed_tables(self) -> list[Table]:
        """The tables in use, and those being built to replace them."""
        built = (
            table
            for name, known in self.replacements.items()
            if self.replacement_of(name) is not None
            for table in known.built(self.tables)
        )
        return [*self.tables.values(), *built]

    @property
    def documents(self) -> list[Pipeline]:
        """All documents that run: pipelines, and those being built to replace them."""
        built = (document for name in self.replacements if (document := self.replacement_of(name)))
        return [*self.pipelines.values(), *built]

    def pipelines_at(self, stream: str) -> Iterator[Pipeline]:
        """Return the pipelines that read the stream or write to it."""
        return (each for each in self.documents if stream in each.streams)

    def readers_of(self, stream: str) -> list[str]:
        """Return the ids of a stream's destinations, and the lanes of pipelines that read it."""
        reading = (each for each in self.pipelines.values() if each.source.stream == stream)
        to = (destination.id for destination in self.destinations_of(stream))
        return [*to, *(pipeline.lane_id for pipeline in reading)]

    @property
    def derived_streams(self) -> set[str]:
        """The streams that pipelines write to."""
        writing = self.pipelines.values()
        return {output.stream for pipeline in writing for output in pipeline.streams_to}

    @property
    def past_streams(self) -> set[str]:
        """The names of all present and removed streams."""
        return {*self.streams, *self.removed_streams}

    def tenant_of(self, stream: str) -> str:
        """Return the tenant of a present or removed stream; empty if the stream is unknown."""
        known = self.streams.get(stream) or self.removed_streams.get(stream)
        return known.tenant if known else ""

    def outlived(self, *, now_ms: int) -> Iterator[bytes]:
        """Return the keys of removal records that are no longer needed: their data is gone."""
        gone: list[RemovedDestination | RemovedPipeline | RemovedTable] = [
            *self.removed_destinations.values(),
            *self.removed_pipelines.values(),
            *self.removed_tables.values(),
        ]
        return (each.config_key for each in gone if now_ms - each.removed_at_ms > REMOVED_KEPT_MS)

    def starts_late(self, destination_id: str) -> bool:
        """Whether a present or removed destination or pipeline began later than its stream."""
        destination = self.destinations.get(destination_id) or self.removed_destinations.get(
            destination_id
        )
        if destination is None and (name := pipeline_of(destination_id)) is not None:
            pipeline = self.pipelines.get(name) or self.removed_pipelines.get(name)
            return pipeline is not None and pipeline.starts_late
        return destination is not None and destination.starts_late

    def archives_for(self, pipeline: Pipeline) -> list[Pipeline]:
        """Return the archives of everything that a pipeline reads, other than itself."""
        return [
            each
            for each in sorted(self.pipelines.values(), key=lambda other: other.name)
            if each.is_tee
            and each.name != pipeline.name
            and (each.tenant, each.source.stream) == (pipeline.tenant, pipeline.source.stream)
        ]

    def reads_archives(self, destination_id: str) -> bool:
        """Whether it is a pipeline's lane that can read events beyond its stream's retention."""
        pipeline = self.pipelines.get(pipeline_of(destination_id) or "")
        return pipeline is not None and bool(self.archives_for(pipeline))

    def removed_from(self, stream: Stream | RemovedStream) -> Iterator[RemovedDestination]:
        """Return a stream's removed destinations, without those of a former owner."""
        whose = (stream.name, stream.tenant)
        return (d for d in self.removed_destinations.values() if (d.stream, d.tenant) == whose)

    @property
    def removed_now(self) -> list[RemovedDestination]:
        """All removed destinations, of present and removed streams, by name."""
        owners: list[Stream | RemovedStream] = [
            *self.streams.values(),
            *self.removed_streams.values(),
        ]
        removed = (each for owner in owners for each in self.removed_from(owner))
        return sorted(removed, key=lambda each: each.id)


def _fields(key: bytes, value: bytes) -> Mapping[str, Any]:
    try:
        fields = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ConfigError("", f"{key!r}: not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ConfigError("", f"{key!r}: not a JSON object")
    return fields


def _open(kind: type[ConfigObject], key: bytes, fields: Mapping[str, Any]) -> ConfigObject:
    """Read one object; raise ConfigError if anything is wrong with it."""
    opened = kind.of(fields)
    if opened.config_key != key:
        raise ConfigError("", f"{key!r}: the value belongs to {opened.config_key!r}")
    return opened
