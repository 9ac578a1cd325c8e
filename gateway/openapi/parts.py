"""Decides what the descriptions of all paths have in common: problems, answers, parameters."""

from collections.abc import Mapping
from typing import Any

from gateway.problems import CATALOGUE

Json = dict[str, Any]

REQUEST_ID = "01939f2e-7b1c-7cc3-98c4-dc0c0c07398f"
TEXT = {"type": "string"}
TIME = {"type": "string", "format": "date-time"}
COUNT = {"type": "integer", "minimum": 0}
# Where a record lies: its Kafka partition and its offset.
PLACE = {"type": "string", "pattern": "^[0-9]{1,18}:[0-9]{1,18}$"}
_NAME = {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,99}$"}
_REF_PROBLEM = {"$ref": "#/components/schemas/Problem"}
# What can happen on every path: a head that is no HTTP, too slow or too large, and bugs.
_EVERYWHERE = ("invalid_http", "head_timeout", "head_too_large", "internal_error")
KNOWN_CALLER = ("unauthenticated", "scope_missing", "method_not_allowed")


def problems(*codes: str) -> Json:
    """The responses of so many problems, by status, each with its example."""
    responses: Json = {}
    for code in (*codes, *_EVERYWHERE):
        kind = CATALOGUE[code]
        response = responses.setdefault(
            str(kind.status),
            {
                "description": kind.title,
                "content": {"application/problem+json": {"schema": _REF_PROBLEM, "examples": {}}},
            },
        )
        example = {
            "type": f"urn:hifi:problem:{code}",
            "title": kind.title,
            "status": kind.status,
            "detail": f"{kind.title}.",
            "code": code,
            "request_id": REQUEST_ID,
        }
        response["content"]["application/problem+json"]["examples"][code] = {"value": example}
    return responses


def answer(schema: str, description: str, example: Json | None) -> Json:
    content: Json = {"schema": {"$ref": f"#/components/schemas/{schema}"}}
    if example is not None:
        content["example"] = example
    return {"description": description, "content": {"application/json": content}}


def path(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": _NAME}


def query(name: str, values: list[str], description: str) -> Json:
    schema = {"type": "string", "enum": values}
    return {"name": name, "in": "query", "schema": schema, "description": description}


def queries(schemas: Mapping[str, Json]) -> list[Json]:
    """Parameters whose names say enough."""
    return [{"name": name, "in": "query", "schema": schema} for name, schema in schemas.items()]


def header(name: str, length_max: int, description: str) -> Json:
    schema = {"type": "string", "maxLength": length_max}
    return {"name": name, "in": "header", "schema": schema, "description": description}
