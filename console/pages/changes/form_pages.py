"""Shows a form on its own page, with the command that does the same, and again after an error."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import HTMLResponse, Response

from console.page_context import PageContext
from console.page_request import PageRequest
from console.pages.changes.questions import done, same
from console.parts.layout import Page, form, render, still_page
from console.parts.markup import NOTHING, Child, Safe, fragment, tag
from shared.runtime.control_client import RefusedError

# The height of a document's field, in lines; longer documents scroll.
_LINES_MIN, _LINES_MAX = 6, 40


class NotReadError(Exception):
    """The typed text cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormPage:
    """A form with typed input, and the page around it."""

    title: str
    heading: Child
    here: str
    content: Sequence[Child]
    yes: str
    back: str
    # The command that does the same, and a further note.
    command: str
    note: Child = ""
    hidden: Mapping[str, str] = field(default_factory=dict)
    # The path to send it to; empty for the path of the page itself.
    path: str = ""
    # Another action for the typed input: its label, and the path to send it to.
    other: tuple[str, str] | None = None

    def page(self, asked: PageRequest, wrong: str = "", beside: Child = None) -> Page:
        return still_page(
            self.title,
            self.here,
            "form",
            tag("h1", self.heading),
            tag("p", wrong, class_="lead bad", role="alert") if wrong else NOTHING,
            beside,
            form(
                "post",
                self.path or asked.path,
                {"csrf": asked.around.csrf, **self.hidden},
                *(tag("div", each, class_="field") for each in self.content),
                tag("button", self.yes, type="submit", class_="act"),
                " ",
                self._other(),
                tag("a", "Cancel", href=self.back),
            ),
            tag("p", same(self.command), self.note, class_="quiet"),
            status=wrong,
        )

    def _other(self) -> Child:
        if self.other is None:
            return NOTHING
        says, path = self.other
        return fragment(tag("button", says, type="submit", formaction=path), " ")

    def again(self, asked: PageRequest, wrong: str, status: int, beside: Child = None) -> Response:
        """Show the form again with the typed input, its error, and optional further content."""
        page = self.page(asked, wrong, beside)
        return HTMLResponse(render(page, asked.around), status_code=status)


def text_field(
    label: str,
    name: str,
    value: str,
    *,
    hint: str = "",
    required: bool = False,
    size: int = 32,
    **more: str,
) -> Safe:
    typed = tag(
        "input",
        name=name,
        value=value,
        required=required,
        autocomplete="off",
        spellcheck="false",
        size=size,
        aria_describedby=f"{name}-hint" if hint else None,
        **more,
    )
    note = tag("p", hint, id=f"{name}-hint", class_="note") if hint else NOTHING
    return fragment(tag("label", label, " ", typed), note)


def check_field(label: Child, name: str, *, is_checked: bool) -> Safe:
    box = tag("input", type="checkbox", name=name, value="yes", checked=is_checked)
    return tag("label", box, tag("span", label), class_="check")


def document_field(label: str, name: str, text: str) -> Safe:
    """Return a field for a document of several lines."""
    rows = min(_LINES_MAX, max(_LINES_MIN, text.count("\n") + 2))
    # Browsers drop the first line end in a textarea.
    area = tag("textarea", "\n", text, name=name, rows=rows, cols=80, spellcheck="false")
    return tag("label", label, area)


def json_text(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, indent=2, ensure_ascii=False)


def object_of(text: str) -> dict[str, Any]:
    """Return the JSON object that somebody has typed; NotReadError if the text is not one."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotReadError(f"This is not valid JSON: {error}.") from error
    if not isinstance(parsed, dict):
        raise NotReadError("It must be a JSON object: {...}.")
    return parsed


async def write_settings(
    asked: PageRequest,
    shown: FormPage,
    what: str,
    *path: str,
    version: str,
    seen: Callable[[PageContext], bool],
    back: str,
    settings: dict[str, Any] | None = None,
    **said: str,
) -> Response:
    """Store the given settings or the typed JSON; if that fails, show the form with the error."""
    try:
        body = object_of(asked.field("settings")) if settings is None else settings
        change = asked.control.put(*path, version=version, body=body)
        return await done(asked, what, change, seen=seen, back=back, **said)
    except NotReadError as error:
        return shown.again(asked, str(error), 422)
    except RefusedError as refusal:
        return shown.again(asked, refusal.detail, refusal.status)
