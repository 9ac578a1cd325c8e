"""Reads typed documents of pipelines, and shows in which line one has an error."""

import json
from typing import Any

from starlette.responses import Response

from console.page_request import PageRequest
from console.page_threads import InThread
from console.pages.changes.form_pages import FormPage, json_text
from console.parts.markup import Child, tag
from shared.runtime.control_client import RefusedError
from shared.runtime.files.document_text import Document, document_of
from shared.runtime.setup_error import UsageError

PIPELINES = "/pipelines"
# The names of pipelines have no colon, so these paths belong to none.
NEW, CHANGE, TRY = (f"{PIPELINES}:{what}" for what in ("new", "change", "try"))
# Fields that the gateway adds to the document.
_NOT_TYPED = {"state", "tenant", "generation"}
# The parser that reports lines takes half a second of a core for a document of this size.
_WITH_LINES_BYTES_MAX = 65_536
# Lines to show around a wrong one, and characters of each.
_AROUND, _LINE_CHARS_MAX = 2, 200


def typed_document(asked: PageRequest) -> str:
    # Not stripped: blanks have a meaning in YAML.
    return asked.fields.get("document", "").replace("\r\n", "\n")


async def read_document(text: str, in_thread: InThread) -> Document:
    """Return the parsed text; UsageError, with the line, if it is not a document."""
    raw = text.encode(errors="replace")
    if len(raw) <= _WITH_LINES_BYTES_MAX:
        return await in_thread(document_of, raw, "document")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        wrong = f"A document of more than {_WITH_LINES_BYTES_MAX:,} bytes must be JSON: {error}."
        raise UsageError(wrong) from error
    if not isinstance(fields, dict):
        raise UsageError("It must be an object: {...}.")
    return Document("document", fields, {})


def refused(
    asked: PageRequest, shown: FormPage, refusal: RefusedError, document: Document, text: str
) -> Response:
    wrong = placed(document, refusal.pointer, refusal.detail)
    return shown.again(asked, wrong, refusal.status, around(document, refusal.pointer, text))


def placed(document: Document, pointer: str, says: str) -> str:
    """Return the message, preceded by the line and the part of the document that it is about."""
    line, part = document.line(pointer) if pointer else None, ".".join(pointer.split("/")[1:])
    where = [] if line is None else [f"line {line}"]
    where += [part] if part and not says.startswith(part) else []
    return ": ".join([*where, says])


def around(document: Document, pointer: str, text: str) -> Child:
    """Show the line with the error among its neighbours; nothing if the line is unknown."""
    wrong = document.line(pointer) if pointer else None
    if wrong is None:
        return None
    lines = text.split("\n")
    first = max(1, wrong - _AROUND)
    shown = [
        f"{'→' if number == wrong else ' '}{number:5}  {lines[number - 1][:_LINE_CHARS_MAX]}"
        for number in range(first, min(len(lines), wrong + _AROUND) + 1)
    ]
    return tag("pre", "\n".join(shown), tabindex="0", role="region", aria_label="Line of the error")


def text_of(shown: dict[str, Any]) -> str:
    """Return the gateway's document as text, without fields at their defaults."""
    fields = {name: shown[name] for name in shown if name not in _NOT_TYPED}
    try:
        known = Document("", fields, {}).pipeline().known_fields(with_defaults=False)
    except UsageError:
        # The document is from a newer release and has unknown fields.
        return json_text(fields)
    return json_text(_said_in(fields, known))


def _said_in(shown: Any, said: Any) -> Any:
    """Return `shown` without the members that `said` does not have."""
    if isinstance(shown, dict) and isinstance(said, dict):
        return {name: _said_in(shown[name], said[name]) for name in shown if name in said}
    if isinstance(shown, list) and isinstance(said, list) and len(shown) == len(said):
        return [_said_in(*each) for each in zip(shown, said, strict=True)]
    return shown
