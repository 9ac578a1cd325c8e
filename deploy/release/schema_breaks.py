"""Compares two JSON schemas of the API, and lists what breaks clients that know only the old one.

Senders fail if a request's schema takes less than before, and readers fail if an answer's schema
allows more. Readers must ignore unknown members, and accept unknown values of an enumeration
(docs/versions.md).
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeAlias

Json: TypeAlias = Mapping[str, Any]
_Compare: TypeAlias = Callable[[Json, Json, str], Iterator[str]]

_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_UNIONS = ("anyOf", "oneOf")
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def resolved(document: Json, node: Any) -> dict[str, Any]:
    """Return a node with what it refers to; it keeps its reference, as a name."""
    if isinstance(node, bool):
        return {} if node else {"enum": []}
    node = dict[str, Any](node)
    if "$ref" in node:
        target: Any = document
        for step in node["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        node = {**resolved(document, target), **node}
    for part in node.pop("allOf", ()):
        other = resolved(document, part)
        node = {
            **other,
            **node,
            "properties": other.get("properties", {}) | node.get("properties", {}),
            "required": [*other.get("required", ()), *node.get("required", ())],
        }
    return dict(node)


@dataclass(frozen=True, slots=True)
class SchemaComparison:
    """Compares schemas of two documents; `at` names the compared place in the sentences."""

    old: Json
    new: Json
    # The pairs of references that are being compared, because schemas may contain themselves.
    _open: set[tuple[str, str]] = field(default_factory=set)

    def of_request(self, old: Any, new: Any, at: str) -> Iterator[str]:
        """Yield a sentence for each value that a request may no longer have."""
        news = list(_alternatives(self.new, new))
        for was in _alternatives(self.old, old):
            fits = [now for now in news if _takes(_type_of(now), _type_of(was))]
            if fits:
                yield from self._nearest(self._taken, [(was, now) for now in fits], at)
            else:
                yield f"`{at}` no longer takes {_type_of(was) or 'all types'}"

    def of_answer(self, old: Any, new: Any, at: str) -> Iterator[str]:
        """Yield a sentence for each value that an answer did not have before."""
        olds = list(_alternatives(self.old, old))
        for now in _alternatives(self.new, new):
            fits = [was for was in olds if _takes(_type_of(was), _type_of(now))]
            if fits:
                yield from self._nearest(self._given, [(was, now) for was in fits], at)
            else:
                yield f"`{at}` may be {_type_of(now) or 'of any type'} now"

    def _nearest(self, compare: _Compare, pairs: list[tuple[Json, Json]], at: str) -> Iterator[str]:
        """Yield the breaks of the pair of alternatives with one name, or that differs least."""
        alike = [pair for pair in pairs if len({each.get("$ref") for each in pair}) == 1]
        yield from min((self._once(compare, *pair, at) for pair in alike or pairs), key=len)

    def _once(self, compare: _Compare, old: Json, new: Json, at: str) -> list[str]:
        pair = str(old.get("$ref")), str(new.get("$ref"))
        if pair in self._open:
            return []
        self._open.update({pair} if "$ref" in {*old, *new} else ())
        breaks = list(compare(old, new, at))
        self._open.discard(pair)
        return breaks

    def _taken(self, old: Json, new: Json, at: str) -> Iterator[str]:
        yield from chain(_values(old, new, at), _bounds(old, new, at))
        needed = set(new.get("required", ())) - set(old.get("required", ()))
        yield from (f"`{at}.{name}` is required now" for name in sorted(needed))
        there = new.get("properties", {})
        for name, member in old.get("properties", {}).items():
            if name in there:
                yield from self.of_request(member, there[name], f"{at}.{name}")
            else:
                yield f"`{at}.{name}` is gone"
        others, others_now = (each.get("additionalProperties", True) for each in (old, new))
        if others is not False:
            if others_now is False:
                yield f"`{at}` no longer takes unknown members"
            elif isinstance(others_now, Mapping):
                yield from self.of_request(others, others_now, f"{at}.*")
        if "items" in new:
            yield from self.of_request(old.get("items", True), new["items"], f"{at}[]")

    def _given(self, old: Json, new: Json, at: str) -> Iterator[str]:
        there, always = new.get("properties", {}), new.get("required", ())
        for name, member in old.get("properties", {}).items():
            if name not in there:
                yield f"`{at}.{name}` is gone"
                continue
            if name in old.get("required", ()) and name not in always:
                yield f"`{at}.{name}` may be missing now"
            yield from self.of_answer(member, there[name], f"{at}.{name}")
        for part, sign in (("additionalProperties", ".*"), ("items", "[]")):
            if isinstance(old.get(part), Mapping) and new.get(part) is not False:
                yield from self.of_answer(old[part], new.get(part, True), f"{at}{sign}")


def _alternatives(document: Json, schema: Any) -> Iterator[Json]:
    """Yield the members of a union, one for each type; a plain schema is its only member."""
    whole = resolved(document, schema)
    union = next((whole.pop(name) for name in _UNIONS if name in whole), None)
    if union is not None:
        for each in union:
            yield from ({**whole, **one} for one in _alternatives(document, each))
    elif isinstance(whole.get("type"), list):
        yield from ({**whole, "type": one} for one in whole["type"])
    else:
        yield whole


def _allowed(schema: Json) -> list[Any] | None:
    """Return the only values that a schema allows, if it lists them."""
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _type_of(schema: Json) -> str | None:
    """Return the one type of a schema's values; None if they may have any."""
    if "type" in schema:
        return str(schema["type"])
    types = {_JSON_TYPES.get(type(value), "object") for value in _allowed(schema) or ()}
    return types.pop() if len(types) == 1 else None


def _takes(wide: str | None, narrow: str | None) -> bool:
    return wide in {None, narrow} or (wide, narrow) == ("number", "integer")


def _values(old: Json, new: Json, at: str) -> Iterator[str]:
    before, now = _allowed(old), _allowed(new)
    if now is None:
        return
    if before is None:
        yield f"`{at}` takes only {_listed(now)} now"
    # A union is split by type, so values of the other types do not count.
    elif lost := [each for each in before if each not in now and _is_of(each, old)]:
        yield f"`{at}` no longer takes {_listed(lost)}"


def _is_of(value: Any, schema: Json) -> bool:
    return "type" not in schema or _takes(schema["type"], _JSON_TYPES.get(type(value), "object"))


def _listed(values: list[Any]) -> str:
    return ", ".join(json.dumps(each) for each in values) or "nothing"


def _bounds(old: Json, new: Json, at: str) -> Iterator[str]:
    for name in (*_LOWER, *_UPPER):
        if name not in new:
            continue
        sign = 1 if name in _LOWER else -1
        if name not in old or sign * new[name] > sign * old[name]:
            yield f"`{at}` has the {name} {new[name]} now, {_before(old, name)}"
    for name in ("pattern", "multipleOf", "uniqueItems"):
        if new.get(name, False) not in {False, old.get(name, False)}:
            yield f"`{at}` has the {name} {new[name]} now, {_before(old, name)}"


def _before(old: Json, name: str) -> str:
    return f"before {old[name]}" if name in old else "before none"
