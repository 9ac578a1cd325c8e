"""Says of payments how odd they are, and where they come from."""

import json
import os
import time

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.functions import function


@function(reads="price DOUBLE, usual DOUBLE", returns="score DOUBLE")
def score(events: pa.RecordBatch) -> pa.RecordBatch:
    """How many times the usual price it is; nothing is known of who has none."""
    usual = [each or None for each in events["usual"].to_pylist()]
    return pa.RecordBatch.from_pydict(
        {"score": pc.divide(events["price"], pa.array(usual, pa.float64()))}
    )


@function(reads="value BINARY", returns="country STRING, bytes BIGINT")
def country(events: pa.RecordBatch) -> pa.RecordBatch:
    """By the first two letters of its IBAN, from the event's own bytes."""
    values = [value or b"" for value in events["value"].to_pylist()]
    found = [json.loads(value).get("iban", "")[:2] or None for value in values]
    sizes = [len(value) for value in values]
    return pa.RecordBatch.from_pydict({"country": pa.array(found, pa.string()), "bytes": sizes})


@function(reads="id STRING", returns="seen BOOLEAN")
def moody(events: pa.RecordBatch) -> pa.RecordBatch:
    """Goes wrong in all the ways there are, by the event's id."""
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
