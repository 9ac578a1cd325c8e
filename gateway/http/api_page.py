"""Writes the OpenAPI document as one HTML page at /docs, without scripts or other resources."""

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gateway.http.openapi_events import Json

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem}
:root{color-scheme:light dark}
table{border-collapse:collapse;width:100%}
td,th{text-align:left;vertical-align:top;padding:.2rem .6rem .2rem 0;border-bottom:1px solid #8886}
pre{overflow:auto;padding:.6rem;border:1px solid #8886}
h2{margin-top:2.5rem;border-top:1px solid #8886;padding-top:1rem;overflow-wrap:anywhere}
ol{columns:20rem}
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
# Even if the document contained a tenant's text, no browser would run or load it.
HEADERS = {
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}
_JSON = "application/json"
_KINDS = "anyOf", "oneOf"


class Section(NamedTuple):
    title: str
    id: str
    markup: str


def api_page(document: Json) -> str:
    """Return the whole page."""
    listed = list(sections(document))
    links = "".join(f'<li><a href="#{each.id}">{_text(each.title)}</a>' for each in listed)
    parts = "".join(f'<h2 id="{each.id}">{_text(each.title)}</h2>{each.markup}' for each in listed)
    info = document["info"]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{_text(info['title'])}</title><style>{_STYLE}</style>"
        f"<main><h1>{_text(info['title'])}</h1><p>{_text(info['description'])}</p>"
        '<p>For programs: <a href="/openapi.json">openapi.json</a>.</p>'
        f"<nav aria-label='Paths and objects'><ol>{links}</ol></nav>{parts}</main></html>"
    )


def sections(document: Json) -> Iterator[Section]:
    """Yield a section for each path and method, then for each object that they use."""
    for path, operations in sorted(document["paths"].items()):
        for method, operation in operations.items():
            title = f"{method.upper()} {path}"
            yield Section(title, operation["operationId"], "".join(_operation(operation)))
    for name, schema in sorted(document["components"]["schemas"].items()):
        # FastAPI adds these schemas; none of our answers uses them.
        if not name.endswith("ValidationError"):
            intro = _paragraph(schema.get("description"))
            yield Section(name, _anchor(name), intro + _members(schema))


def _operation(operation: Json) -> Iterator[str]:
    yield _paragraph(operation.get("description"))
    given = [
        (parameter["name"], f"{parameter['in']}, {_kind(parameter['schema'])}", _note(parameter))
        for parameter in operation.get("parameters", ())
    ]
    if given:
        yield _table(("parameter", "type", ""), given)
    for content_type, body in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Takes <code>{_text(content_type)}</code>: {_kind(body.get('schema', {}))}</p>"
        yield _members(body.get("schema", {})) + _example(body)
    answers = operation["responses"].items()
    yield _table(
        ("status", "meaning", "codes"),
        [(status, _text(answer["description"]), _codes(answer)) for status, answer in answers],
    )
    for status, answer in answers:
        body = answer.get("content", {}).get(_JSON)
        if body is not None:
            yield f"<p>The body of a {status}: {_kind(body['schema'])}</p>{_example(body)}"


def _members(schema: Json) -> str:
    members = schema.get("properties", {})
    if not members:
        return f"<p>{_kind(schema)}</p>" if "$ref" not in schema else ""
    needed = schema.get("required", ())
    return _table(
        ("member", "type", ""),
        [
            (_text(name), _kind(member), _note({**member, "required": name in needed}))
            for name, member in members.items()
        ],
    )


def _kind(schema: Json) -> str:
    """Describe a schema's values in a few words, with links to objects."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#{_anchor(name)}">{_text(name)}</a>'
    for word in _KINDS:
        if word in schema:
            return " or ".join(map(_kind, schema[word]))
    if "const" in schema or "enum" in schema:
        return " or ".join(_code(value) for value in schema.get("enum", [schema.get("const")]))
    if "items" in schema:
        return f"a list of: {_kind(schema['items'])}"
    kind = schema.get("type", "any value")
    named = kind if isinstance(kind, str) else " or ".join(kind)
    return _text(f"{named} ({schema['format']})" if "format" in schema else named)


def _note(value: Json) -> str:
    schema = value.get("schema", value)
    notes = [_text(value["description"])] if "description" in value else []
    notes += ["required"] if value.get("required") is True else []
    limits = {
        "default": "default",
        "minimum": "at least",
        "maximum": "at most",
        "pattern": "matches",
    }
    notes += [
        f"{says} {_code(schema[name])}"
        for name, says in limits.items()
        if schema.get(name) is not None
    ]
    return "; ".join(notes)


def _codes(answer: Json) -> str:
    codes = [
        code
        for content in answer.get("content", {}).values()
        for code in content.get("examples", ())
    ]
    return ", ".join(f"<code>{_text(code)}</code>" for code in codes)


def _example(body: Json) -> str:
    if "example" not in body:
        return ""
    return f'<pre tabindex="0">{_text(json.dumps(body["example"], indent=2))}</pre>'


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{each}</th>" if each else "<td></td>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{each}</td>' for each in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _paragraph(text: str | None) -> str:
    return f"<p>{_text(' '.join(text.split()))}</p>" if text else ""


def _anchor(name: str) -> str:
    return f"object-{name.lower()}"


def _code(value: object) -> str:
    return f"<code>{_text(json.dumps(value))}</code>"


def _text(text: str) -> str:
    return html.escape(text)
