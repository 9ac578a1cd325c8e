"""Defines spans and their parents, and writes them as OTLP's JSON."""

import secrets
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

_SAMPLED = 1


class SpanKind(IntEnum):
    """OTLP's numbers for the kinds of spans."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3
    PRODUCER = 4


class SpanParent(NamedTuple):
    """A span's trace and its parent span, which is "" at the top."""

    trace_id: str
    span_id: str = ""


class TraceSpan(NamedTuple):
    """A finished span."""

    parent: SpanParent
    span_id: str
    name: str
    kind: SpanKind
    begun_ns: int
    ended_ns: int
    attributes: dict[str, str | int]
    is_error: bool


def new_span_id() -> str:
    return secrets.token_hex(8)


def new_trace() -> SpanParent:
    return SpanParent(secrets.token_hex(16))


def sampled_parent(traceparent: str | None) -> SpanParent | None:
    """Return the span in a valid traceparent of version 00, if its trace is recorded."""
    parts = traceparent.split("-") if traceparent else ()
    if len(parts) != 4 or not _is_sampled(parts[3]):  # noqa: PLR2004 - version, ids, flags
        return None
    return SpanParent(parts[1], parts[2])


def _is_sampled(flags: str) -> bool:
    try:
        return bool(int(flags, 16) & _SAMPLED)
    except ValueError:
        return False


def as_otlp(resource: Mapping[str, str], spans: Sequence[TraceSpan]) -> dict[str, Any]:
    """Return the body of a request to a collector; `resource` says which process it comes from."""
    encoded = [_as_otlp(span) for span in spans]
    scope_spans = [{"scope": {"name": "hifi"}, "spans": encoded}]
    process = {"attributes": _attributes(resource)}
    return {"resourceSpans": [{"resource": process, "scopeSpans": scope_spans}]}


def _as_otlp(span: TraceSpan) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "traceId": span.parent.trace_id,
        "spanId": span.span_id,
        "name": span.name,
        "kind": int(span.kind),
        # In protobuf's JSON, 64-bit numbers are strings.
        "startTimeUnixNano": str(span.begun_ns),
        "endTimeUnixNano": str(span.ended_ns),
        "attributes": _attributes(span.attributes),
        # The status is unset, or 2 for an error.
        "status": {"code": 2} if span.is_error else {},
    }
    if span.parent.span_id:
        fields["parentSpanId"] = span.parent.span_id
    return fields


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "key": name,
            "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value},
        }
        for name, value in values.items()
    ]
