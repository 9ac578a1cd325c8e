"""Decides how the path of receipts is described."""

from gateway.control.receipts import COUNT_MAX
from gateway.control.whereabouts import At
from gateway.openapi.parts import (
    COUNT,
    KNOWN_CALLER,
    PLACE,
    REQUEST_ID,
    TEXT,
    TIME,
    Json,
    problems,
    queries,
)
from shared.proof import acked

_TIME_MS = {"type": "integer"}
_STATES = [at.value for at in At]
# Where an event is on its way to one destination; what does not apply is left out.
_WHEREABOUTS: Json = {
    "type": "object",
    "required": ["state"],
    "properties": {
        "state": {"enum": _STATES},
        "at_ms": {**_TIME_MS, "description": "When its latest attempt ended."},
        "reason": {"type": "string", "description": "status_200, status_503, filtered, ..."},
        "attempts": COUNT,
        "last_status": {"type": ["integer", "null"]},
        "last_detail": {"type": "string", "description": "What the destination said to it."},
        "tier": {"type": "string", "description": "The retry tier in which it waits."},
        "due_at_ms": {**_TIME_MS, "description": "Not tried before that."},
        "deadline_at_ms": {**_TIME_MS, "description": "Given up after that."},
        "place": {**PLACE, "description": "Where it lies in dead letters."},
    },
    "additionalProperties": False,
}
_EVENT: Json = {
    "type": "object",
    "required": ["id", "partition", "offset", "destinations"],
    "properties": {
        "id": TEXT,
        "partition": COUNT,
        "offset": COUNT,
        "destinations": {"type": "object", "additionalProperties": _WHEREABOUTS},
    },
    "additionalProperties": False,
}
RECEIPT: Json = {
    "type": "object",
    "required": ["request_id", "stream", "accepted_at_ms", "count", "is_complete",
                 "destinations", "events", "next"],
    "properties": {
        "request_id": TEXT,
        "stream": TEXT,
        "accepted_at_ms": _TIME_MS,
        "count": {**COUNT, "description": "How many events of the request Hifi took."},
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
                "properties": dict.fromkeys(_STATES, COUNT),
                "additionalProperties": False,
            },
        },
        "events": {"type": "array", "items": _EVENT},
        "next": {"anyOf": [PLACE, {"type": "null"}]},
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
    query: dict[str, Json] = {
        "event": TEXT,
        "limit": {"type": "integer", "minimum": 1, "maximum": COUNT_MAX},
        "after": PLACE,
        "from": TIME,
    }
    request_id = {
        "name": "request_id",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "pattern": f"^{acked.REQUEST_ID.pattern}$"},
    }
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Receipt"}}}
    return {
        "/v1/receipts/{request_id}": {
            "parameters": [request_id],
            "get": {
                "operationId": "showReceipt",
                "summary": "Follow the events of a request to each destination",
                "parameters": queries(query),
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
