"""Lists the differences between two OpenAPI documents that break a client of the older one."""

from collections.abc import Iterator
from typing import Any

from deploy.release.schema_breaks import Json, SchemaComparison, resolved

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")


def api_breaks(old: Json, new: Json) -> list[str]:
    """Return a sentence for each break: something gone, newly required, or narrowed."""
    return [*_of_paths(old, new, SchemaComparison(old, new))]


def _of_paths(old: Json, new: Json, schemas: SchemaComparison) -> Iterator[str]:
    for path, item in old["paths"].items():
        there = new["paths"].get(path)
        if there is None:
            yield f"{path} is gone"
            continue
        for method in (each for each in _METHODS if each in item):
            place = f"{method.upper()} {path}"
            if method not in there:
                yield f"{place} is gone"
                continue
            was, now = ({**each, **each[method]} for each in (item, there))
            # An operation's parameters add to those of its path.
            was["parameters"] = _parameters(old, item, item[method])
            now["parameters"] = _parameters(new, there, there[method])
            yield from (f"{place}: {what}" for what in _of_operation(was, now, schemas))


def _parameters(document: Json, *places: Json) -> dict[tuple[str, str], Json]:
    """Return parameters by their place and name."""
    listed = (resolved(document, each) for place in places for each in place.get("parameters", ()))
    return {(each["in"], _spelt(each)): each for each in listed}


def _spelt(parameter: Json) -> str:
    name = str(parameter["name"])
    return name.lower() if parameter["in"] == "header" else name


def _of_operation(old: Json, new: Json, schemas: SchemaComparison) -> Iterator[str]:
    yield from _of_parameters(old["parameters"], new["parameters"], schemas)
    yield from _of_body(old, new, schemas)
    if _is_open(old, schemas.old) and not _is_open(new, schemas.new):
        yield "it requires a key now"
    for status, was in old["responses"].items():
        if status in new["responses"]:
            answers = resolved(schemas.old, was), resolved(schemas.new, new["responses"][status])
            yield from _of_answer(status, *answers, schemas)
        else:
            yield f"the answer {status} is gone"


def _of_parameters(
    old: dict[tuple[str, str], Json], new: dict[tuple[str, str], Json], schemas: SchemaComparison
) -> Iterator[str]:
    for (place, name), was in old.items():
        now = new.get((place, name))
        if now is None:
            yield f"the {place} parameter `{name}` is gone"
        else:
            at = f"{place}.{name}"
            yield from schemas.of_request(was.get("schema", True), now.get("schema", True), at)
    for (place, name), now in new.items():
        if now.get("required") and not old.get((place, name), {}).get("required"):
            yield f"the {place} parameter `{name}` is required now"


def _of_body(old: Json, new: Json, schemas: SchemaComparison) -> Iterator[str]:
    was = resolved(schemas.old, old.get("requestBody", {}))
    now = resolved(schemas.new, new.get("requestBody", {}))
    if now.get("required") and not was.get("required"):
        yield "a body is required now"
    for media, content in was.get("content", {}).items():
        if media not in now.get("content", {}):
            yield f"it no longer takes a body of the type {media}"
        else:
            there = now["content"][media]
            yield from schemas.of_request(_schema(content), _schema(there), "body")


def _of_answer(status: str, old: Json, new: Json, schemas: SchemaComparison) -> Iterator[str]:
    for media, content in old.get("content", {}).items():
        if media not in new.get("content", {}):
            yield f"the answer {status} is no longer {media}"
        else:
            there = new["content"][media]
            yield from schemas.of_answer(_schema(content), _schema(there), status)


def _schema(content: Json) -> Any:
    return content.get("schema", True)


def _is_open(operation: Json, document: Json) -> bool:
    """Return whether an operation works without a key."""
    needed = operation.get("security", document.get("security", []))
    return not needed or {} in needed
