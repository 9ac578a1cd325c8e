"""Settings of a table: the writer of its rows, their retention, and their largest size.

A table has the latest value for each key. It is a compacted topic with one Kafka partition, so one
offset is enough to say how far somebody has read it.
"""

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from shared.config.access import DEFAULT_TENANT
from shared.config.model import CONFIG, ConfigObject
from shared.config.values import Name
from shared.event.table_row import ROW_BYTES_MAX
from shared.event.times import DAY_MS, MINUTE_MS
from shared.event.topics import TopicSpec, config_key, table_spec, table_topic

# Generous: a typical customer record, with commonly looked-up members, has about 1 kB.
_ROW_BYTES_DEFAULT = 65_536
_MIB = 1_048_576
# Enough for a million rows of 100 bytes; a file of this size takes no space until it is used.
_BYTES_DEFAULT = 256 * _MIB
_BYTES_MIN, _BYTES_MAX = _MIB, 1_048_576 * _MIB


@dataclass(frozen=True, slots=True, config=CONFIG)
class Table(ConfigObject):
    """Rows by their keys, written by one pipeline, or by anyone with an API key for the table."""

    name: Name
    tenant: Name = DEFAULT_TENANT
    # The only pipeline that may write it. Without one, it is written over HTTP.
    written_by: Name | None = None
    # A row is deleted this long after its last write; with None, never.
    retention_ms: Annotated[int, Field(ge=MINUTE_MS, le=3_650 * DAY_MS)] | None = None
    row_bytes_max: Annotated[int, Field(ge=1, le=ROW_BYTES_MAX)] = _ROW_BYTES_DEFAULT
    # The maximum size of all rows together; each copy on a disk reserves twice as much.
    bytes_max: Annotated[int, Field(ge=_BYTES_MIN, le=_BYTES_MAX)] = _BYTES_DEFAULT
    # The generation of the topic that readers use. A table recreated after its deletion has the
    # next generation, and so has a table rebuilt beside the old one.
    generation: Annotated[int, Field(ge=1, le=1_000_000)] = 1

    @property
    def config_key(self) -> bytes:
        return config_key("table", self.name)

    @property
    def topic(self) -> str:
        return table_topic(self.name, self.generation)

    @property
    def spec(self) -> TopicSpec:
        return table_spec(self.name, self.generation, retention_ms=self.retention_ms)
