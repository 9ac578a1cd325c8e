"""Makes events that people do not think of: each member at its limits, missing, or null.

Others are made from the document's expressions, to be slow for them. The events find steps that
never end, throw, or take all memory. Each is a valid event: a good document passes.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from pipelines.judging.odd_texts import (
    DEEP_JSON,
    EXPONENTS,
    LONG_JSON,
    strings_in,
    texts_of,
)
from pipelines.members import members_of
from shared.config.pipeline import Pipeline
from shared.event.envelope import event_headers
from shared.event.record import Origin, RecordIn
from shared.event.topics import stream_topic

# Values by the start of a type's name; events take them in turn.
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
# The length of the longest of these lists.
_EVENTS = 7
# A text with this prefix is put into the event without quotes.
_RAW = "json:"
_IS_RAW = re.compile(r'"json:([^"]*)"')
_TEXTS_BYTES_MAX, _LISTS_BYTES_MAX = 200_000, 100_000
# Within the depth that Spark's JSON reader accepts.
_DEEP = 900


def probes_of(pipeline: Pipeline, *, partition: int) -> list[RecordIn]:
    """Return records of these events, and of two values that are not events."""
    members = members_of(pipeline.schema).jsonValue() if pipeline.schema else {"fields": []}
    fields = members["fields"]
    steps = {name: pipeline.to_fields().get(name) for name in ("steps", "to")}
    events = [
        *(json.dumps(_struct(fields, number, _VALUES)) for number in range(_EVENTS)),
        json.dumps({field["name"]: None for field in fields}),
        "{}",
        *(odd_events(fields, [*strings_in(steps)]) if fields else ()),
    ]
    topic = stream_topic(pipeline.source.stream)
    headers = event_headers(event_id="probe", event_time_ms=0, accepted_at_ms=10**17)
    return [
        RecordIn(
            Origin(topic, partition, offset),
            0,
            b"key" if offset % 2 else None,
            text.encode(),
            headers,
        )
        for offset, text in zip(count(), [*events, "no event", ""])
    ]


def odd_events(fields: Sequence[Mapping[str, Any]], said: Sequence[str]) -> Iterator[str]:
    """Yield events with these members, made from the texts in a document's expressions."""
    for number in EXPONENTS:
        yield _with_texts(fields, number)
        yield _with_texts(fields, f"{_RAW}{number}")
    yield _with_texts(fields, f"{_RAW}{'[' * _DEEP}{']' * _DEEP}", ("string",))
    if (long := _with_long_lists(fields)) is not None:
        yield long
    words = set(re.findall(r"\w+", " ".join(said)))
    named = [field for field in fields if words & set(re.findall(r"\w+", field["name"]))]
    texts = texts_of(said)
    if any("json" in word.lower() for word in words):
        texts += [LONG_JSON, DEEP_JSON]
    for text in texts:
        yield _with_texts(named, text, ("string",))


def _with_texts(
    fields: Sequence[Mapping[str, Any]], text: str, kinds: Sequence[str] = ("string", "decimal")
) -> str:
    """An event with the text, or as much of it as has room, in all members of these types."""

    def event(text: str) -> str:
        return json.dumps(_struct(fields, 1, {**_VALUES, **{kind: [text] for kind in kinds}}))

    if not text.startswith(_RAW):
        places = event("a place").count("a place")
        text = text[: _TEXTS_BYTES_MAX // max(1, places)]
    return _IS_RAW.sub(r"\1", event(text))


def _with_long_lists(fields: Sequence[Mapping[str, Any]]) -> str | None:
    """Fill all lists with the shortest possible elements; None if there are no lists."""
    lists = {
        field["name"]: field["type"]["elementType"]
        for field in fields
        if not isinstance(field["type"], str) and field["type"]["type"] == "array"
    }
    if not lists:
        return None
    room = _LISTS_BYTES_MAX // len(lists)
    return json.dumps({name: _long_list(kind, room) for name, kind in lists.items()})


def _long_list(kind: Any, room: int) -> list[Any]:
    if isinstance(kind, str):
        return [None] * (room // len("null,"))
    if kind["type"] == "array":
        return [[]] * (room // len("[],"))
    members = len(kind.get("fields", ()))
    # Each element takes memory for all its members.
    return [{}] * (room // (len("{},") + members))


def _struct(
    fields: Sequence[Mapping[str, Any]], nth: int, values: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    return {field["name"]: _event(field["type"], nth, values) for field in fields}


def _event(kind: Any, nth: int, values: Mapping[str, Sequence[Any]]) -> Any:
    if isinstance(kind, str):
        some = values["timestamp" if kind.startswith("timestamp") else kind.partition("(")[0]]
        return some[nth % len(some)]
    match kind["type"]:
        case "struct":
            return _struct(kind["fields"], nth, values)
        case "array":
            of = kind["elementType"]
            return [_event(of, nth, values), None, _event(of, nth + 1, values)][: nth % 4]
        case _:
            return {"": _event(kind["valueType"], nth, values), "a": None}
