"""Decides how the paths of dead letters are described."""

from gateway.control.dead_letters import COUNT_MAX
from gateway.openapi.parts import (
    COUNT,
    KNOWN_CALLER,
    PLACE,
    TEXT,
    TIME,
    Json,
    path,
    problems,
    queries,
)

# What either path can be asked to pick.
_FILTERS: Json = {
    "destination": TEXT,
    "reason": TEXT,
    "from": TIME,
    "to": TIME,
    "id": TEXT,
}
_DEAD_LETTER: Json = {
    "type": "object",
    "required": ["place", "dead_at_ms", "stream", "destination", "reason", "id", "redriven"],
    "properties": {
        "place": PLACE,
        "reason": TEXT,
        "redriven": {"type": "boolean"},
        "data": {"description": "The event, if payload=true was asked for."},
        "data_base64": {"type": "string", "description": "Its bytes, if they are no JSON."},
    },
}
_LIST: Json = {
    "type": "object",
    "required": ["dead_letters", "next"],
    "properties": {
        "dead_letters": {"type": "array", "items": _DEAD_LETTER},
        "next": {"anyOf": [PLACE, {"type": "null"}]},
    },
    "additionalProperties": False,
}
_ORDER: Json = {
    "type": "object",
    "properties": {
        **_FILTERS,
        "limit": {"type": "integer", "minimum": 1, "maximum": 1_000_000_000},
        "rate_per_s": {"type": "number", "exclusiveMinimum": 0, "maximum": 10_000},
        "dry_run": {"type": "boolean"},
    },
    "additionalProperties": False,
}
_DONE: Json = {
    "type": "object",
    "required": ["redrive_id", "count", "already", "malformed", "is_complete"],
    "properties": {
        "redrive_id": {"type": ["string", "null"]},
        "count": COUNT,
        "already": COUNT,
        "malformed": COUNT,
        "is_complete": {"type": "boolean"},
    },
    "additionalProperties": False,
}
_CALLER = (
    *(*KNOWN_CALLER, "unknown_stream"),
    *("stream_forbidden", "origin_forbidden", "kafka_unavailable"),
)


def dead_letter_paths() -> Json:
    stream = path("stream")
    query = {
        **_FILTERS,
        "limit": {"type": "integer", "minimum": 1, "maximum": COUNT_MAX},
        "after": PLACE,
        "payload": {"type": "string", "enum": ["true", "false"]},
    }
    return {
        "/v1/streams/{stream}/dead-letters": {
            "parameters": [stream],
            "get": {
                "operationId": "listDeadLetters",
                "summary": "List what was given up",
                "parameters": queries(query),
                "responses": {
                    **problems(*_CALLER, "bad_query"),
                    "200": _answer("Some of them, and where to go on.", _LIST),
                },
            },
        },
        "/v1/streams/{stream}/dead-letters:redrive": {
            "parameters": [stream],
            "post": {
                "operationId": "redriveDeadLetters",
                "summary": "Send again what was given up, each once",
                "requestBody": {"content": {"application/json": {"schema": _ORDER}}},
                "responses": {
                    **problems(
                        *_CALLER,
                        *("bad_object", "invalid_json", "invalid_utf8", "body_too_large"),
                        *("body_timeout", "overloaded", "redrive_overtaken"),
                    ),
                    "200": _answer("What was sent again, or would be.", _DONE),
                },
            },
        },
    }


def _answer(description: str, schema: Json) -> Json:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
