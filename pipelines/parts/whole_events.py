"""Makes the rows of an event leave together, or not at all. Pure, but for Arrow's batches."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa

from shared.proof.receipt import PASSED

FILTERED = "filtered"
DEAD = "dead"
# The fate of an event without a value, for a database: it passes all steps unchanged, and deletes
# the row of its key.
GONE = "gone"
LATE = "late"
# Outcomes whose rows are not written, except those of late events if a document asks for them.
NOT_PASSED = (FILTERED, LATE)


def whole_events(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield all rows of an event, or none of them: their outcomes may differ."""
    schema: pa.Schema | None = None

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal schema
        for batch in batches:
            schema = batch.schema
            yield from batch.to_pylist()

    for _, event in groupby(rows(), key=lambda row: (row["partition"], row["offset"])):
        yield pa.RecordBatch.from_pylist(settled(event), schema)


def settled(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of one event to keep, numbered: a dead one, else all passed, else a filtered one."""
    passed: list[dict[str, Any]] = []
    filtered: list[dict[str, Any]] = []
    for row in rows:
        if row["outcome"] == DEAD:
            # Each dead row holds the whole event: keep only one in memory.
            return [{**row, "nth": 0}]
        if row["outcome"] == PASSED:
            passed.append(row)
        elif not filtered:
            filtered.append(row)
    return [{**row, "nth": index} for index, row in enumerate(passed or filtered)]
