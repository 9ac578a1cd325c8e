"""Tries a pipeline on pasted events, or on the newest events of its stream.

A document that is still being typed can be tried, too. A trial writes and stores nothing.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from starlette.exceptions import HTTPException
from starlette.responses import Response

from console.forms import DOCUMENT_BYTES_MAX
from console.page_request import PageRequest
from console.pages.changes.form_pages import (
    FormPage,
    NotReadError,
    document_field,
    text_field,
)
from console.pages.changes.pipeline_documents import (
    CHANGE,
    NEW,
    PIPELINES,
    TRY,
    read_document,
    refused,
    text_of,
    typed_document,
)
from console.pages.changes.questions import ChangeByForm
from console.parts.layout import Page
from console.parts.markup import NOTHING, Child, Safe, fragment, tag
from console.parts.pieces import code, section, table
from shared import wording
from shared.runtime.control_client import RefusedError
from shared.runtime.setup_error import UsageError

log = structlog.get_logger()

_NEWEST = "10"
_SHOWN_CHARS = 400
# The names of an event's outcomes in the API, and on the page.
_OUTCOMES = {
    "passed": "passed on",
    "filtered": "dropped",
    "dead": "dead letter",
    "late": "too late for its window",
}


async def try_page(asked: PageRequest) -> Page:
    name = asked.pipeline.name
    shown, version = await asked.control.seen("pipelines", name)
    return _form(asked, text_of(shown), name, version).page(asked)


async def try_out(asked: PageRequest) -> Page | Response:
    """Show the outcome of a trial, or the form again with the error."""
    text, name = typed_document(asked), asked.field("pipeline")
    shown = _form(asked, text, name, asked.field("version"))
    try:
        document = await read_document(text, asked.in_thread)
        events = await asked.in_thread(events_of, asked.fields.get("events", ""))
    except (UsageError, NotReadError) as error:
        return shown.again(asked, str(error), 422)
    name = name or str(document.fields.get("name") or "")
    newest = asked.number("newest") if asked.field("newest") else int(_NEWEST)
    if not name or newest is None:
        wrong = "name: required." if not name else "Newest events: enter a number, 1 to 100."
        return shown.again(asked, wrong, 422)
    # Logged, as the page may show the content of events.
    log.info("pipeline.tried", key_id=asked.viewer.key_id, pipeline=name)
    what = {"events": events} if events else {"newest": newest}
    try:
        with asked.sources.trials.turn(asked.viewer.tenant or ""):
            outcome = await asked.control.try_out(name, document=document.fields, **what)
    except RefusedError as refusal:
        return refused(asked, shown, refusal, document, text)
    except HTTPException as busy:
        return shown.again(asked, busy.detail, busy.status_code)
    return shown.page(asked, beside=_found(outcome))


def events_of(text: str) -> list[Any]:
    """Read one event, a list of events, or one event in each line; else NotReadError."""
    if not text.strip():
        return []
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return [
            _event(line, number) for number, line in enumerate(text.splitlines(), 1) if line.strip()
        ]
    return read if isinstance(read, list) else [read]


def _event(line: str, nth: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise NotReadError(f"Events, line {nth}: not valid JSON: {error}.") from error


def _form(asked: PageRequest, text: str, name: str, version: str) -> FormPage:
    events, newest = asked.fields.get("events", ""), asked.field("newest") or _NEWEST
    is_there = bool(name and version)
    return FormPage(
        title="Try a pipeline",
        heading=fragment("Try ", code(name)) if name else "Try a pipeline",
        here=PIPELINES,
        content=(
            document_field("Document, YAML or JSON", "document", text),
            document_field("Events: one, a list, or one per line. Leave empty for the newest.",
                           "events", events),
            text_field("Newest events", "newest", newest, size=8,
                       hint="How many to try if no events are pasted; 100 at most."),
        ),
        yes="Try it",
        other=("Save", CHANGE) if is_there else ("Create", NEW),
        back=f"{PIPELINES}/{name}" if is_there else PIPELINES,
        command="hifi pipelines try FILE",
        note=" The command runs on your own machine. A trial writes and stores nothing.",
        hidden={"version": version, "pipeline": name} if is_there else {},
        path=TRY,
    )  # fmt: skip


def _found(found: Mapping[str, Any]) -> Safe:
    given, rows = found["given"], found["rows"]
    dropped = sum(row["outcome"] != "passed" for row in rows)
    summary = f"{wording.plural(len(given), 'event')} made {wording.plural(len(rows), 'row')}"
    summary += f", {dropped:,} of them for events that were not passed on." if dropped else "."
    if not given:
        summary = "The stream has no events yet. Paste some."
    more = found["left_out"]
    return section(
        "Result",
        tag("p", summary, role="status"),
        _rows(given, rows) if given else NOTHING,
        tag("p", f"{more:,} more rows are not shown.", class_="note") if more else NOTHING,
    )


def _rows(given: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Safe:
    came: dict[int | None, list[Mapping[str, Any]]] = {}
    for row in rows:
        came.setdefault(row["of"], []).append(row)
    lines: list[list[Child]] = []
    for number, event in enumerate(given, 1):
        mine = came.get(number)
        lines += [_line(number, event, row) for row in mine] if mine else [_counted(number, event)]
    lines += [_line(None, "", row) for row in came.get(None, ())]
    heads = ("Event", "Content", "Outcome", "Target", "Key", "Result")
    return table(heads, lines, caption="Outcome of each event")


def _line(nth: int | None, event: str, row: Mapping[str, Any]) -> list[Child]:
    outcome = _OUTCOMES.get(row["outcome"], row["outcome"])
    return [
        "window" if nth is None else str(nth),
        _shown(event),
        f"{outcome}: {row['reason']}" if row["reason"] else outcome,
        row["target"],
        "" if row["key"] is None else code(row["key"][:_SHOWN_CHARS]),
        _shown(row["value"]) if row["outcome"] == "passed" else "",
    ]


def _counted(nth: int, event: str) -> list[Child]:
    return [str(nth), _shown(event), "counted in its window", "", "", ""]


def _shown(text: str) -> Child:
    if not text:
        return ""
    return code(text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…")


TRIAL = ChangeByForm(try_page, try_out, DOCUMENT_BYTES_MAX)
