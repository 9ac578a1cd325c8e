"""Rates how odd payments are, and finds where they come from."""

import json
import os
import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.functions import Reducer, function


@function(reads="price DOUBLE, usual DOUBLE", returns="score DOUBLE")
def score(events: pa.RecordBatch) -> pa.RecordBatch:
    """Return the multiple of the usual price, or null for events without one."""
    usual = [each or None for each in events["usual"].to_pylist()]
    return pa.RecordBatch.from_pydict(
        {"score": pc.divide(events["price"], pa.array(usual, pa.float64()))}
    )


@function(reads="value BINARY", returns="country STRING, bytes BIGINT")
def country(events: pa.RecordBatch) -> pa.RecordBatch:
    """Read the country from the first two letters of the IBAN, in the event's own bytes."""
    values = [value or b"" for value in events["value"].to_pylist()]
    found = [json.loads(value).get("iban", "")[:2] or None for value in values]
    sizes = [len(value) for value in values]
    return pa.RecordBatch.from_pydict({"country": pa.array(found, pa.string()), "bytes": sizes})


@function(reads="id STRING", returns="seen BOOLEAN")
def moody(events: pa.RecordBatch) -> pa.RecordBatch:
    """Fail in each possible way, by the event's id."""
    for event_id in events["id"].to_pylist():
        match event_id:
            case "throws":
                raise ValueError("org.apache.kafka says: cancelled")
            case "sleeps":
                time.sleep(3_600)
            case "dies":
                os._exit(3)
            case "short":
                return pa.RecordBatch.from_pydict({"seen": [True, True]})
            case _:
                pass
    return pa.RecordBatch.from_pydict({"seen": [True] * events.num_rows})


@function(reads="id BIGINT", returns="much STRING")
def vast(events: pa.RecordBatch) -> pa.RecordBatch:
    """Return more for one event than its reader has memory for."""
    much = ["x" * (300_000_000 if it == 5 else 1) for it in events["id"].to_pylist()]
    return pa.RecordBatch.from_pydict({"much": much})


# The spread of the prices of a window; an event without a price adds nothing.
spread = Reducer(
    reads="price DOUBLE",
    begin=lambda events: [None if it is None else [it, it] for it in events["price"].to_pylist()],
    merge=lambda one, other: [min(one[0], other[0]), max(one[1], other[1])],
    finish=lambda state: state[1] - state[0],
)


def begin_touchy(events: pa.RecordBatch) -> list[list[str] | None]:
    """Fail at once with one event."""
    if "throws" in events["id"].to_pylist():
        raise ValueError("org.apache.kafka says: cancelled")
    return [None if it is None else [it] for it in events["id"].to_pylist()]


def merge_touchy(one: list[str], other: list[str]) -> list[str]:
    """Fail with other events once they are merged with anything."""
    together = sorted({*one, *other})
    if "cannot be merged" in together:
        raise KeyError("cannot be merged")
    if "dies" in together:
        os._exit(3)
    if "sleeps" in together:
        time.sleep(3_600)
    return together


touchy = Reducer(reads="id STRING", begin=begin_touchy, merge=merge_touchy)


def _the_other(_: Any, other: Any) -> Any:
    return other


# Its result depends on the order, so it is no reducer.
newest = Reducer(reads="id STRING", begin=lambda it: it["id"].to_pylist(), merge=_the_other)
