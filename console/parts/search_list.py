"""A list with a search by part of a name or by trouble, shown one page at a time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar
from urllib.parse import urlencode

from console.parts.layout import form
from console.parts.markup import NOTHING, Safe, tag
from console.parts.pieces import pager
from shared import wording

# The maximum number of rows on a page, however many entries there are.
ROWS_MAX = 100
# The longest part of a name to search for.
_TEXT_CHARS_MAX = 200
# The query parameters of its address.
ASKED = ("q", "only", "page")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ListQuery:
    """The search in a list, as the address of the page has it."""

    text: str
    only: str
    page: int

    @classmethod
    def of(cls, asked: Mapping[str, str], choices: Mapping[str, str]) -> Self:
        only, number = asked.get("only", ""), asked.get("page", "")
        is_number = number.isdecimal() and 0 < len(number) < 9  # noqa: PLR2004 - no list is as long
        text = asked.get("q", "").strip()[:_TEXT_CHARS_MAX]
        return cls(text, only if only in choices else "", int(number) if is_number else 1)


@dataclass(frozen=True, slots=True)
class SearchList(Generic[T]):
    """The matching entries in order, and the requested page of them."""

    path: str
    # The noun for one entry.
    kind: str
    # The choices to narrow it by, and their labels.
    choices: Mapping[str, str]
    query: ListQuery
    found: Sequence[T]
    order: str = "worst first"
    # Other parameters of the address, kept in its links.
    kept: Mapping[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> Sequence[T]:
        return self.found[self._first : self._first + ROWS_MAX]

    @property
    def said(self) -> str:
        count, shown = len(self.found), len(self.shown)
        is_narrowed = bool(self.query.text or self.query.only)
        if not count:
            return f"No {self.kind} matches." if is_narrowed else f"No {self.kind} yet."
        matches = (" matches" if count == 1 else " match") if is_narrowed else ""
        summary = wording.plural(count, self.kind) + matches
        if shown == count:
            return f"{summary}."
        first = self._first
        return f"{summary}; {first + 1:,} to {first + shown:,} are shown, {self.order}."

    @property
    def search(self) -> Safe:
        text, only = self.query.text, self.query.only
        options = [
            tag("option", says, value=value, selected=value == only)
            for value, says in self.choices.items()
        ]
        part = tag("input", name="q", value=text, size=24, autocomplete="off", spellcheck="false")
        return form(
            "get",
            self.path,
            self.kept,
            tag("label", "Name contains ", part),
            tag("label", "Show ", tag("select", options, name="only")),
            tag("button", "Find", type="submit"),
            tag("a", "Clear", href=self.path) if text or only else NOTHING,
            class_="row card pad",
        )

    @property
    def more(self) -> Safe:
        """Links to the previous and the next page."""
        around = [
            ("Previous page", self._page - 1, self._page > 1),
            ("Next page", self._page + 1, self._page < self._pages),
        ]
        links = [(says, self._address(to) if is_there else "") for says, to, is_there in around]
        return pager(links, f"More {self.kind}s")

    @property
    def _pages(self) -> int:
        return max(1, math.ceil(len(self.found) / ROWS_MAX))

    @property
    def _page(self) -> int:
        return min(max(1, self.query.page), self._pages)

    @property
    def _first(self) -> int:
        return (self._page - 1) * ROWS_MAX

    def _address(self, page: int) -> str:
        asked = {**self.kept, "q": self.query.text, "only": self.query.only, "page": page}
        return f"{self.path}?{urlencode({name: value for name, value in asked.items() if value})}"


def more_note(count: int, says: str, path: str) -> Safe:
    """Link to the page with the entries that have no row here, if there are any."""
    if count <= 0:
        return NOTHING
    return tag("p", f"{count:,} more: ", tag("a", says, href=path), ".", class_="note")
