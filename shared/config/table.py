"""Settings of a table: who writes its rows, how long they stay, how large they may get.

A table has the latest value for each key. It is a compacted topic of one Kafka partition, so that
one offset says how much of it somebody has seen.
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

# A customer's record with what people commonly look up in it has a kilobyte.
_ROW_BYTES_DEFAULT = 65_536
_MIB = 1_048_576
# Enough for a million rows of a hundred bytes; a file of it takes no room before it is used.
_BYTES_DEFAULT = 256 * _MIB
_BYTES_MIN, _BYTES_MAX = _MIB, 1_048_576 * _MIB


@dataclass(frozen=True, slots=True, config=CONFIG)
class Table(ConfigObject):
    """Rows by their keys, written by one pipeline, or by anyone with an API key for the table."""

    name: Name
    tenant: Name = DEFAULT_TENANT
    # The pipeline that alone writes it. Without one, it is written over HTTP.
    written_by: Name | None = None
    # A row goes this long after it was written last. With None, it stays until it is deleted.
    retention_ms: Annotated[int, Field(ge=MINUTE_MS, le=3_650 * DAY_MS)] | None = None
    row_bytes_max: Annotated[int, Field(ge=1, le=ROW_BYTES_MAX)] = _ROW_BYTES_DEFAULT
    # The most bytes of all rows; a copy on a disk has room for twice as much.
    bytes_max: Annotated[int, Field(ge=_BYTES_MIN, le=_BYTES_MAX)] = _BYTES_DEFAULT
    # The generation of the topic that readers read. A table that is made again after it was deleted
    # has the next generation; so has one that is rebuilt beside the old one.
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
