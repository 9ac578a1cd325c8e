"""Decides how the path of receipts is described."""

from typing import Any

from gateway.openapi_parts import KNOWN_CALLER, REQUEST_ID, problems
from shared.whereabouts import At

Json = dict[str, Any]

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_TIME_MS = {"type": "integer"}
_PLACE = {"type": "string", "pattern": "^[0-9]{1,18}:[0-9]{1,18}$"}
_UUID = "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
_STATES = [at.value for at in At]
# Where an event is on its way to one destination; what does not apply is left out.
_WHEREABOUTS: Json = {
    "type": "object",
    "required": ["state"],
    "properties": {
        "state": {"enum": _STATES},
        "at_ms": {**_TIME_MS, "description": "When its latest attempt ended."},
        "reason": {"type": "string", "description": "status_200, status_503, filtered, ..."},
        "attempts": _COUNT,
        "last_status": {"type": ["integer", "null"]},
        "last_detail": {"type": "string", "description": "What the destination said to it."},
        "tier": {"type": "string", "description": "The retry tier in which it waits."},
        "due_at_ms": {**_TIME_MS, "description": "Not tried before that."},
        "deadline_at_ms": {**_TIME_MS, "description": "Given up after that."},
        "place": {**_PLACE, "description": "Where it lies in dead letters."},
    },
    "additionalProperties": False,
}
_EVENT: Json = {
    "type": "object",
    "required": ["id", "partition", "offset", "destinations"],
    "properties": {
        "id": _TEXT,
        "partition": _COUNT,
        "offset": _COUNT,
        "destinations": {"type": "object", "additionalProperties": _WHEREABOUTS},
    },
    "additionalProperties": False,
}
RECEIPT: Json = {
    "type": "object",
    "required": ["request_id", "stream", "accepted_at_ms", "count", "is_complete",
                 "destinations", "events", "next"],
    "properties": {
        "request_id": _TEXT,
        "stream": _TEXT,
        "accepted_at_ms": _TIME_MS,
        "count": {**_COUNT, "description": "How many events of the request Hifi took."},
        "is_complete": {
            "type": "boolean",
            "description": "Whether all of them were found, and all that is said of them read.",
        },
        "destinations": {
            "type": "object",
            "description": "By name, how many of the events are where.",
            "additionalProperties": {
                "type": "object",
                "required": _STATES,
                "properties": dict.fromkeys(_STATES, _COUNT),
                "additionalProperties": False,
            },
        },
        "events": {"type": "array", "items": _EVENT},
        "next": {"anyOf": [_PLACE, {"type": "null"}]},
    },
    "additionalProperties": False,
}  # fmt: skip
RECEIPT_EXAMPLE: Json = {
    "request_id": REQUEST_ID,
    "stream": "orders",
    "accepted_at_ms": 1_795_288_000_000,
    "count": 3,
    "is_complete": True,
    "destinations": {
        "crm": {"delivered": 1, "waiting": 1, "dead": 1, "pending": 0, "unknown": 0},
    },
    "events": [
        {
            "id": "e-1",
            "partition": 0,
            "offset": 17,
            "destinations": {
                "crm": {
                    "state": "delivered",
                    "at_ms": 1_795_288_000_250,
                    "reason": "status_200",
                    "attempts": 1,
                }
            },
        },
        {
            "id": "e-2",
            "partition": 0,
            "offset": 18,
            "destinations": {
                "crm": {
                    "state": "waiting",
                    "at_ms": 1_795_288_002_000,
                    "reason": "status_503",
                    "attempts": 1,
                    "last_status": 503,
                    "last_detail": "busy",
                    "tier": "30s",
                    "due_at_ms": 1_795_288_032_000,
                    "deadline_at_ms": 1_795_547_200_000,
                }
            },
        },
        {
            "id": "e-3",
            "partition": 2,
            "offset": 4,
            "destinations": {
                "crm": {
                    "state": "dead",
                    "at_ms": 1_795_288_000_250,
                    "reason": "status_400",
                    "attempts": 1,
                    "last_status": 400,
                    "last_detail": "no such user",
                    "place": "0:17",
                }
            },
        },
    ],
    "next": None,
}


def receipt_paths() -> Json:
    query = {
        "event": _TEXT,
        "limit": {"type": "integer", "minimum": 1, "maximum": 5_000},
        "after": _PLACE,
        "from": {"type": "string", "format": "date-time"},
    }
    request_id = {
        "name": "request_id",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "pattern": _UUID},
    }
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Receipt"}}}
    return {
        "/v1/receipts/{request_id}": {
            "parameters": [request_id],
            "get": {
                "operationId": "showReceipt",
                "summary": "Follow the events of a request to each destination",
                "parameters": [
                    {"name": name, "in": "query", "schema": schema}
                    for name, schema in query.items()
                ],
                "responses": {
                    **problems(
                        *KNOWN_CALLER,
                        *("bad_request_id", "bad_query", "stream_forbidden", "origin_forbidden"),
                        *("unknown_receipt", "receipt_not_yet"),
                        *("overloaded", "kafka_unavailable", "search_unfinished"),
                    ),
                    "200": {"description": "Where its events are by now.", "content": content},
                },
            },
        },
    }
