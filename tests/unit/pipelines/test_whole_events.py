"""Rows of one event leave together or not at all, however they are cut into batches."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from pipelines.parts.whole_events import whole_events

ROWS = [
    # Offset, outcome and value: one row of the third event is dead, so all of the event is.
    *((0, "passed", b"a"), (0, "filtered", None), (0, "passed", b"b")),
    *((1, "filtered", None), (1, "filtered", None)),
    *((2, "passed", b"c"), (2, "dead", b"whole"), (2, "passed", b"d"), (2, "dead", b"whole")),
    (3, "passed", b"e"),
]
KEPT = [
    *((0, 0, "passed", b"a"), (0, 1, "passed", b"b"), (1, 0, "filtered", None)),
    *((2, 0, "dead", b"whole"), (3, 0, "passed", b"e")),
]


@pytest.mark.parametrize("size", [1, 2, 3, 4, len(ROWS)])
def test_what_is_kept_of_an_event_does_not_depend_on_batches(size: int) -> None:
    rows = [
        {"partition": 0, "offset": offset, "nth": -1, "outcome": outcome, "value": value}
        for offset, outcome, value in ROWS
    ]
    whole = pa.RecordBatch.from_pylist(rows)
    batches = (whole.slice(at, size) for at in range(0, len(rows), size))
    kept = [row for batch in whole_events(batches) for row in batch.to_pylist()]
    assert [(row["offset"], row["nth"], row["outcome"], row["value"]) for row in kept] == KEPT


def test_the_same_offset_of_another_kafka_partition_is_another_event() -> None:
    rows = [{"partition": at, "offset": 7, "nth": 0, "outcome": "passed"} for at in (0, 1)]
    batch = pa.RecordBatch.from_pylist(rows)
    assert [made.num_rows for made in whole_events([batch])] == [1, 1]
    assert list(whole_events([])) == []


def test_of_an_event_that_is_dead_many_times_one_row_is_held() -> None:
    allocated: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for nth in range(1_000):
            row: dict[str, Any] = {"partition": 0, "offset": 0, "nth": nth, "outcome": "dead"}
            allocated.append(pa.total_allocated_bytes())
            yield pa.RecordBatch.from_pylist([{**row, "value": bytes(100_000)}])

    (made,) = whole_events(batches())
    assert made.num_rows == 1
    assert max(allocated) - allocated[0] < 20 * 100_000
