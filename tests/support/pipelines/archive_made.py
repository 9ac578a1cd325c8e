"""Makes an archive in a folder, as tasks do, without Kafka and Spark."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.archive.sink import ArchiveSink
from shared.config.outside.store import Store
from shared.event.record import KafkaPartition, Ranges
from shared.proof.archived import ArchivedObject, ArchiveId
from shared.runtime.archive.files import SCHEMA
from shared.runtime.archive.stores import OpenStore
from shared.runtime.secret_box import SecretBox

AT_MS = 1_795_500_000_000
ARCHIVE = ArchiveId("default", "orders", "kept")
RANGES = {KafkaPartition("hifi.stream.orders", number): (10, 40) for number in range(2)}


def row(partition: int, offset: int, value: bytes | None = b"{}") -> dict[str, Any]:
    return {
        "partition": partition,
        "offset": offset,
        "time_ms": AT_MS + offset,
        "event_id": f"{partition}-{offset}",
        "event_time_ms": AT_MS - offset,
        "accepted_at_ms": AT_MS,
        "key": None,
        "value": value,
        "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
    }


def sink_of(folder: Path, *, document: str = "d", life: str = "") -> ArchiveSink:
    store = Store("here", f"file://{folder}")
    archive = ARCHIVE._replace(life=life)
    return ArchiveSink(store, archive, document, is_whole=True, folders=folder)


def kept(sink: ArchiveSink, *rows: dict[str, Any], ranges: Ranges = RANGES) -> list[ArchivedObject]:
    schema = pa.schema([pa.field("partition", pa.int32()), *SCHEMA])
    said: list[Any] = []
    with sink.open(ranges) as writer:
        for partition in sorted({each["partition"] for each in rows}):
            mine = [each for each in rows if each["partition"] == partition]
            said += writer.take(pa.RecordBatch.from_pylist(mine, schema))
        said += writer.end()
    return [ArchivedObject.from_json(each.encode()) for each in said]


def bucket_of(folder: Path) -> OpenStore:
    return OpenStore(Store("here", f"file://{folder}"), SecretBox.of(""), folders=folder)
