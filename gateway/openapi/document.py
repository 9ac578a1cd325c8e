"""Decides how the API is described: an OpenAPI 3.1 document with an example for every status.

Written by hand from the catalogue of problems and the settings, and held against the running
application by a property-based test, because a description that is not true is worse than none.
"""

from gateway.openapi.dead_letters import dead_letter_paths
from gateway.openapi.destinations import DESTINATION, NEW_DESTINATION
from gateway.openapi.examples import (
    NEW_DESTINATION_EXAMPLE,
    NEW_KEY_EXAMPLE,
    NEW_STREAM_EXAMPLE,
    NEW_TENANT_EXAMPLE,
    with_examples,
)
from gateway.openapi.objects import KEY, LIMITS, NEW_KEY, NEW_STREAM, RESULT, STREAM, TENANT
from gateway.openapi.parts import (
    KNOWN_CALLER,
    REQUEST_ID,
    Json,
    answer,
    header,
    path,
    problems,
    query,
)
from gateway.openapi.receipts import RECEIPT, receipt_paths
from gateway.problems import CATALOGUE
from gateway.settings import Settings

_CLOUD_EVENT = {"specversion": "1.0", "id": "e-1", "source": "/shop", "type": "order.placed"}

_EVENTS = (
    "invalid_json",
    "invalid_utf8",
    "invalid_encoding",
    "too_deep",
    "not_events",
    "ambiguous_body",
    "bad_header",
    "bad_query",
    "bad_signature",
    "stream_forbidden",
    "origin_forbidden",
    "unknown_stream",
    "body_timeout",
    "idempotency_key_in_use",
    "body_too_large",
    "decompressed_too_large",
    "too_many_events",
    "unsupported_media_type",
    "unsupported_encoding",
    "all_rejected",
    "strict_rejected",
    "idempotency_key_reused",
    "quota_requests",
    "quota_events",
    "quota_bytes",
    "tenant_in_flight",
    "overloaded",
    "not_stored",
    "outcome_unknown",
)
# A beacon comes from a page, which can send neither a signature nor any header of its choice.
_NOT_FOR_BEACONS = {
    "bad_header",
    "bad_signature",
    "idempotency_key_in_use",
    "strict_rejected",
    "idempotency_key_reused",
}
_BEACON = tuple(code for code in _EVENTS if code not in _NOT_FOR_BEACONS)


def document(settings: Settings) -> Json:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Hifi gateway",
            "version": "1",
            "description": "Events in over HTTP. A 2xx means that Kafka has reported every"
            " accepted event stored; `results` says what became of the others.",
        },
        "paths": with_examples(_paths(), settings),
        "components": {
            "schemas": {
                "Event": {"type": "object", "description": "Any JSON object."},
                "Accepted": _accepted(),
                "Result": RESULT,
                "Problem": _problem_schema(),
                "Stream": STREAM,
                "Destination": DESTINATION,
                "Key": KEY,
                "Tenant": TENANT,
                "Limits": LIMITS,
                "Receipt": RECEIPT,
            },
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}] if settings.asks_for_keys else [],
    }


def _paths() -> Json:
    return {
        "/v1/streams/{stream}/events": {
            "parameters": [path("stream")],
            "post": _post_events(),
        },
        "/v1/streams/{stream}/beacon": {
            "parameters": [path("stream")],
            "post": _post_beacon(),
        },
        **_control_paths(),
    }


def _post_events() -> Json:
    event = {"$ref": "#/components/schemas/Event"}
    batch = {"type": "array", "items": event}
    content = {
        "application/json": {
            "schema": {"anyOf": [event, batch]},
            "examples": {
                "one": {"value": {"id": "e-1", "price": 5}},
                "batch": {"value": [{"id": "e-1"}, {"id": "e-2"}]},
            },
        },
        "application/x-ndjson": {"schema": {"type": "string"}, "example": '{"id":"e-1"}\n'},
        "application/cloudevents+json": {"schema": event, "example": _CLOUD_EVENT},
        "application/cloudevents-batch+json": {"schema": batch, "example": [_CLOUD_EVENT]},
    }
    responses = problems(*KNOWN_CALLER, *_EVENTS)
    all_in = {"request_id": REQUEST_ID, "accepted": 2, "rejected": 0}
    entry = {
        "index": 1,
        "id": "e-2",
        "status": "rejected",
        "code": "schema_violation",
        "detail": '"x" is not of type "number"',
        "pointer": "/1/price",
        "retryable": False,
    }
    mixed = {"request_id": REQUEST_ID, "accepted": 1, "rejected": 1, "results": [entry]}
    responses["200"] = answer("Accepted", "Every event is stored.", all_in)
    spooled = {
        "request_id": REQUEST_ID,
        "ack": "spool",
        "accepted": 0,
        "rejected": 0,
        "spooled": 2,
    }
    told = "Kafka has not all of them yet; the others are on this gateway's disk (respond-async)."
    responses["202"] = answer("Accepted", told, spooled)
    responses["204"] = {"description": "Every event is stored, and no body was asked for."}
    responses["207"] = answer("Accepted", "Some events are stored; see results.", mixed)
    return {
        "operationId": "sendEvents",
        "summary": "Send events",
        "parameters": [
            query("dry_run", ["true", "false"], "Judge the events and store none."),
            query("results", ["all", "failed"], "List every event, or those not accepted."),
            header("Idempotency-Key", 255, "The same key and body get the same answer again."),
            header("X-Partition-Key", 255, "The ordering key of events without their own."),
            header("Prefer", 100, "handling=strict or lenient, return=minimal, respond-async"),
            header("Hifi-Signature", 500, "t=SECONDS,v1=HEX, for keys that must sign."),
        ],
        "requestBody": {"required": True, "content": content},
        "responses": responses,
    }


def _post_beacon() -> Json:
    responses = problems(*KNOWN_CALLER, *_BEACON)
    responses["204"] = {"description": "Every event is stored."}
    mixed = {"request_id": REQUEST_ID, "accepted": 1, "rejected": 1, "results": []}
    responses["207"] = answer("Accepted", "Some events are stored.", mixed)
    text = {"schema": {"type": "string"}, "example": '{"id":"e-1"}'}
    key = {
        "name": "key",
        "in": "query",
        "schema": {"type": "string"},
        "description": "A key of kind browser.",
    }
    return {
        "operationId": "sendBeacon",
        "summary": "Send events from a page that closes",
        "security": [],
        "parameters": [key],
        "requestBody": {"required": True, "content": {"text/plain": text}},
        "responses": responses,
    }


def _control_paths() -> Json:
    stream, key, tenant = "Stream", "Key", "Tenant"
    stream_paths = _object_path(
        "stream",
        stream,
        (NEW_STREAM, NEW_STREAM_EXAMPLE),
        more=("stream_in_use", "unknown_stream"),
    )
    key_body, tenant_body = (NEW_KEY, NEW_KEY_EXAMPLE), (TENANT, NEW_TENANT_EXAMPLE)
    key_paths = _object_path("key", key, key_body, more=("key_in_use", "unknown_key"))
    tenant_paths = _object_path("tenant", tenant, tenant_body, more=("unknown_tenant",))
    names = {"type": "object", "required": ["streams"]}
    keys = {"type": "object", "required": ["keys"]}
    limits = {"$ref": "#/components/schemas/Limits"}
    return {
        "/v1/limits": {"get": _get("showLimits", limits)},
        "/v1/streams": {"get": _get("listStreams", names)},
        "/v1/streams/{stream}": stream_paths,
        **_destination_paths(),
        **dead_letter_paths(),
        **receipt_paths(),
        "/v1/keys": {"get": _get("listKeys", keys)},
        "/v1/keys/{key}": key_paths,
        "/v1/keys/{key}/rotate": {
            "parameters": [path("key")],
            "post": _change("rotateKey", "Key", "unknown_key"),
        },
        "/v1/keys/{key}/retire": {
            "parameters": [path("key")],
            "post": _change("retireKey", "Key", "unknown_key"),
        },
        "/v1/tenants/{tenant}": tenant_paths,
        "/openapi.json": {
            "get": {
                "operationId": "describe",
                "security": [],
                "responses": {
                    **problems("method_not_allowed"),
                    "200": {
                        "description": "This document.",
                        "content": {"application/json": {"schema": {"type": "object"}}},
                    },
                },
            }
        },
    }


def _destination_paths() -> Json:
    destination_paths = _object_path(
        "destination",
        "Destination",
        (NEW_DESTINATION, NEW_DESTINATION_EXAMPLE),
        more=("unknown_stream", "unknown_destination"),
        put=("target_forbidden", "secrets_off", "secret_changed"),
        within="stream",
    )
    destinations = {
        "type": "object",
        "required": ["destinations"],
        "properties": {
            "destinations": {
                "type": "array",
                "items": {"$ref": "#/components/schemas/Destination"},
            }
        },
    }
    return {
        "/v1/streams/{stream}/destinations": {
            "parameters": [path("stream")],
            "get": _get(
                "listDestinations",
                destinations,
                "unknown_stream",
                "stream_forbidden",
                "origin_forbidden",
            ),
        },
        "/v1/streams/{stream}/destinations/{destination}": destination_paths,
        "/v1/streams/{stream}/destinations/{destination}/resume": {
            "parameters": destination_paths["parameters"],
            "post": _change(
                "resumeDestination",
                "Destination",
                "unknown_stream",
                "stream_forbidden",
                "unknown_destination",
            ),
        },
    }


def _get(operation: str, schema: Json, *more: str) -> Json:
    content = {"application/json": {"schema": schema}}
    return {
        "operationId": operation,
        "responses": {
            **problems(*KNOWN_CALLER, *more),
            "200": {"description": "What there is.", "content": content},
        },
    }


def _change(operation: str, schema: str, *more: str) -> Json:
    found = problems(*KNOWN_CALLER, "origin_forbidden", "kafka_unavailable", *more)
    return {
        "operationId": operation,
        "responses": {**found, "200": answer(schema, "As it is now.", None)},
    }


def _object_path(
    name: str,
    schema: str,
    body: tuple[Json, Json],
    *,
    more: tuple[str, ...],
    put: tuple[str, ...] = (),
    within: str | None = None,
) -> Json:
    found = problems(*KNOWN_CALLER, "origin_forbidden", "stream_forbidden", *more)
    changing = problems(
        *KNOWN_CALLER,
        *more,
        "stream_forbidden",
        "bad_object",
        "invalid_json",
        "invalid_utf8",
        "body_too_large",
        "body_timeout",
        "overloaded",
        "kafka_unavailable",
        "origin_forbidden",
    )
    shown = answer(schema, "As it is now.", None)
    return {
        "parameters": [path(each) for each in (within, name) if each is not None],
        "get": {"operationId": f"show{schema}", "responses": {**found, "200": shown}},
        "put": {
            "operationId": f"put{schema}",
            "requestBody": {
                "content": {"application/json": {"schema": body[0], "example": body[1]}}
            },
            "responses": {**changing, **problems(*put), "200": shown, "201": shown},
        },
        "delete": {
            "operationId": f"delete{schema}",
            "responses": {**changing, "204": {"description": "It is gone."}},
        },
    }


def _accepted() -> Json:
    count = {"type": "integer", "minimum": 0}
    return {
        "type": "object",
        "required": ["request_id", "accepted", "rejected"],
        "properties": {
            "request_id": {"type": "string"},
            "accepted": count,
            "rejected": count,
            "retry": count,
            "spooled": count,
            "ack": {"const": "spool", "description": "Not in Kafka yet: on a gateway's disk."},
            "valid": count,
            "dry_run": {"const": True},
            "results": {"type": "array", "items": {"$ref": "#/components/schemas/Result"}},
        },
        "additionalProperties": False,
    }


def _problem_schema() -> Json:
    return {
        "type": "object",
        "required": ["type", "title", "status", "detail", "code", "request_id"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "code": {"enum": sorted(CATALOGUE)},
            "request_id": {"type": "string"},
            "pointer": {"type": "string"},
            "results": {"type": "array", "items": {"$ref": "#/components/schemas/Result"}},
            "read_until": {"type": "string", "format": "date-time"},
        },
    }
