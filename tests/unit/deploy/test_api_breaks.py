"""A change of the OpenAPI document that breaks a client is found, and a harmless one is not."""

from copy import deepcopy
from typing import Any

import pytest

from deploy.release.api_breaks import api_breaks

PUT = "/v1/streams/{stream}"
OLD: dict[str, Any] = {
    "security": [],
    "paths": {
        PUT: {
            "put": {
                "parameters": [
                    {"in": "query", "name": "limit", "schema": {"type": "integer", "maximum": 100}},
                    {"in": "header", "name": "If-Match", "schema": {"type": "string"}},
                ],
                "requestBody": {
                    "content": {
                        "application/json": {"schema": {"$ref": "#/components/schemas/Stream"}}
                    }
                },
                "responses": {
                    "200": {
                        "content": {
                            "application/json": {"schema": {"$ref": "#/components/schemas/Stream"}}
                        }
                    },
                    "404": {"content": {"application/problem+json": {"schema": True}}},
                },
            },
            "get": {"responses": {"200": {}}},
        },
        "/v1/limits": {"get": {"responses": {"200": {}}}},
    },
    "components": {
        "schemas": {
            "Stream": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "minLength": 1, "maxLength": 80},
                    "kind": {"enum": ["open", "keyed"]},
                    "count": {"type": ["integer", "null"], "minimum": 1},
                    "share": {"type": "number"},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "tiers": {"type": "array", "items": {"$ref": "#/components/schemas/Tier"}},
                    "auth": {
                        "oneOf": [
                            {"$ref": "#/components/schemas/Basic"},
                            {"$ref": "#/components/schemas/Bearer"},
                        ]
                    },
                    "inner": {"anyOf": [{"$ref": "#/components/schemas/Stream"}, {"type": "null"}]},
                },
            },
            "Tier": {"type": "object", "properties": {"delay_s": {"type": "number"}}},
            "Basic": {
                "type": "object",
                "required": ["kind"],
                "properties": {"kind": {"const": "basic"}, "user": {"type": "string"}},
            },
            "Bearer": {
                "type": "object",
                "required": ["kind"],
                "properties": {"kind": {"const": "bearer"}, "token": {"type": "string"}},
            },
        }
    },
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the old document with another value at a path; None removes what is there."""
    new = deepcopy(OLD)
    *steps, last = path.split(" ")
    node: Any = new
    for step in steps:
        node = node[int(step)] if isinstance(node, list) else node[step]
    place = int(last) if isinstance(node, list) else last
    if value is None:
        del node[place]
    elif isinstance(node, list) and place == len(node):
        node.append(value)
    else:
        node[place] = value
    return new


def of_both(text: str) -> list[str]:
    """Return the breaks of a schema that the request's body and the answer share."""
    return [f"PUT {PUT}: `{place}{text}" for place in ("body", "200")]


OPERATION = f"paths {PUT} put"
STREAM = "components schemas Stream"
MEMBERS = f"{STREAM} properties"
BODY = f"PUT {PUT}: `body"
ANSWER = f"PUT {PUT}: `200"
JSON = "content application/json"
NEEDED = {"in": "query", "name": "dry", "required": True, "schema": {"type": "boolean"}}
BREAKS: list[tuple[str, Any, list[str]]] = [
    ("paths /v1/limits", None, ["/v1/limits is gone"]),
    (f"paths {PUT} get", None, [f"GET {PUT} is gone"]),
    (f"{OPERATION} parameters 0", None, [f"PUT {PUT}: the query parameter `limit` is gone"]),
    (
        f"{OPERATION} parameters 2",
        NEEDED,
        [f"PUT {PUT}: the query parameter `dry` is required now"],
    ),
    (
        f"{OPERATION} parameters 0 required",
        True,
        [f"PUT {PUT}: the query parameter `limit` is required now"],
    ),
    (
        f"{OPERATION} parameters 0 schema maximum",
        50,
        [f"PUT {PUT}: `query.limit` has the maximum 50 now, before 100"],
    ),
    (
        f"{OPERATION} parameters 0 schema minimum",
        1,
        [f"PUT {PUT}: `query.limit` has the minimum 1 now, before none"],
    ),
    (
        f"{OPERATION} parameters 1 schema pattern",
        "^[0-9]+$",
        [f"PUT {PUT}: `header.if-match` has the pattern ^[0-9]+$ now, before none"],
    ),
    (f"{OPERATION} requestBody required", True, [f"PUT {PUT}: a body is required now"]),
    (
        f"{OPERATION} requestBody {JSON}",
        None,
        [f"PUT {PUT}: it no longer takes a body of the type application/json"],
    ),
    (f"{OPERATION} responses 404", None, [f"PUT {PUT}: the answer 404 is gone"]),
    (
        f"{OPERATION} responses 200 {JSON}",
        None,
        [f"PUT {PUT}: the answer 200 is no longer application/json"],
    ),
    (
        "security",
        [{"key": []}],
        [
            f"{each}: it requires a key now"
            for each in (f"PUT {PUT}", f"GET {PUT}", "GET /v1/limits")
        ],
    ),
    (f"{MEMBERS} share", None, of_both(".share` is gone")),
    (f"{STREAM} required", ["name", "kind"], [f"{BODY}.kind` is required now"]),
    (f"{STREAM} required", [], [f"{ANSWER}.name` may be missing now"]),
    (f"{STREAM} additionalProperties", False, [f"{BODY}` no longer takes unknown members"]),
    (f"{MEMBERS} kind enum", ["open"], [f'{BODY}.kind` no longer takes "keyed"']),
    (f"{MEMBERS} name enum", ["a"], [f'{BODY}.name` takes only "a" now']),
    (f"{MEMBERS} name maxLength", 40, [f"{BODY}.name` has the maxLength 40 now, before 80"]),
    (f"{MEMBERS} name minLength", 2, [f"{BODY}.name` has the minLength 2 now, before 1"]),
    (f"{MEMBERS} count type", "integer", [f"{BODY}.count` no longer takes null"]),
    (f"{MEMBERS} count type", ["number", "null"], [f"{ANSWER}.count` may be number now"]),
    (f"{MEMBERS} share type", "integer", [f"{BODY}.share` no longer takes number"]),
    (f"{MEMBERS} share type", ["number", "null"], [f"{ANSWER}.share` may be null now"]),
    (f"{MEMBERS} share", {}, [f"{ANSWER}.share` may be of any type now"]),
    (
        f"{MEMBERS} labels additionalProperties",
        False,
        [f"{BODY}.labels` no longer takes unknown members"],
    ),
    (
        f"{MEMBERS} labels additionalProperties type",
        "integer",
        [f"{BODY}.labels.*` no longer takes string", f"{ANSWER}.labels.*` may be integer now"],
    ),
    ("components schemas Tier properties delay_s", None, of_both(".tiers[].delay_s` is gone")),
    (
        f"{MEMBERS} auth",
        {"$ref": "#/components/schemas/Bearer"},
        [f'{BODY}.auth.kind` no longer takes "basic"', f"{BODY}.auth.user` is gone"],
    ),
    ("components schemas Bearer properties token", None, of_both(".auth.token` is gone")),
]
HARMLESS = [
    ("paths /v1/more", {"get": {"responses": {}}}),
    (f"{OPERATION} parameters 2", {"in": "query", "name": "dry", "schema": {"type": "boolean"}}),
    (f"{OPERATION} parameters 1 name", "if-match"),
    (f"{OPERATION} parameters 0 schema maximum", 200),
    (f"{OPERATION} parameters 0 schema maximum", None),
    (f"{OPERATION} responses 409", {}),
    ("security", [{"key": []}, {}]),
    (f"{MEMBERS} more", {"type": "string"}),
    (f"{MEMBERS} name description", "Its name."),
    (f"{MEMBERS} kind enum", ["open", "keyed", "spread"]),
    (
        f"{MEMBERS} tiers items",
        {"allOf": [{"$ref": "#/components/schemas/Tier"}], "description": "A tier."},
    ),
    ("components schemas Tier required", []),
]


@pytest.mark.parametrize(("path", "value", "expected"), BREAKS)
def test_a_break_is_named_with_its_place(path: str, value: Any, expected: list[str]) -> None:
    assert sorted(api_breaks(OLD, changed(path, value))) == sorted(expected)


@pytest.mark.parametrize(("path", "value"), HARMLESS)
def test_a_harmless_change_is_none(path: str, value: Any) -> None:
    assert api_breaks(OLD, changed(path, value)) == []


def test_a_document_does_not_break_itself() -> None:
    assert api_breaks(OLD, deepcopy(OLD)) == []


def test_another_form_of_the_same_union_is_harmless() -> None:
    kinds = [{"type": "integer", "minimum": 1}, {"type": "null"}]
    assert api_breaks(OLD, changed(f"{MEMBERS} count", {"anyOf": kinds})) == []


def test_a_schema_that_newly_contains_itself_ends() -> None:
    new = changed(f"{MEMBERS} labels additionalProperties", {"$ref": "#/components/schemas/Stream"})
    assert api_breaks(OLD, new) == [
        f"{BODY}.labels.*` no longer takes string",
        f"{ANSWER}.labels.*` may be object now",
    ]
