"""The page of current alerts, each with its runbook, and the pages of the runbooks."""

from collections.abc import Iterator

from starlette.exceptions import HTTPException

from console.page_context import PageContext, worst_first
from console.page_request import PageRequest
from console.parts.layout import Page, Region, still_page
from console.parts.markup import Child, Safe, fragment, tag
from console.parts.pieces import badge, code, nothing_yet, path_of, table
from console.parts.runbooks import (
    INDEX,
    OF_PIPELINE,
    OF_VERDICT,
    runbook_link,
    runbooks,
    shown,
)
from console.parts.search_list import ROWS_MAX, more_note
from shared import wording
from shared.event.topics import pipeline_of
from shared.proof.overview import DestinationView

PATH = "/alerts"


def alerts_page(context: PageContext) -> Page:
    """Show the alerts that the viewer may see; a pause is intended, so it is no alert."""
    rows = [*_of_hifi(context), *_of_streams(context)]
    ill = [view for view in worst_first(context.overview.takers) if view.verdict in OF_VERDICT]
    rows += [_row(view) for view in ill[:ROWS_MAX]]
    count = len(rows) + len(ill[ROWS_MAX:])
    summary = f"{wording.plural(count, 'thing')} to look at." if count else "No alerts."
    heads = ("What", "Verdict", "Why", "Next step")
    listed = (
        table(heads, rows, caption="Alerts, worst first")
        if rows
        else nothing_yet("Destinations and services in trouble are listed here.")
    )
    rest = more_note(
        len(ill) - ROWS_MAX, "all destinations in trouble", "/destinations?only=trouble"
    )
    note = tag(
        "p",
        "Prometheus alerts people about the same figures when trouble lasts; its rules are in ",
        code("deploy/alerts/hifi.yaml"),
        ". ",
        runbook_link(INDEX, "All runbooks"),
        class_="quiet",
    )
    top = fragment(tag("h1", "Alerts"), tag("p", summary, class_="lead"), listed, rest, note)
    return Page("Alerts", PATH, (Region("list", top),), summary)


async def runbooks_page(asked: PageRequest) -> Page:
    """Show one runbook, or the index that says which runbook to use when."""
    name = asked.path.removeprefix("/runbooks").strip("/") or INDEX
    if name not in runbooks():
        raise HTTPException(404, "There is no such runbook. All runbooks are in docs/runbooks.")
    title = "Runbooks" if name == INDEX else name
    back = tag("p", tag("a", "Alerts", href=PATH), " / ", runbook_link(INDEX, "runbooks"))
    return still_page(title, PATH, "runbook", back, tag("article", shown(name), class_="runbook"))


def _row(view: DestinationView) -> list[Child]:
    is_pipeline = pipeline_of(view.destination_id) is not None
    ours = {**OF_VERDICT, **(OF_PIPELINE if is_pipeline else {})}
    return [
        tag("a", view.destination_id, href=path_of(view)),
        badge(view.verdict),
        tag("span", view.reason, class_="why"),
        runbook_link(ours[view.verdict]),
    ]


def _of_hifi(context: PageContext) -> Iterator[list[Child]]:
    """Yield the troubles of Hifi itself, as opposed to those of destinations and streams."""
    overview, audit = context.overview, context.overview.audit
    if overview.problem:
        yield _said("these figures", overview.problem, "HifiCannotTell")
    if audit.problem:
        yield _said("the audit", audit.problem, "HifiAuditBehind")
    if audit.unreadable_count:
        why = f"{wording.plural(audit.unreadable_count, 'record')} could not be read"
        yield _said("the audit", why, "HifiUnreadableRecords")
    for why in context.ailing:
        yield _said("a service", why, INDEX)
    for each in overview.unknown:
        why = f"{wording.plural(each.waiting_events, 'event')} waiting for an unknown destination"
        yield _said(f"{each.stream} → {each.name}", why, "HifiUnknownDestination")


def _of_streams(context: PageContext) -> Iterator[list[Child]]:
    for stream in context.overview.streams:
        if stream.spread is not None and stream.spread.is_hot:
            where = tag("a", stream.name, href=f"/streams/{stream.name}")
            why = f"one Kafka partition gets {stream.spread.times:.1f} times its share"
            yield _said(where, why, "HifiHotPartition")


def _said(what: Safe | str, why: str, runbook: str) -> list[Child]:
    return [what, wording.NONE, tag("span", why, class_="why"), runbook_link(runbook)]
