"""The page of dead letters: filters, what was given up and why, and re-drive, counted first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlencode

from observe.console.parts import wording
from observe.console.parts.layout import Around, Page, Region, csrf_field
from observe.console.parts.markup import NOTHING, Child, Safe, fragment, tag
from observe.console.parts.pieces import code, table

# As many as somebody reads; the filters find the others.
ROWS_MAX = 100


@dataclass(frozen=True, slots=True)
class DeadPageQuery:
    """Which dead letters somebody asks for; empty means any."""

    stream: str = ""
    destination: str = ""
    reason: str = ""
    event_id: str = ""

    def fields(self) -> dict[str, str]:
        return {
            name: value
            for name, value in (
                ("stream", self.stream),
                ("destination", self.destination),
                ("reason", self.reason),
                ("id", self.event_id),
            )
            if value
        }

    @property
    def query(self) -> str:
        return urlencode(self.fields(), errors="replace")


@dataclass(frozen=True, slots=True)
class LetterRow:
    """One dead letter, as a row."""

    event_id: str
    stream: str
    destination: str
    reason: str
    last_status: str
    last_detail: str
    attempts: str
    dead_at_ms: int
    is_redriven: bool = False


@dataclass(frozen=True, slots=True)
class Letters:
    """The newest that match, how many match in all, and how many of those can be re-driven."""

    rows: tuple[LetterRow, ...]
    matching: int
    redrivable: int
    # False: not all dead letters could be read in the time there is.
    is_whole: bool = True


class DeadDesk(Protocol):
    """Reads and re-drives dead letters."""

    async def look(self, wanted: DeadPageQuery, *, streams: frozenset[str]) -> Letters:
        """Those of these streams that match."""

    async def redrive(self, wanted: DeadPageQuery, *, streams: frozenset[str]) -> int:
        """Send those that match again; how many it were."""


def dead_page(
    wanted: DeadPageQuery,
    letters: Letters,
    *,
    may_redrive: bool,
    streams: Sequence[str],
    done: str = "",
) -> Page:
    said = wording.plural(letters.matching, "dead letter")
    content: list[Child] = [
        tag("h1", "Dead letters"),
        tag("p", "What was given up, and why. Nothing is thrown away for 30 days.", class_="lead"),
        tag("p", done, class_="done", role="status") if done else NOTHING,
        _filters(wanted, streams),
        tag(
            "p",
            tag("strong", said),
            " match" if letters.matching != 1 else " matches",
            "" if letters.is_whole else " so far; reading all of them takes too long here",
            f", the newest {ROWS_MAX} are shown." if letters.matching > ROWS_MAX else ".",
        ),
    ]
    if letters.redrivable and may_redrive:
        content.append(_redrive_button(wanted, letters))
    elif letters.redrivable:
        content.append(tag("p", "Re-drive needs a key with the scope admin.", class_="quiet"))
    content.append(_rows(letters))
    return Page(
        title="Dead letters",
        here="/dead",
        status=said,
        regions=(Region("dead", fragment(content), is_live=False),),
    )


def confirm_page(wanted: DeadPageQuery, letters: Letters, *, around: Around) -> Page:
    """What a re-drive would do, before it does it."""
    said = wording.plural(letters.redrivable, "dead letter")
    asks = f"Send {said} again?" if letters.is_whole else f"More than {said} could be sent again"
    filters = wanted.fields()
    which = facts(filters) if filters else tag("p", tag("strong", "No filter is set: this is all."))
    again = letters.matching - letters.redrivable
    content = fragment(
        tag("h1", asks),
        which,
        tag(
            "p",
            "Each starts anew with all of its attempts, under the same event id. Destinations that"
            " drop known ids see nothing twice.",
        ),
        tag("p", f"{wording.count(again)} more match and were sent again already.", class_="quiet")
        if again
        else NOTHING,
        _confirm_form(wanted, letters, around)
        if letters.is_whole
        else tag(
            "p",
            "There are more than can be counted here: narrow the filters, or use ",
            code("hifi dead redrive"),
            ".",
            class_="warn",
        ),
    )  # fmt: skip
    return Page(
        title="Re-drive",
        here="/dead",
        regions=(Region("confirm", content, is_live=False),),
        status=asks,
    )


def _confirm_form(wanted: DeadPageQuery, letters: Letters, around: Around) -> Safe:
    said = wording.plural(letters.redrivable, "dead letter")
    filters = wanted.fields()
    return tag(
        "form",
        csrf_field(around),
        [tag("input", type="hidden", name=name, value=value) for name, value in filters.items()],
        tag("input", type="hidden", name="confirmed", value=letters.redrivable),
        tag("button", f"Send {said} again", type="submit", class_="act"),
        " ",
        tag("a", "Leave them", href=_path(wanted)),
        method="post",
        action="/dead/redrive",
    )


def facts(fields: dict[str, str]) -> Safe:
    return tag(
        "dl",
        [tag("div", tag("dt", name), tag("dd", code(value))) for name, value in fields.items()],
        class_="facts card",
    )


def _filters(wanted: DeadPageQuery, streams: Sequence[str]) -> Safe:
    options = [tag("option", "all", value="")] + [
        tag("option", name, value=name, selected=name == wanted.stream) for name in streams
    ]
    return tag(
        "form",
        tag("label", "Stream ", tag("select", options, name="stream")),
        _field("Destination", "destination", wanted.destination),
        _field("Reason", "reason", wanted.reason),
        _field("Event id", "id", wanted.event_id),
        tag("button", "Filter", type="submit"),
        tag("a", "Clear", href="/dead") if wanted.fields() else NOTHING,
        method="get",
        action="/dead",
        class_="row card pad",
    )


def _field(says: str, name: str, value: str) -> Safe:
    field = tag("input", name=name, value=value, size=16, autocomplete="off", spellcheck="false")
    return tag("label", f"{says} ", field)


def _redrive_button(wanted: DeadPageQuery, letters: Letters) -> Safe:
    said = wording.plural(letters.redrivable, "dead letter")
    return tag(
        "form",
        [tag("input", type="hidden", name=name, value=value)
         for name, value in wanted.fields().items()],
        tag("button", f"Send {said} again …", type="submit"),
        method="get",
        action="/dead/redrive",
    )  # fmt: skip


def _rows(letters: Letters) -> Safe:
    if not letters.rows:
        return tag("p", "Nothing here was given up.", class_="none")
    heads = ("Event", "Destination", "Reason", "Last answer", "Attempts", "Died", "")
    rows: list[list[Child]] = [
        [
            tag("a", letter.event_id, href=_event_path(letter)),
            f"{letter.stream}/{letter.destination}",
            code(letter.reason),
            " ".join(filter(None, (letter.last_status, letter.last_detail[:200]))) or wording.NONE,
            letter.attempts,
            wording.moment(letter.dead_at_ms),
            "sent again" if letter.is_redriven else "",
        ]
        for letter in letters.rows
    ]
    return table(heads, rows, caption="Dead letters, newest first")


def _event_path(letter: LetterRow) -> str:
    named = {"stream": letter.stream, "id": letter.event_id}
    # Half a surrogate pair, which JSON can hold, has no place in an address.
    return "/events?" + urlencode(named, errors="replace")


def _path(wanted: DeadPageQuery) -> str:
    return f"/dead?{wanted.query}" if wanted.query else "/dead"
