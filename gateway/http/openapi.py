"""Describes the API: FastAPI describes its own routes and models, and this module adds the rest.

It adds the routes of events and rows (served without a framework), the problems of each route, the
bodies that our own reader takes, and an example for every answer.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from fastapi.openapi.utils import get_openapi
from pydantic.alias_generators import to_camel
from starlette.routing import BaseRoute

from gateway.http.openapi_events import EVENT_SCHEMAS, TEXT, Json, event_paths
from gateway.http.openapi_rows import ROW_SCHEMAS, row_paths
from gateway.problems import CATALOGUE, PROBLEMS_MEMBER, Problem

_REQUEST_ID = "01939f2e-7b1c-7cc3-98c4-dc0c0c07398f"
_PROBLEM: Json = {"$ref": "#/components/schemas/Problem"}
# Problems that any path may answer with: a head that is invalid, slow or too large, and bugs.
_EVERYWHERE = (
    *("invalid_http", "bad_header", "head_timeout", "head_too_large", "unknown_transfer_coding"),
    "internal_error",
)
# Objects whose PUT takes `dry_run`.
_REHEARSED = ("{stream}", "{destination}", "{table}", "{channel}", "{pipeline}", "{tenant}")
# The tag of an operation, by a word in its path.
_TAGS = {
    "events": "events",
    "beacon": "events",
    "receipts": "events",
    "streams": "streams",
    "destinations": "destinations",
    "dead-letters": "dead letters",
    "replays": "replays",
    "statements": "proof",
    "ids": "proof",
    "pipelines": "pipelines",
    "tables": "tables",
    "channels": "channels",
    "keys": "keys",
    "links": "keys",
    "secrets": "keys",
    "tenants": "tenants",
    "limits": "tenants",
    "changes": "changes",
    "openapi.json": "about",
}
_DRY_RUN: Json = {
    "dry_run": {
        "type": "boolean",
        "default": False,
        "description": "Check the request, answer with the resulting object, and store nothing.",
    }
}
_USED: Json = {"type": ["integer", "null"], "readOnly": True}
_NOT_OPEN = (
    *("unauthenticated", "scope_missing", "origin_forbidden"),
    *("proxied_without_keys", "misdirected"),
)
_OF_BODIES = (
    *("bad_object", "invalid_json", "invalid_utf8"),
    *("body_too_large", "body_timeout", "overloaded"),
)
_PROBLEM_SCHEMA: Json = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "request_id"],
    "properties": {
        **dict.fromkeys(("type", "title", "detail", "request_id", "pointer", "etag"), TEXT),
        "status": {"type": "integer"},
        "code": {"enum": sorted(CATALOGUE)},
        "results": {"type": "array", "items": {"$ref": "#/components/schemas/Result"}},
        "changed": {"type": "array", "items": TEXT, "description": "Settings that differ."},
        "as_of": {"$ref": "#/components/schemas/AsOf"},
        "known": {"type": "object", "description": "The newest value here, which is too old."},
        "read_until": {"type": "string", "format": "date-time"},
    },
}
_STATE_SCHEMA: Json = {
    "type": "object",
    "description": "Whether the pipeline runs with this document; if not, why and where.",
    "readOnly": True,
    "properties": {
        "standing": {"enum": ["checking", "running", "refused"]},
        "why": TEXT,
        "pointer": TEXT,
    },
}


def document(routes: Iterable[BaseRoute], *, asks_for_keys: bool) -> Json:
    """Return the whole document."""
    whole = get_openapi(
        title="Hifi gateway",
        version="1",
        description="Takes events over HTTP. A 2xx means that Kafka has reported every accepted"
        " event stored; `results` lists the other events, with reasons.",
        routes=list(routes),
        servers=[{"url": "/"}],
        tags=[{"name": name} for name in dict.fromkeys(_TAGS.values())],
        license_info={"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        separate_input_output_schemas=False,
    )
    for path, operations in (event_paths() | row_paths()).items():
        whole["paths"].setdefault(path, {}).update(operations)
    schemas = whole["components"]["schemas"]
    schemas |= EVENT_SCHEMAS | ROW_SCHEMAS | {"Problem": _PROBLEM_SCHEMA}
    _show_as_views_do(schemas)
    for path, operations in whole["paths"].items():
        for method, operation in operations.items():
            operation["operationId"] = to_camel(operation["summary"].replace(" ", "_"))
            operation["tags"] = [_tag_of(path)]
            _leave_out_defaults(operation)
            _add_body(path, method, operation, schemas)
            _add_problems(path, operation)
            _add_examples(operation, schemas)
    whole["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    whole["security"] = [{"key": []}] if asks_for_keys else []
    return whole


def _tag_of(path: str) -> str:
    """Return the tag of the last word in the path that has one."""
    words = re.findall(r"/([a-z.-]+)", path)
    return next((_TAGS[word] for word in reversed(words) if word in _TAGS), "streams")


def _leave_out_defaults(operation: Json) -> None:
    """Remove defaults that are objects of our code: no client could send them as text."""
    for parameter in operation.get("parameters", ()):
        schema = parameter["schema"]
        if schema.get("type") == "string" and not isinstance(schema.get("default", ""), str):
            del schema["default"]


def _show_as_views_do(schemas: Json) -> None:
    """Describe the API's form of objects that are stored in another form."""
    del schemas["Stream"]["properties"]["json_schema"]
    schemas["Stream"]["properties"]["schema"] = {
        "type": ["object", "boolean", "null"],
        "default": None,
    }
    key = schemas["ApiKey"]
    del key["properties"]["secrets"], schemas["Secret"]
    key["required"].remove("secrets")
    key["properties"] |= {
        "live_texts": {"type": "integer", "minimum": 1, "maximum": 2, "readOnly": True},
        "last_used_at_ms": {**_USED, "description": "To the minute; null: not used within a year."},
        "texts_used_at_ms": {
            "type": "array",
            "items": _USED,
            "description": "When each text of the key was last used, oldest text first.",
            "readOnly": True,
        },
        "key": {"type": "string", "description": "The key's text, shown once.", "readOnly": True},
    }
    warning = {
        "type": "string",
        "description": "A problem that does not prevent the PUT, such as an unknown host name.",
        "readOnly": True,
    }
    schemas["Destination"]["properties"]["warning"] = warning
    schemas["Pipeline"]["properties"]["state"] = _STATE_SCHEMA
    for kind in ("Basic", "Bearer", "OAuth2"):
        schemas[kind]["required"].append("kind")


def _add_body(path: str, method: str, operation: Json, schemas: Json) -> None:
    """Describe a PUT's body: the object in its answer, without the members in the path."""
    if method != "put" or "requestBody" in operation:
        return
    answer = operation["responses"]["200"]["content"]["application/json"]["schema"]
    shown = _resolved(answer, schemas)
    named = {"name", "id"} | ({"stream"} if "{destination}" in path else set())
    schema = {
        "type": "object",
        "properties": {
            name: setting
            for name, setting in shown["properties"].items()
            if name not in named and not setting.get("readOnly")
        }
        | (_DRY_RUN if path.endswith(_REHEARSED) else {}),
        "required": [name for name in shown.get("required", ()) if name not in named],
        "additionalProperties": False,
    }
    operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}


def _add_problems(path: str, operation: Json) -> None:
    codes = [*_EVERYWHERE, "method_not_allowed", *operation.pop(PROBLEMS_MEMBER, ())]
    if path != "/openapi.json":
        codes += _NOT_OPEN
    for name in ("stream", "destination", "pipeline", "table", "channel", "key", "tenant"):
        codes += [f"unknown_{name}"] if f"{{{name}}}" in path else []
    codes += ["stream_forbidden"] if "{stream}" in path else []
    # The routes that take events list all of their problems themselves.
    is_object = "requestBody" in operation and not path.endswith(("/events", "/beacon"))
    codes += _OF_BODIES if is_object else ()
    names = {parameter["name"] for parameter in operation.get("parameters", ())}
    codes += ["changed_meanwhile", "kafka_unavailable"] if "if-match" in names else []
    responses = operation["responses"]
    # FastAPI adds this answer; we never send it.
    if "HTTPValidationError" in str(responses.get("422")):
        del responses["422"]
    for code in codes:
        kind = CATALOGUE[code]
        content: Json = {"schema": _PROBLEM, "examples": {}}
        response = responses.setdefault(
            str(kind.status),
            {"description": kind.title, "content": {"application/problem+json": content}},
        )
        example = msgspec.json.decode(Problem(code, f"{kind.title}.").to_json(_REQUEST_ID))
        response["content"]["application/problem+json"]["examples"][code] = {"value": example}


def _add_examples(operation: Json, schemas: Json) -> None:
    for body in (operation.get("requestBody", {}), *operation["responses"].values()):
        content = body.get("content", {}).get("application/json")
        if content is not None and "example" not in content:
            content["example"] = _sample(content["schema"], schemas)


def _resolved(schema: Json, schemas: Json) -> Json:
    resolved: Json = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return resolved


def _sample(schema: Json, schemas: Json) -> Any:  # noqa: PLR0911 - one for each kind of schema
    """Return an example value: the schema's default or example, or the first allowed value."""
    schema = _resolved(schema, schemas)
    for name in ("default", "const"):
        if name in schema:
            return schema[name]
    for name in ("examples", "enum"):
        if name in schema:
            return schema[name][0]
    if kinds := schema.get("anyOf", schema.get("oneOf")):
        return _sample(kinds[0], schemas)
    match schema.get("type"):
        case "object":
            return {
                name: _sample(member, schemas)
                for name, member in schema.get("properties", {}).items()
                if name in schema.get("required", ()) or "default" in member
            }
        case "array":
            return [_sample(schema["items"], schemas)]
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case _:
            return "text"
