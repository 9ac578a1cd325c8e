"""Decides how a destination is described: as it is shown, and as it is set."""

from typing import Any

from shared.config.destination import BODY_FORMATS, COMPRESSIONS, LATENCIES, ORDERS

_NAME = {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,99}$"}
_POINTER = {"type": "string", "pattern": "^(/([^/~]|~0|~1)+){1,8}$"}
_SCALAR = {"type": ["string", "number", "boolean", "null"]}
_SHOWN_SECRET = {
    "type": "object",
    "description": "A secret is never shown; sent back, this keeps it.",
    "required": ["sealed"],
    "properties": {"sealed": {"type": "string"}},
    "additionalProperties": False,
}
_SECRET = {"anyOf": [{"type": "string", "minLength": 1}, _SHOWN_SECRET]}
_HEADERS = {"type": "object", "maxProperties": 32, "additionalProperties": {"type": "string"}}


def _seconds(low: float, high: float) -> dict[str, Any]:
    return {"type": "number", "minimum": low, "maximum": high}


def _condition(test: str, operand: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["pointer", test],
        "properties": {"pointer": _POINTER, test: operand},
        "additionalProperties": False,
    }


def _auth(secret: dict[str, Any]) -> dict[str, Any]:
    def one(kind: str, needed: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {
            "type": "object",
            "required": ["kind", *needed],
            "properties": {"kind": {"const": kind}, **needed, **more},
            "additionalProperties": False,
        }

    text = {"type": "string", "minLength": 1}
    return {
        "anyOf": [
            {"type": "null"},
            one("basic", {"username": {"type": "string"}, "password": secret}),
            one("bearer", {"token": secret}),
            one(
                "oauth2",
                {
                    "token_url": {"type": "string", "format": "uri"},
                    "client_id": text,
                    "client_secret": secret,
                },
                scope={"type": "string"},
            ),
        ]
    }


def _settings(secret: dict[str, Any]) -> dict[str, Any]:
    certificate = {
        "type": "object",
        "required": ["certificate_pem", "key_pem"],
        "properties": {"certificate_pem": {"type": "string"}, "key_pem": secret},
        "additionalProperties": False,
    }
    values = {"type": "array", "minItems": 1, "maxItems": 100, "items": _SCALAR}
    conditions = [
        _condition("equals", _SCALAR),
        _condition("one_of", values),
        _condition("exists", {"type": "boolean"}),
        _condition("prefix", {"type": "string"}),
    ]
    return {
        "url": {"type": "string", "format": "uri"},
        "body_format": {"enum": list(BODY_FORMATS)},
        "batch_count_max": {"type": "integer", "minimum": 1, "maximum": 10_000},
        "batch_bytes_max": {"type": "integer", "minimum": 1, "maximum": 64 * 1_048_576},
        "linger_s": _seconds(0, 60),
        "parallel_max": {"type": "integer", "minimum": 1, "maximum": 256},
        "rate_per_s": {"type": ["number", "null"], "minimum": 0.001, "maximum": 1e9},
        "timeout_s": _seconds(0.001, 300),
        "connect_timeout_s": _seconds(0.001, 300),
        "compression": {"enum": list(COMPRESSIONS)},
        "headers": _HEADERS,
        "secret_headers": {**_HEADERS, "additionalProperties": secret},
        "auth": _auth(secret),
        "client_certificate": {"anyOf": [certificate, {"type": "null"}]},
        "signing_secrets": {"type": "array", "maxItems": 2, "items": secret},
        "order": {"enum": list(ORDERS)},
        "retry_on": {
            "type": "array",
            "items": {"type": "integer", "minimum": 400, "maximum": 499},
        },
        "latency": {"enum": list(LATENCIES)},
        "start": {
            "anyOf": [{"enum": ["earliest", "latest"]}, {"type": "integer", "minimum": 0}],
        },
        "filter": {"type": "array", "items": {"anyOf": conditions}},
        "fields": {"type": "array", "items": _POINTER},
        "is_paused": {"type": "boolean"},
        "hold_on_rejects": {"type": "boolean"},
        "disable_after_s": _seconds(1, 30 * 86_400),
        "is_disabled": {"type": "boolean"},
        # What was held or disabled until then goes on.
        "resumed_at_ms": {"type": "integer", "minimum": 0, "maximum": 10**15},
    }


NEW_DESTINATION: dict[str, Any] = {
    "type": "object",
    "required": ["url"],
    "properties": _settings(_SECRET),
    "additionalProperties": False,
}
DESTINATION: dict[str, Any] = {
    "type": "object",
    "required": ["stream", "name", *_settings(_SHOWN_SECRET)],
    "properties": {
        **_settings(_SHOWN_SECRET),
        "stream": _NAME,
        "name": _NAME,
        "warning": {"type": "string", "description": "What could not be found out at PUT."},
    },
    "additionalProperties": False,
}
