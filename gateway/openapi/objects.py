"""Decides how the objects of the API are described: streams, keys, tenants, limits, results."""

from typing import Any

_NAME = {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,99}$"}
_RATE = {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1e12}
_POINTER = {"type": "string", "pattern": "^(/([^/~]|~0|~1)+){0,8}$"}
_NAMES = {"type": "array", "items": _NAME}
_ORIGINS = {"type": "array", "items": {"type": "string"}}
_SCOPES = {"type": "array", "minItems": 1, "items": {"enum": ["write", "read", "admin"]}}

RESULT: dict[str, Any] = {
    "type": "object",
    "required": ["index", "id", "status"],
    "properties": {
        "index": {"type": "integer", "minimum": 0},
        "id": {"type": ["string", "null"]},
        "status": {"enum": ["accepted", "rejected", "retry", "unknown", "spooled", "valid"]},
        "code": {"type": "string"},
        "detail": {"type": "string"},
        "pointer": {"type": "string"},
        "retryable": {"type": "boolean"},
        "partition": {"type": ["integer", "null"]},
        "offset": {"type": ["integer", "null"]},
        "key": {"type": "string"},
    },
    "additionalProperties": False,
}

NEW_STREAM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "partition_count": {"type": "integer", "minimum": 1, "maximum": 1000},
        "key_pointer": _POINTER,
        "schema": {"type": ["object", "boolean", "null"]},
    },
    "additionalProperties": False,
}
STREAM: dict[str, Any] = {
    "type": "object",
    "required": ["name", "tenant", "partition_count", "key_pointer", "schema"],
    "properties": {
        **NEW_STREAM["properties"],
        "name": _NAME,
        "tenant": _NAME,
    },
    "additionalProperties": False,
}

NEW_KEY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "tenant": _NAME,
        "kind": {"enum": ["secret", "browser"]},
        "scopes": _SCOPES,
        "streams": _NAMES,
        "origins": _ORIGINS,
        "expires_at_ms": {"type": ["integer", "null"]},
        "must_sign": {"type": "boolean"},
    },
    "additionalProperties": False,
}
KEY: dict[str, Any] = {
    "type": "object",
    "required": ["id", "tenant", "kind", "scopes", "streams", "origins", "live_texts"],
    "properties": {
        **NEW_KEY["properties"],
        "id": _NAME,
        "live_texts": {"type": "integer", "minimum": 1, "maximum": 2},
        "key": {"type": "string", "description": "The key's text, shown this once."},
    },
    "additionalProperties": False,
}

TENANT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": _NAME,
        "requests_per_s": _RATE,
        "events_per_s": _RATE,
        "bytes_per_s": _RATE,
    },
    "additionalProperties": False,
}

LIMITS: dict[str, Any] = {
    "type": "object",
    "required": ["body_bytes_max", "events_max", "event_bytes_max", "quotas"],
    "properties": {"quotas": {"anyOf": [TENANT, {"type": "null"}]}},
}
