"""The page of dead letters, grouped by destination, reason and answer.

It comes from receipts and reads nothing from Kafka, so it loads at once, however many dead letters
other tenants have.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from console.page_context import PageContext
from console.parts import charts
from console.parts.layout import Page, Region, form
from console.parts.markup import NOTHING, Child, Safe, fragment, tag
from console.parts.pieces import (
    choice,
    code,
    dead_path,
    letters_path,
    nothing_yet,
    pager,
    table,
)
from shared import wording
from shared.event.times import DAY_MS, HOUR_MS, MINUTE_MS, rfc3339
from shared.event.topics import DEAD_RETENTION_MS, is_pipelines
from shared.proof.last_answer import DEAD_STEP_MS, DEAD_STEPS, DeadGroup

PATH = "/dead"
# The query parameters of its address.
CHOSEN = ("stream", "destination", "reason")
DEAD_ASKED = (*CHOSEN, "page")
# Few enough for a phone.
_ROWS_MAX = 20
# The maximum number of entries that a person would scan to choose one.
_CHOICES_MAX = 200
_DIGITS_MAX = 8
# The largest difference between the clocks of the broker and of the service that dates the letter.
_CLOCKS_MS = HOUR_MS
_ALL = "all"


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A group of dead letters, and its destination."""

    stream: str
    name: str
    group: DeadGroup
    # False for pipelines and removed destinations: this page cannot send their events again.
    can_go_again: bool

    @property
    def filters(self) -> dict[str, str]:
        """The filters that match its letters; `from` starts the search at the first letter."""
        of = self.group
        since_ms = max(of.first_ms - _CLOCKS_MS, 0)
        return {
            "stream": self.stream,
            "destination": self.name,
            "reason": of.reason,
            "answer": of.answer,
            "from": rfc3339(since_ms - since_ms % MINUTE_MS),
        }

    def is_asked(self, asked: Mapping[str, str]) -> bool:
        names = {self.name, f"{self.stream}/{self.name}"}
        return (
            asked.get("stream", "") in {"", self.stream}
            and asked.get("destination", "") in {"", *names}
            and asked.get("reason", "") in {"", self.group.reason}
        )


def given_up(context: PageContext) -> list[GivenUp]:
    """Return all groups of dead letters that are still kept, newest first."""
    shown = context.overview
    oldest_ms = shown.at_ms - DEAD_RETENTION_MS
    there = [
        GivenUp(view.stream, view.name, group, not is_pipelines(view.name))
        for view in shown.takers
        for group in view.dead_groups
    ]
    gone = [
        GivenUp(view.stream, view.name, group, can_go_again=False)
        for view in shown.removed
        for group in view.dead_groups
    ]
    kept = (each for each in (*there, *gone) if each.group.last_ms > oldest_ms)
    return sorted(kept, key=lambda each: (-each.group.last_ms, each.stream, each.name))


def dead_page(context: PageContext, asked: Mapping[str, str], *, may_change: bool) -> Page:
    """Show one page of the requested groups."""
    every = given_up(context)
    groups = [each for each in every if each.is_asked(asked)]
    number = asked.get("page", "")
    page = int(number) if number.isdecimal() and len(number) < _DIGITS_MAX else 1
    pages = max(1, -(-len(groups) // _ROWS_MAX))
    page = min(max(page, 1), pages)
    first = (page - 1) * _ROWS_MAX
    chosen = {name: value for name in CHOSEN if (value := asked.get(name, ""))}
    links = [
        (says, dead_path(**chosen, page=str(to)) if 1 <= to <= pages else "")
        for says, to in (("Previous page", page - 1), ("Next page", page + 1))
    ]
    total = wording.plural(sum(each.group.count for each in groups), "dead letter")
    search = fragment(
        tag("h1", "Dead letters"),
        tag(
            "p",
            "Events that Hifi gave up, with the reasons. They are kept for"
            f" {DEAD_RETENTION_MS // DAY_MS} days.",
            class_="lead",
        ),
        filter_form(PATH, every, asked),
    )
    count = wording.plural(len(groups), "group") + (
        f"; {first + 1:,} to {min(first + _ROWS_MAX, len(groups)):,} are shown, newest first"
        if pages > 1
        else ""
    )
    one_by_one = tag("a", "All, one by one", href=letters_path(**chosen))
    content = fragment(
        tag("p", tag("strong", total), f" in {count}. ", one_by_one),
        _rows(
            groups[first : first + _ROWS_MAX], at_ms=context.overview.at_ms, may_change=may_change
        )
        if groups
        else nothing_yet("There are no dead letters here."),
        pager(links, "More groups of dead letters"),
    )
    return Page(
        title="Dead letters",
        here=PATH,
        status=total,
        regions=(Region("search", search, is_live=False), Region("list", content)),
    )


def filter_form(
    path: str, every: Iterable[GivenUp], asked: Mapping[str, str], *more: Child
) -> Safe:
    """Return the form to choose from the existing values; the current choice is always included."""
    stream = asked.get("stream", "")
    ours = [each for each in every if stream in {"", each.stream}]
    there = {
        "stream": {each.stream for each in every},
        "destination": {f"{each.stream}/{each.name}" for each in ours},
        "reason": {each.group.reason for each in ours},
    }
    named = asked.get("destination", "")
    if stream and named and "/" not in named:
        # Links contain only the destination's own name.
        asked = {**asked, "destination": f"{stream}/{named}"}
    fields = [
        _choice(name, there[name], asked.get(name, ""), says)
        for name, says in zip(CHOSEN, ("Stream", "Destination", "Reason"), strict=True)
    ]
    return form(
        "get",
        path,
        {},
        fields,
        more,
        tag("button", "Filter", type="submit"),
        tag("a", "Clear", href=path) if any(asked.values()) else NOTHING,
        class_="row card pad",
    )


def _choice(name: str, there: Iterable[str], chosen: str, says: str) -> Safe:
    values = sorted(each for each in there if each)[:_CHOICES_MAX]
    if chosen and chosen not in values:
        values.insert(0, chosen)
    return choice(says, name, values, chosen, first=tag("option", _ALL, value=""))


def _rows(shown: Sequence[GivenUp], *, at_ms: int, may_change: bool) -> Safe:
    heads = ("Why", "Destination", "Last 7 days", "Dead letters", "First", "Last", "Send again")
    rows: list[list[Child]] = [
        [
            _why(each),
            f"{each.stream}/{each.name}",
            _over_time(each.group, at_ms),
            wording.count(each.group.count),
            tag("time", wording.to_minute(each.group.first_ms)),
            tag("time", wording.to_minute(each.group.last_ms)),
            _again(each) if may_change else "",
        ]
        for each in shown
    ]
    return table(heads, rows, caption="Dead letters by cause, newest first", numbers_from=3)


def _why(each: GivenUp) -> Safe:
    group = each.group
    says = code(group.reason) if group.reason else "other answers"
    link = tag("a", says, href=letters_path(**each.filters))
    return fragment(link, " ", tag("span", group.answer, class_="why") if group.answer else NOTHING)


def _over_time(group: DeadGroup, at_ms: int) -> Safe:
    """Draw how many events were given up in each quarter of a day."""
    newest_ms = at_ms - at_ms % DEAD_STEP_MS
    steps = range(newest_ms - (DEAD_STEPS - 1) * DEAD_STEP_MS, newest_ms + 1, DEAD_STEP_MS)
    values = [float(group.given_up.get(step_ms, 0)) for step_ms in steps]
    says = f"{sum(values):,.0f} in total, at most {max(values):,.0f} in 6 h."
    line = charts.Line("given up", values, 4)
    return charts.sparkline([line], title="Given up in the last 7 days", says=says)


def _again(each: GivenUp) -> Child:
    """Return a link to the question before a redrive, which shows the count."""
    if not (each.can_go_again and each.group.reason):
        return ""
    return tag("a", "Send again …", href=dead_path("/dead/redrive", **each.filters))
