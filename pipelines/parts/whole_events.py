"""Has all rows of an event leave, or none of them. Pure, but for Arrow's batches."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa

from shared.proof.receipt import PASSED

FILTERED = "filtered"
DEAD = "dead"
# The fate of an event without a value, for a database: it passes all steps as it is, and takes the
# row of its key away.
GONE = "gone"
LATE = "late"
# Whose rows go nowhere; of late events, only if somebody wants them.
NOT_PASSED = (FILTERED, LATE)


def whole_events(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Has all rows of an event leave, or none of them: they may have ended differently."""
    schema: pa.Schema | None = None

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal schema
        for batch in batches:
            schema = batch.schema
            yield from batch.to_pylist()

    for _, event in groupby(rows(), key=lambda row: (row["partition"], row["offset"])):
        yield pa.RecordBatch.from_pylist(settled(event), schema)


def settled(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of one event that count, numbered: one that is dead, or those that passed."""
    passed: list[dict[str, Any]] = []
    filtered: list[dict[str, Any]] = []
    for row in rows:
        if row["outcome"] == DEAD:
            # Each holds the whole event: no second one is kept in memory.
            return [{**row, "nth": 0}]
        if row["outcome"] == PASSED:
            passed.append(row)
        elif not filtered:
            filtered.append(row)
    return [{**row, "nth": nth} for nth, row in enumerate(passed or filtered)]
