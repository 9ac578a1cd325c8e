"""The page of dead letters: filters, what was given up and why, and re-drive, counted first."""

from collections.abc import Collection, Mapping, Sequence
from shlex import quote
from typing import Any
from urllib.parse import urlencode

import structlog
from starlette.responses import RedirectResponse, Response

from observe.console.control_session import FILTERS, ROWS_MAX, Letters
from observe.console.page_request import PageRequest
from observe.console.parts import wording
from observe.console.parts.layout import Page, confirm_form, form, still_page
from observe.console.parts.markup import NOTHING, Child, Safe, fragment, tag
from observe.console.parts.pieces import (
    code,
    dead_path,
    done_note,
    event_path,
    facts_list,
    pager,
    stream_choice,
    table,
)

log = structlog.get_logger()

# As many as somebody looks through to choose one.
_KNOWN_MAX = 200


async def dead_page(asked: PageRequest) -> Page:
    filters, letters = asked.filters, await asked.letters()
    said = wording.plural(letters.matching, "dead letter")
    sent = asked.number("sent")
    content: list[Child] = [
        tag("h1", "Dead letters"),
        tag("p", "What was given up, and why. Nothing is thrown away for 30 days.", class_="lead"),
        done_note("" if sent is None else f"{wording.count(sent)} sent again."),
        _filters(filters, asked.streams, _known(asked, letters)),
        tag(
            "p",
            tag("strong", said),
            " match" if letters.matching != 1 else " matches",
            "" if letters.is_whole else " so far; reading all of them takes too long here",
            _which(letters, is_first=not asked.field("before")),
        ),
    ]
    if letters.redrivable and asked.viewer.may_change:
        content.append(_redrive_button(filters, letters))
    elif letters.redrivable:
        content.append(tag("p", "Re-drive needs a key with the scope admin.", class_="quiet"))
    content += [_rows(letters), _pager(filters, letters, is_first=not asked.field("before"))]
    content += [_export_note(filters)] if letters.newest else []
    return still_page("Dead letters", "/dead", "dead", content, status=said)


async def confirm_page(asked: PageRequest) -> Page:
    """What a re-drive would do, before it does it."""
    filters, letters = asked.filters, await asked.letters()
    said = wording.plural(letters.redrivable, "dead letter")
    asks = f"Send {said} again?" if letters.is_whole else f"More than {said} could be sent again"
    which = facts_list([(name, code(value)) for name, value in filters.items()])
    again = letters.matching - letters.redrivable
    content = fragment(
        tag("h1", asks),
        which if filters else tag("p", tag("strong", "No filter is set: this is all.")),
        tag(
            "p",
            "Each starts anew with all of its attempts, under the same event id. Destinations that"
            " drop known ids see nothing twice.",
        ),
        tag("p", f"{wording.count(again)} more match and were sent again already.", class_="quiet")
        if again
        else NOTHING,
        confirm_form(
            "/dead/redrive",
            asked.around,
            yes=f"Send {said} again",
            no="Cancel",
            back=dead_path(**filters),
            **filters,
            confirmed=letters.redrivable,
        )
        if letters.is_whole
        else tag(
            "p",
            "There are more than can be counted here: narrow the filters, or use ",
            code("hifi dead redrive"),
            ".",
            class_="warn",
        ),
    )
    return still_page("Re-drive", "/dead", "confirm", content, status=asks)


async def redrive(asked: PageRequest) -> Response:
    filters, letters = asked.filters, await asked.letters()
    if asked.field("confirmed") != str(letters.redrivable) or not letters.is_whole:
        # More have died since, or somebody else was faster: nobody re-drives the unseen.
        return RedirectResponse(f"/dead/redrive?{urlencode(filters)}", status_code=303)
    log.info(
        "dead_letters.redriven",
        key_id=asked.viewer.key_id,
        filters=filters,
        count=letters.redrivable,
    )
    sent = await asked.control.redrive(filters, streams=letters.redrivable_streams)
    return RedirectResponse(f"/dead?{urlencode({**filters, 'sent': sent})}", status_code=303)


def _which(letters: Letters, *, is_first: bool) -> str:
    if not is_first:
        return f"; {wording.count(len(letters.newest))} older ones are shown."
    return f", the newest {ROWS_MAX} are shown." if letters.next else "."


def _pager(filters: Mapping[str, str], letters: Letters, *, is_first: bool) -> Safe:
    """Links to the newest and to those that died before the ones that are shown."""
    older = dead_path(**filters, before=letters.next) if letters.next else ""
    links = [("Newest", "" if is_first else dead_path(**filters)), ("Older", older)]
    return pager(links, "More dead letters")


def _filters(
    filters: Mapping[str, str], streams: Sequence[str], known: Mapping[str, Collection[str]]
) -> Safe:
    everything = tag("option", "all", value="")
    return form(
        "get",
        "/dead",
        {},
        stream_choice(streams, filters.get("stream", ""), first=everything),
        [
            _field(FILTERS[name], name, filters.get(name, ""), known.get(name, ()))
            for name in list(FILTERS)[1:]
        ],
        tag("button", "Filter", type="submit"),
        tag("a", "Clear", href="/dead") if filters else NOTHING,
        class_="row card pad",
    )


def _field(says: str, name: str, value: str, known: Collection[str]) -> Safe:
    """A field for any text, with what there is to choose from."""
    field = tag("input", name=name, value=value, size=16, autocomplete="off", spellcheck="false",
                list=f"known-{name}" if known else None)  # fmt: skip
    options = [tag("option", value=each) for each in sorted(known)[:_KNOWN_MAX]]
    listed = tag("datalist", options, id=f"known-{name}") if known else NOTHING
    return tag("label", f"{says} ", field, listed)


def _known(asked: PageRequest, letters: Letters) -> dict[str, set[str]]:
    """What is there to be chosen from: the viewer's destinations, and reasons of what is shown."""
    there = asked.context.configuration.destinations.values()
    return {
        "destination": {each.name for each in there if each.stream in asked.streams},
        "reason": {letter["reason"] for letter in letters.newest},
    }


def _export_note(filters: Mapping[str, str]) -> Safe:
    """How to have what matches in a file."""
    chosen = "".join(f" --{name} {quote(value)}" for name, value in filters.items())
    command = f"hifi dead export{chosen} > dead.ndjson"
    says = " has them in a file, with what they say."
    return tag("p", code(command), says, class_="quiet")


def _redrive_button(filters: Mapping[str, str], letters: Letters) -> Safe:
    said = wording.plural(letters.redrivable, "dead letter")
    button = tag("button", f"Send {said} again …", type="submit")
    return form("get", "/dead/redrive", filters, button)


def _rows(letters: Letters) -> Safe:
    if not letters.newest:
        return tag("p", "Nothing here was given up.", class_="none")
    heads = ("Event", "Destination", "Reason", "Last answer", "Attempts", "Died", "Since")
    rows: list[list[Child]] = [
        [
            tag("a", letter["id"], href=event_path(letter["stream"], letter["id"])),
            letter["destination"],
            code(letter["reason"]),
            _last_answer(letter) or wording.NONE,
            str(letter.get("attempts", "")),
            tag("time", wording.moment(letter["dead_at_ms"])),
            "sent again" if letter["redriven"] else "",
        ]
        for letter in letters.newest
    ]
    return table(heads, rows, caption="Dead letters, newest first")


def _last_answer(letter: Mapping[str, Any]) -> str:
    """What the destination said last, or why nobody can open the record."""
    status = letter.get("last_status")
    detail = letter.get("last_detail") or letter.get("problem") or ""
    return " ".join(filter(None, ("" if status is None else str(status), detail[:200])))
