"""The list of single dead letters, with filters and causes; a redrive shows its count first."""

from collections.abc import Mapping
from shlex import quote
from typing import Any

import structlog
from starlette.responses import RedirectResponse, Response

from console.control_session import EXPORTED_MAX, ROWS_MAX, Letters
from console.page_request import PageRequest
from console.pages.dead_page import CHOSEN, filter_form, given_up
from console.parts.layout import Page, confirm_form, form, still_page
from console.parts.markup import NOTHING, Child, Safe, fragment, tag
from console.parts.pieces import (
    code,
    dead_path,
    done_note,
    event_path,
    facts_list,
    letters_path,
    pager,
    table,
)
from shared import wording
from shared.event.times import rfc3339
from shared.event.topics import is_pipelines, stream_and_name

log = structlog.get_logger()

PATH = "/dead/letters"


async def dead_letters_page(asked: PageRequest) -> Page:
    filters, letters = asked.filters, await asked.letters()
    count = wording.plural(letters.matching, "dead letter")
    sent = asked.number("sent")
    chosen = {name: filters[name] for name in CHOSEN if name in filters}
    content: list[Child] = [
        tag(
            "p",
            tag("a", "Dead letters", href=dead_path(**chosen)),
            " / one by one",
            class_="crumbs",
        ),
        tag("h1", "Dead letters, one by one"),
        done_note("" if sent is None else f"{wording.count(sent)} sent again."),
        filter_form(PATH, given_up(asked.context), filters, _further_fields(filters)),
        tag(
            "p",
            tag("strong", count),
            " match" if letters.matching != 1 else " matches",
            "" if letters.is_whole else " so far; this page cannot read all of them in time",
            _which(letters, is_first=not asked.field("before")),
        ),
    ]
    if letters.redrivable and asked.viewer.may_change:
        content.append(_redrive_button(filters, letters))
    elif letters.redrivable:
        content.append(tag("p", "A redrive needs a key with the scope admin.", class_="quiet"))
    content += [
        _rows(letters, may_change=asked.viewer.may_change),
        _pager(filters, letters, is_first=not asked.field("before")),
        _export(asked, letters),
    ]
    return still_page("Dead letters", "/dead", "dead", content, status=count)


async def confirm_page(asked: PageRequest) -> Page:
    """Ask for confirmation of a redrive, with its effects."""
    filters, letters = asked.filters, await asked.letters()
    count = wording.plural(letters.redrivable, "dead letter")
    asks = f"Send {count} again?" if letters.is_whole else f"More than {count} could be sent again"
    which = facts_list([(name, code(value)) for name, value in filters.items()])
    again = letters.matching - letters.redrivable
    content = fragment(
        tag("h1", asks),
        which if filters else tag("p", tag("strong", "No filter is set: all will be sent.")),
        tag(
            "p",
            "Each event starts again with all of its attempts, under the same event id."
            " Destinations that drop known ids process nothing twice.",
        ),
        tag("p", f"{wording.count(again)} more match, but were already sent again.", class_="quiet")
        if again
        else NOTHING,
        confirm_form(
            "/dead/redrive",
            asked.around,
            yes=f"Send {count} again",
            no="Cancel",
            back=letters_path(**filters),
            **filters,
            confirmed=letters.redrivable,
        )
        if letters.is_whole
        else tag(
            "p",
            "There are too many to count here: narrow the filters, or use ",
            code("hifi dead redrive"),
            ".",
            class_="warn",
        ),
    )
    return still_page("Redrive", "/dead", "confirm", content, status=asks)


async def redrive(asked: PageRequest) -> Response:
    filters, letters = asked.filters, await asked.letters()
    if asked.field("confirmed") != str(letters.redrivable) or not letters.is_whole:
        # The count has changed since the question. Only counted letters are redriven: ask again.
        return RedirectResponse(dead_path("/dead/redrive", **filters), status_code=303)
    log.info(
        "dead_letters.redriven",
        key_id=asked.viewer.key_id,
        filters=filters,
        count=letters.redrivable,
    )
    sent = await asked.control.redrive(filters, streams=letters.redrivable_streams)
    return RedirectResponse(letters_path(**filters, sent=str(sent)), status_code=303)


async def export(asked: PageRequest) -> Response:
    """Return a file with the oldest matching letters and their content."""
    log.info("dead_letters.exported", key_id=asked.viewer.key_id, filters=asked.filters)
    headers = {"Content-Disposition": 'attachment; filename="dead-letters.ndjson"'}
    return Response(await asked.export(), media_type="application/x-ndjson", headers=headers)


def _which(letters: Letters, *, is_first: bool) -> str:
    if not is_first:
        return f"; {wording.count(len(letters.newest))} older ones are shown."
    return f", the newest {ROWS_MAX} are shown." if letters.next else "."


def _pager(filters: Mapping[str, str], letters: Letters, *, is_first: bool) -> Safe:
    """Return links to the newest letters and to older ones."""
    older = letters_path(**filters, before=letters.next) if letters.next else ""
    links = [("Newest", "" if is_first else letters_path(**filters)), ("Older", older)]
    return pager(links, "More dead letters")


def _further_fields(filters: Mapping[str, str]) -> list[Safe]:
    """Return the filters without a list of choices: an event id, an answer, a time."""
    kept = [
        tag("input", type="hidden", name=name, value=filters[name])
        for name in ("answer", "from", "to")
        if name in filters
    ]
    field = tag("input", name="id", value=filters.get("id", ""), size=16, autocomplete="off",
                spellcheck="false")  # fmt: skip
    says = {"answer": "answer", "from": "dead since", "to": "dead before"}
    spans = [
        tag("span", f"{what} ", code(filters[name]))
        for name, what in says.items()
        if name in filters
    ]
    return [*kept, tag("label", "Event id ", field), *spans]


def _export(asked: PageRequest, letters: Letters) -> Safe:
    """Return a button that downloads the first matching letters, and a command for all."""
    if not letters.newest:
        return NOTHING
    filters = asked.filters
    chosen = "".join(f" --{name} {quote(value)}" for name, value in filters.items())
    command = f"hifi dead export{chosen} > dead.ndjson"
    says = " writes all of them to a file, with their content."
    note = tag("p", code(command), says, class_="quiet")
    if not asked.viewer.may_change:
        return note
    button = tag("button", f"Download up to {EXPORTED_MAX:,}, the oldest first", type="submit")
    hidden = {"csrf": asked.around.csrf, **filters}
    return fragment(form("post", "/dead/export", hidden, button), note)


def _redrive_button(filters: Mapping[str, str], letters: Letters) -> Safe:
    count = wording.plural(letters.redrivable, "dead letter")
    button = tag("button", f"Send {count} again …", type="submit")
    return form("get", "/dead/redrive", filters, button)


def _rows(letters: Letters, *, may_change: bool) -> Safe:
    if not letters.newest:
        return tag("p", "There are no dead letters here.", class_="none")
    heads = ("Event", "Why", "Destination", "Given up", "Attempts", "Send again")
    rows: list[list[Child]] = [
        [
            tag("a", letter["id"], href=event_path(letter["stream"], letter["id"])),
            tag("span", code(letter["reason"]), " ", _last_answer(letter), class_="why"),
            letter["destination"],
            tag("time", wording.moment(letter["dead_at_ms"])),
            str(letter.get("attempts", "")),
            "sent again" if letter["redriven"] else _again(letter) if may_change else "",
        ]
        for letter in letters.newest
    ]
    return table(heads, rows, caption="Dead letters, newest first", numbers_from=4)


def _again(letter: Mapping[str, Any]) -> Child:
    """Return a link to the question before a redrive of this letter; its time limits the search."""
    if "problem" in letter or not letter["id"]:
        return ""
    if is_pipelines(stream_and_name(letter["destination"])[1]):
        return ""
    at_ms = letter["dead_at_ms"]
    filters = {
        "stream": letter["stream"],
        "destination": letter["destination"],
        "reason": letter["reason"],
        "id": letter["id"],
        "from": rfc3339(at_ms),
        "to": rfc3339(at_ms + 1),
    }
    return tag("a", "Send again …", href=dead_path("/dead/redrive", **filters))


def _last_answer(letter: Mapping[str, Any]) -> str:
    """Return the destination's last answer, or why the record cannot be opened."""
    status = letter.get("last_status")
    if letter["reason"] == f"status_{status}":
        status = None
    detail = letter.get("last_detail") or letter.get("problem") or ""
    return " ".join(filter(None, ("" if status is None else str(status), detail[:200])))
