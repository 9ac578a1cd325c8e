"""An archive's object is the same whether its events went through a plan or not."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipelines.jobs.tee import columns_of
from pipelines.plan import RECORDS, planned
from shared.config.pipeline import Pipeline
from shared.event.envelope import ACCEPTED_AT, EVENT_ID, EVENT_TIME, event_headers
from shared.event.record import KafkaPartition, Origin, RecordIn
from shared.runtime.archive.files import COLUMNS, of_ours
from tests.support.delivery.fetched_rows import decoded

pytestmark = pytest.mark.integration

WHERE = KafkaPartition("hifi.stream.orders", 3)
AT_MS = 1_767_225_600_123
_HEADERS = [
    event_headers(event_id="é-1", event_time_ms=AT_MS - 5, accepted_at_ms=AT_MS - 1),
    (),
    ((EVENT_ID, b"one"), (EVENT_ID, b"two"), ("other", b"\xff")),
    ((EVENT_ID, b"\xff\xfe"), (EVENT_TIME, b" 12"), (ACCEPTED_AT, b"1" * 19)),
    ((EVENT_ID, b"x" * 8_193), (EVENT_TIME, b"-7"), (ACCEPTED_AT, b"007")),
    ((EVENT_ID, b""), (EVENT_TIME, b"")),
    ((EVENT_TIME, b"\xd9\xa1"), ("hifi-via", b"kept")),
]


def test_what_no_step_looks_at_is_what_a_plan_makes_of_it(locked_spark: SparkSession) -> None:
    pipeline = Pipeline.of(
        {"name": "kept", "from": {"stream": "orders"}, "to": [{"archive": "here"}]}
    )
    assert pipeline.is_tee
    records = [
        RecordIn(Origin(*WHERE, nth), AT_MS, b"k" if nth else None, b"\x00{", headers)
        for nth, headers in enumerate(_HEADERS)
    ]
    at = datetime.fromtimestamp(AT_MS / 1000, tz=UTC)
    # Spark's source has null for a record without headers.
    rows = [
        (*WHERE, nth, at, each.key, each.value, [*each.headers] or None)
        for nth, each in enumerate(records)
    ]
    made = planned(pipeline, locked_spark.createDataFrame(rows, RECORDS)).select(
        "partition", *COLUMNS
    )
    (by_plan,) = pa.Table.from_batches(made.toArrow().to_batches()).combine_chunks().to_batches()
    tee = columns_of(WHERE, [decoded(each) for each in records])
    assert of_ours(by_plan).to_pylist() == of_ours(tee).to_pylist()
    assert of_ours(by_plan).schema == of_ours(tee).schema
