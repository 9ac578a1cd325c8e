"""Describes the routes of tables' rows; gateway.tables serves them without a framework."""

from typing import Any

from gateway.problems import PROBLEMS_MEMBER
from shared.event.topics import NAME_PATTERN

Json = dict[str, Any]

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_QUOTAS = ("quota_requests", "quota_events", "quota_bytes", "tenant_in_flight", "overloaded")
_WRITES = (
    *("invalid_json", "invalid_utf8", "invalid_encoding", "unsupported_encoding", "body_timeout"),
    *("body_too_large", "decompressed_too_large", "too_many_events", "bad_row", "bad_signature"),
    *("bad_path", "changed_meanwhile", "stale", "table_not_ready", "bad_header"),
    *("table_in_use", "table_full", "not_stored", "outcome_unknown", *_QUOTAS),
)
_READS = (
    *("bad_path", "bad_query", "unknown_row", "stale", "table_not_ready", "too_many_watchers"),
    *_QUOTAS,
)
_AS_OF = {
    "type": "object",
    "description": "The offset that this gateway's copy has reached, and the copy's age.",
    "required": ["offset", "time_ms", "age_ms"],
    "properties": dict.fromkeys(("offset", "time_ms", "age_ms"), _COUNT),
    "additionalProperties": False,
}
_ROW_MEMBERS: Json = {
    "key": _TEXT,
    "row": {"type": "object", "description": "The row, as it was written."},
    "offset": _COUNT,
    "time_ms": {**_COUNT, "description": "When Kafka stored the row."},
}
ROW_SCHEMAS: Json = {
    "AsOf": _AS_OF,
    "Row": {
        "type": "object",
        "required": [*_ROW_MEMBERS],
        "properties": _ROW_MEMBERS,
        "additionalProperties": False,
    },
    "RowAnswer": {
        "type": "object",
        "required": [*_ROW_MEMBERS, "as_of"],
        "properties": {**_ROW_MEMBERS, "as_of": {"$ref": "#/components/schemas/AsOf"}},
        "additionalProperties": False,
    },
    "RowPage": {
        "type": "object",
        "required": ["rows", "next", "as_of"],
        "properties": {
            "rows": {"type": "array", "items": {"$ref": "#/components/schemas/Row"}},
            "next": {"type": ["string", "null"], "description": "`after` for the next page."},
            "as_of": {"$ref": "#/components/schemas/AsOf"},
        },
        "additionalProperties": False,
    },
    "RowsStored": {
        "type": "object",
        "required": ["request_id", "accepted", "offset"],
        "properties": {"request_id": _TEXT, "accepted": _COUNT, "offset": _COUNT},
        "additionalProperties": False,
    },
}


def row_paths() -> Json:
    table = _parameter("path", "table", {**_TEXT, "pattern": f"^{NAME_PATTERN.pattern}$"})
    key = _parameter("path", "key", {**_TEXT, "minLength": 1, "maxLength": 480})
    return {
        "/v1/tables/{table}/rows": _of_many(table),
        "/v1/tables/{table}/rows/{key}": _of_one([table, key]),
    }


def _of_many(table: Json) -> Json:
    line = '{"key":"c-1","row":{"country":"DE"}}\n{"key":"c-2","row":null}\n'
    body = {"schema": _TEXT, "example": line}
    bodies = {"application/x-ndjson": body, "text/plain": body}
    return {
        "get": {
            "summary": "List Rows",
            "parameters": [
                table,
                _query("prefix", "Only rows whose keys begin with this."),
                _query("from", "Only rows from this key on."),
                _query("to", "Only rows before this key."),
                *_reading(),
            ],
            "responses": {"200": _watched(_answer("Rows, ordered by key.", "RowPage"))},
            PROBLEMS_MEMBER: _READS,
        },
        "post": {
            "summary": "Write Rows",
            "description": "One row per line; null deletes a row. All are written, or none.",
            "parameters": [table, _SIGNATURE],
            "requestBody": {"required": True, "content": bodies},
            **_writes(),
        },
    }


def _of_one(path: list[Json]) -> Json:
    windows = "A time with a zone: only windows of the key that begin"
    row: Json = {"application/json": {"schema": {"type": "object"}, "example": {"country": "DE"}}}
    return {
        "get": {
            "summary": "Show Row",
            "parameters": [
                *path,
                _query("from", f"{windows} at that time or later."),
                _query("to", f"{windows} before that time."),
                *_reading(),
            ],
            "responses": {
                "200": _watched(
                    {
                        "description": "The row; with `from` or `to`, the key's windows.",
                        "content": {"application/json": {"schema": _either()}},
                    }
                )
            },
            PROBLEMS_MEMBER: _READS,
        },
        "put": {
            "summary": "Write Row",
            "parameters": [*path, _SIGNATURE, *_CONDITIONS],
            "requestBody": {"required": True, "content": row},
            **_writes(),
        },
        "delete": {
            "summary": "Delete Row",
            "parameters": [*path, _SIGNATURE, *_CONDITIONS],
            **_writes(),
        },
    }


def _writes() -> Json:
    stored = {"200": _answer("Kafka has stored every row.", "RowsStored")}
    return {"responses": stored, PROBLEMS_MEMBER: _WRITES}


def _reading() -> list[Json]:
    return [
        _query("max_age", "Greatest age in seconds; an older copy answers 503 `stale`."),
        _query("at_least", "Wait up to 2 s until the gateway's copy has reached this offset."),
        _query("watch", "1: get changes as server-sent events."),
        _query("since", "Watch from this offset on, like the header Last-Event-ID."),
        _query("limit", "Greatest number of rows (default 100, at most 1,000)."),
        _query("after", "Only rows after this key: the `next` of the previous page."),
    ]


def _either() -> Json:
    names = ("RowAnswer", "RowPage")
    return {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in names]}


def _answer(description: str, schema: str) -> Json:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"description": description, "content": content}


def _watched(answer: Json) -> Json:
    """Add the stream of events that `watch=1` gets."""
    answer["content"]["text/event-stream"] = {
        "schema": {**_TEXT, "description": "Events of the types row, deleted, restart and as_of."},
        "example": _ROW_EVENT,
    }
    return answer


def _header(name: str, description: str) -> Json:
    schema = {**_TEXT, "maxLength": 500}
    return _parameter("header", name, schema, description)


def _query(name: str, description: str) -> Json:
    return _parameter("query", name, _TEXT, description)


def _parameter(where: str, name: str, schema: Json, description: str = "") -> Json:
    required = where == "path"
    parameter = {"name": name, "in": where, "schema": schema, "required": required}
    return {**parameter, "description": description}


_SIGNATURE = _header("Hifi-Signature", "t=SECONDS,v1=HEX; required if the key must sign.")
_ROW_EVENT = (
    "id: 18\nevent: row\n"
    'data: {"key":"c-1","row":{"country":"DE"},"offset":17,"time_ms":1764000000000}\n\n'
)
_CONDITIONS = (
    _header("If-Match", "Only if the row has one of these ETags; *: if the row exists."),
    _header("If-None-Match", "Only if the row has none of these ETags; *: if there is no row."),
)
