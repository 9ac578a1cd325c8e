"""Makes events of what people do not think of: each member at its limits, missing, or null."""

import json
from itertools import count
from typing import Any

from pipelines.members import members_of
from shared.config.pipeline import Pipeline
from shared.event.envelope import event_headers
from shared.event.record import Origin, RecordIn
from shared.event.topics import stream_topic

# By how a type begins; each event has the next of them, from the first again.
_VALUES: dict[str, list[Any]] = {
    "string": [
        "",
        "a",
        "a b,c/d?e=f&g",
        '\u0000\ud83d\ude00"\\',
        "-1",
        "2026-02-30T25:61:00Z",
        "x" * 3000,
    ],
    "boolean": [True, False],
    "byte": [0, 127, -128],
    "short": [0, 32_767, -32_768],
    "integer": [0, 1, -1, 2**31 - 1, -(2**31)],
    "long": [0, 1, -1, 2**63 - 1, -(2**63), 2**53],
    "float": [0.0, -1.5, 3.4e38],
    "double": [0.0, -1.5, 1.7e308, 5e-324, 1e300],
    "decimal": [0, 1, -1],
    "date": ["1970-01-01", "9999-12-31", "0001-01-01"],
    "timestamp": ["1970-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z", "0001-01-01T00:00:00Z"],
    "binary": ["", "AAEC"],
}
# As many as the longest of these.
_EVENTS = 7


def probes_of(pipeline: Pipeline, *, partition: int) -> list[RecordIn]:
    """Records of such events, and of two that are none."""
    members = members_of(pipeline.schema).jsonValue() if pipeline.schema else {"fields": []}
    shape = {"type": "struct", **members}
    events = [json.dumps(_event(shape, nth)) for nth in range(_EVENTS)]
    nulls = json.dumps({field["name"]: None for field in shape["fields"]})
    topic = stream_topic(pipeline.source.stream)
    headers = event_headers(event_id="probe", event_time_ms=0, accepted_at_ms=10**17)
    return [
        RecordIn(
            Origin(topic, partition, nth), 0, b"key" if nth % 2 else None, text.encode(), headers
        )
        for nth, text in zip(count(), [*events, nulls, "{}", "no event", ""])
    ]


def _event(kind: Any, nth: int) -> Any:
    if isinstance(kind, str):
        values = _VALUES["timestamp" if kind.startswith("timestamp") else kind.partition("(")[0]]
        return values[nth % len(values)]
    match kind["type"]:
        case "struct":
            return {field["name"]: _event(field["type"], nth) for field in kind["fields"]}
        case "array":
            return [_event(kind["elementType"], nth), None, _event(kind["elementType"], nth + 1)][
                : nth % 4
            ]
        case _:
            return {"": _event(kind["valueType"], nth), "a": None}
