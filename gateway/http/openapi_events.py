"""Describes the routes that take events; gateway.routes serves them without a framework."""

from typing import Any

from gateway.problems import PROBLEMS_MEMBER
from shared.event.topics import NAME_PATTERN

Json = dict[str, Any]

TEXT = {"type": "string"}
_COUNT_OR_NULL = {"type": ["integer", "null"]}
_COUNT = {"type": "integer", "minimum": 0}
_CLOUD_EVENT = {"specversion": "1.0", "id": "e-1", "source": "/shop", "type": "order.placed"}
_PROBLEMS = (
    *("invalid_json", "invalid_utf8", "invalid_encoding", "too_deep", "not_events"),
    *("ambiguous_body", "bad_query", "body_timeout", "body_too_large", "decompressed_too_large"),
    *("too_many_events", "unsupported_media_type", "unsupported_encoding", "all_rejected"),
    *("quota_requests", "quota_events", "quota_bytes", "tenant_in_flight", "overloaded"),
    *("not_stored", "outcome_unknown"),
)
# Pages send beacons, and can add neither a signature nor headers to them.
_NOT_OF_BEACONS = (
    *("bad_header", "bad_signature", "idempotency_key_in_use", "idempotency_key_reused"),
    "strict_rejected",
)
EVENT_SCHEMAS: Json = {
    "Event": {"type": "object", "description": "Any JSON object."},
    "Accepted": {
        "type": "object",
        "required": ["request_id", "accepted", "rejected"],
        "properties": {
            "request_id": TEXT,
            **dict.fromkeys(("accepted", "rejected", "retry", "valid"), _COUNT),
            "dry_run": {"const": True},
            "results": {"type": "array", "items": {"$ref": "#/components/schemas/Result"}},
        },
        "additionalProperties": False,
    },
    "Result": {
        "type": "object",
        "required": ["index", "id", "status"],
        "properties": {
            "index": _COUNT,
            "id": {"type": ["string", "null"]},
            "status": {"enum": ["accepted", "rejected", "retry", "unknown", "valid"]},
            **dict.fromkeys(("code", "detail", "pointer", "key"), TEXT),
            "retryable": {"type": "boolean"},
            **dict.fromkeys(("partition", "offset"), _COUNT_OR_NULL),
        },
        "additionalProperties": False,
    },
}


def event_paths() -> Json:
    event = {"$ref": "#/components/schemas/Event"}
    batch = {"type": "array", "items": event}
    example = {"id": "e-1", "price": 5}
    bodies = {
        "application/json": {"schema": {"anyOf": [event, batch]}, "example": [example]},
        "application/x-ndjson": {"schema": TEXT, "example": '{"id":"e-1"}\n'},
        "application/cloudevents+json": {"schema": event, "example": _CLOUD_EVENT},
        "application/cloudevents-batch+json": {"schema": batch, "example": [_CLOUD_EVENT]},
    }
    stream = _parameter("path", "stream", {**TEXT, "pattern": f"^{NAME_PATTERN.pattern}$"})
    key = _parameter("query", "key", TEXT, "A key of the kind browser.")
    return {
        "/v1/streams/{stream}/events": {
            "post": {
                "summary": "Send Events",
                "parameters": [
                    stream,
                    _flag("dry_run", ["true", "false"], "Check the events and store none."),
                    _flag("results", ["all", "failed"], "List all events, or only failed ones."),
                    _header("Idempotency-Key", 255, "The same key and body get the same answer."),
                    _header("X-Partition-Key", 255, "Ordering key for events without one."),
                    _header("Prefer", 100, "handling=strict, return=minimal"),
                    _header("Hifi-Signature", 500, "t=SECONDS,v1=HEX, if the key must sign."),
                ],
                "requestBody": {"required": True, "content": bodies},
                "responses": {
                    "200": _answer("Every event is stored."),
                    "204": {"description": "Every event is stored; the request asked for no body."},
                    "207": _answer("Some events are stored; see results."),
                },
                PROBLEMS_MEMBER: (*_PROBLEMS, *_NOT_OF_BEACONS),
            }
        },
        "/v1/streams/{stream}/beacon": {
            "post": {
                "summary": "Send Beacon",
                "description": "Send events from a page that is closing (navigator.sendBeacon).",
                "security": [],
                "parameters": [stream, key],
                "requestBody": {
                    "required": True,
                    "content": {"text/plain": {"schema": TEXT, "example": '{"id":"e-1"}'}},
                },
                "responses": {
                    "204": {"description": "Every event is stored."},
                    "207": _answer("Some events are stored; see results."),
                },
                PROBLEMS_MEMBER: _PROBLEMS,
            }
        },
    }


def _answer(description: str) -> Json:
    schema = {"$ref": "#/components/schemas/Accepted"}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _parameter(where: str, name: str, schema: Json, description: str = "") -> Json:
    required = where == "path"
    parameter = {"name": name, "in": where, "schema": schema, "required": required}
    return {**parameter, "description": description}


def _flag(name: str, values: list[str], description: str) -> Json:
    return _parameter("query", name, {**TEXT, "enum": values}, description)


def _header(name: str, length_max: int, description: str) -> Json:
    return _parameter("header", name, {**TEXT, "maxLength": length_max}, description)
