"""The list of all pipelines, and a pipeline's page: its graph, its outcomes, its document."""

import json
from collections.abc import Iterable, Mapping

from console.page_context import PageContext
from console.pages.changes.pipeline_changes import pipeline_links
from console.pages.changes.pipeline_documents import NEW
from console.parts.lag_pieces import lag_section
from console.parts.layout import Page, Region
from console.parts.loss_pieces import loss_section, minutes_table
from console.parts.markup import NOTHING, Child, Safe, fragment, tag
from console.parts.pictures import pictures_section
from console.parts.pieces import (
    badge,
    dead_path,
    facts_list,
    figure,
    figures_list,
    links_to,
    newest_path,
    nothing_yet,
    p95,
    section,
    table,
    ways,
)
from console.parts.pipeline_graph import pipeline_graph
from shared import wording
from shared.config.pipeline import Pipeline
from shared.proof.overview import SEVERITY, BuiltAnew, PipelineView, StreamVerdict
from shared.proof.receipt import PASSED

# These outcomes are always shown; others only once they have occurred.
_OUTCOMES = (PASSED, "filtered", "late", "dead")


def pipelines_page(context: PageContext, *, may_change: bool) -> Page:
    """Show all pipelines that the viewer may see, worst first."""
    views = _worst_first(context.overview.pipelines)
    listed = (
        pipelines_table(views, context, caption="Pipelines")
        if views
        else nothing_yet("No pipeline yet. To create one: hifi pipelines put FILE")
    )
    bad = [view.name for view in views if view.lane and view.lane.verdict is not StreamVerdict.OK]
    summary = f"In trouble: {', '.join(bad)}." if bad else "All pipelines are well."
    new = tag("p", ways([("New pipeline …", NEW)])) if may_change else NOTHING
    lead = tag("p", summary, class_="lead") if views else NOTHING
    top = fragment(tag("h1", "Pipelines"), lead, new, listed)
    return Page(
        title="Pipelines",
        here="/pipelines",
        status=summary if views else "",
        regions=(Region("list", top),),
    )


def pipelines_table(views: Iterable[PipelineView], context: PageContext, *, caption: str) -> Safe:
    heads = (
        "Pipeline", "State", "Verdict", "Why", "Reads → writes",
        "Events/s", "p95", "Queued", "Dead", "Unaccounted",
    )  # fmt: skip
    rows: list[list[Child]] = []
    for view in views:
        lane = view.lane
        rows.append(
            [
                tag("a", view.name, href=f"/pipelines/{view.name}"),
                _standing(view),
                badge(lane.verdict) if lane else wording.NONE,
                tag("span", lane.reason, class_="why") if lane and lane.reason else "",
                f"{view.stream} → {_written(context.configuration.pipelines.get(view.name))}",
                f"{view.events_per_s:,.1f}",
                p95(lane.since_accepted if lane else None),
                wording.count(view.balance.queued),
                wording.count(view.balance.dead),
                wording.count(view.balance.unaccounted),
            ]
        )
    return table(heads, rows, caption=caption, numbers_from=5)


def pipeline_page(
    name: str, context: PageContext, asked: Mapping[str, str], *, may_change: bool
) -> Page | None:
    """Show one pipeline; None if the viewer sees no pipeline of that name."""
    view = next((each for each in context.overview.pipelines if each.name == name), None)
    pipeline = context.configuration.pipelines.get(name)
    if view is None or pipeline is None or view.lane is None:
        return None
    lane = view.lane
    links = pipeline_links(pipeline, context) if may_change else NOTHING
    return Page(
        title=name,
        here="/pipelines",
        status=f"{name}: {lane.verdict.value}. {lane.reason}",
        regions=(
            Region("top", _top(view, pipeline)),
            Region("graph", section("Steps", pipeline_graph(pipeline))),
            Region("now", section("Now", facts_list(_facts(view, pipeline, context)), links)),
            Region("pictures", pictures_section([lane], context, f"/pipelines/{name}", asked)),
            Region("lag", lag_section([lane])),
            Region("loss", loss_section([lane], now_ms=context.overview.at_ms)),
            Region("minutes", minutes_table(lane)),
            Region("document", _document(pipeline), is_live=False),
        ),
    )


def _top(view: PipelineView, pipeline: Pipeline) -> Safe:
    assert view.lane is not None, "a pipeline without a lane has no page"
    lane, balance = view.lane, view.balance
    reads = tag("a", view.stream, href=f"/streams/{view.stream}")
    newest, dead = newest_path(view.stream), _dead_path(view)
    figures = (
        ("events to process", balance.acked, newest, "whole"),
        ("passed or filtered", balance.delivered, "#minutes", ""),
        ("queued", balance.queued, "#now", ""),
        ("dead letters", balance.dead, dead, "warn" if balance.dead else ""),
        ("unaccounted", balance.unaccounted, "#loss", "bad" if balance.unaccounted else "good"),
    )
    return tag(
        "section",
        tag("p", tag("a", "Pipelines", href="/pipelines"), " / ", reads, class_="crumbs"),
        tag("h1", view.name, " ", badge(lane.verdict)),
        tag("p", wording.sentence(lane.reason), class_="lead") if lane.reason else NOTHING,
        tag("p", f"{view.stream} → {_written(pipeline)}", class_="quiet"),
        figures_list(
            [(what, number, path if number else "", kind) for what, number, path, kind in figures],
            kind="five",
        ),
        class_="hero",
    )


def _facts(view: PipelineView, pipeline: Pipeline, context: PageContext) -> list[tuple[str, Child]]:
    assert view.lane is not None, "as above"
    lane = view.lane
    others = [outcome for outcome in view.rates if outcome not in _OUTCOMES]
    rates = [
        f"{view.rates.get(outcome, 0.0):,.1f} {outcome}"
        for outcome in (*_OUTCOMES, *others)
        if outcome in view.rates or outcome in {PASSED, "filtered", "dead"}
    ]
    facts: list[tuple[str, Child]] = [
        ("State", _state(view)),
        ("Events per second, last minute", f"{view.events_per_s:,.1f} in: {', '.join(rates)}"),
        ("Time since acceptance", f"{p95(lane.since_accepted)} (p95)"),
        ("Oldest event without an outcome", wording.duration(lane.oldest_age_s)),
        ("Backlog", wording.plural(lane.backlog_events, "event")),
    ]
    if view.kept is not None:
        what = "open window" if pipeline.window else "known key"
        kept = f"{wording.plural(view.kept, what)}, {wording.size(view.kept_bytes)} of memory"
        facts.append(("State kept", kept))
    seen = context.configuration.tables.keys()
    for what, names in (("Writes", pipeline.tables_to), ("Looks up in", pipeline.tables_from)):
        if there := sorted(names & seen):
            tables = "table" if len(there) == 1 else "tables"
            facts.append((f"{what} the {tables}", links_to(there, "/tables")))
    if (built := view.built) is not None:
        facts.append((f"Being rebuilt: generation {built.generation}", _progress(built)))
    if view.lost:
        gone = f"{wording.plural(view.lost, 'event')}, last {view.lost_last}"
        facts.append(("Deleted by Kafka before being read", tag("span", gone, class_="warn")))
    if view.executors_ended:
        times = wording.plural(view.executors_ended, "time")
        text = f"{times}, last at {wording.moment(view.executor_ended_at_ms)}"
        facts.append(("Has ended its executor", tag("span", text, class_="warn")))
    if lane.silent_s:
        facts.append(("No report from it for", wording.duration(lane.silent_s)))
    if view.balance.dead:
        text = wording.plural(view.balance.dead, "event")
        facts.append(("Dead letters", figure(text, _dead_path(view))))
    return facts


def _state(view: PipelineView) -> Child:
    if not view.why:
        return view.standing
    if view.standing == "refused":
        where = [" at ", tag("code", view.pointer)] if view.pointer else []
        return tag("span", f"refused: {view.why}", *where, class_="warn")
    return fragment(f"{view.standing}. ", tag("span", wording.sentence(view.why), class_="warn"))


def _standing(view: PipelineView) -> Child:
    if not view.executors_ended:
        return view.standing or wording.NONE
    times = wording.plural(view.executors_ended, "time")
    return tag("span", f"{view.standing}, has ended its executor {times}", class_="warn")


def _progress(built: BuiltAnew) -> Child:
    if built.standing == "refused":
        return tag("span", f"refused: {built.why}", class_="warn")
    if built.behind is None:
        return built.standing
    return f"{wording.plural(built.behind, 'event')} to go"


def _dead_path(view: PipelineView) -> str:
    assert view.lane is not None, "as above"
    return dead_path(stream=view.stream, destination=view.lane.name)


def _document(pipeline: Pipeline) -> Safe:
    """Show the document, without fields at their defaults."""
    text = json.dumps(pipeline.known_fields(), indent=2, ensure_ascii=False)
    return tag(
        "details",
        tag("summary", "The document"),
        tag("pre", text, tabindex="0", aria_label=f"The document of {pipeline.name}"),
        id="document-text",
    )


def _written(pipeline: Pipeline | None) -> str:
    """Return the outputs of a pipeline, in one line."""
    if pipeline is None:
        return wording.NONE
    streams = sorted({output.stream for output in pipeline.streams_to})
    others = sorted({output.member for output in pipeline.to} - {"stream"})
    return ", ".join(
        [*streams, *("dead letters" if member == "dead" else member for member in others)]
    )


def _worst_first(views: Iterable[PipelineView]) -> list[PipelineView]:
    def how_bad(view: PipelineView) -> int:
        return SEVERITY.index(view.lane.verdict) if view.lane else 0

    return sorted(views, key=lambda view: (-how_bad(view), view.name))
