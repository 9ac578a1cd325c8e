"""The page of one destination, and the list of all destinations."""

from collections.abc import Mapping, Sequence

from console.page_context import PageContext, is_in_trouble, worst_first
from console.pages.destinations.destination_changes import (
    changes_note,
    halt_fact,
    halt_of,
)
from console.pages.destinations.destination_parts import answers_section, settings_section
from console.pages.destinations.settings_form import NEW
from console.pages.stream_pages import find_section
from console.parts import axes
from console.parts.lag_pieces import lag_section
from console.parts.last_answers import last_answers
from console.parts.layout import Page, Region
from console.parts.loss_pieces import loss_section, minutes_table
from console.parts.markup import NOTHING, Child, Safe, fragment, tag
from console.parts.pictures import pictures_section, sparks
from console.parts.pieces import (
    badge,
    code,
    dead_path,
    facts_list,
    figure,
    hero,
    newest_path,
    nothing_yet,
    p95,
    section,
    table,
)
from console.parts.runbooks import OF_VERDICT, runbook_link
from console.parts.search_list import ListQuery, SearchList
from observe.lag.trouble import words_of
from shared import wording
from shared.config.destination import Destination
from shared.flow.failing import WARN_AT
from shared.flow.flow import FlowState
from shared.flow.flow_record import FlowRecord
from shared.proof.overview import DestinationView

# A busy lane reports several times a second; longer silence than this is worth showing.
_SILENT_S = 4.0
PATH = "/destinations"
# The choices to narrow the list by, and their labels.
_ONLY = {"": "all destinations", "trouble": "destinations in trouble"}
# Characters of an answer to show in a row; the destination's own page shows all of it.
_TEXT_CHARS_MAX = 60
# Destinations in trouble to name above the list.
_NAMED_MAX = 5
# "Closed breaker" is an electrician's term that sounds like the opposite to everybody else.
_STATES = {
    FlowState.CLOSED: "as usual",
    FlowState.RATE_LIMITED: "asked to wait",
    FlowState.HALF_OPEN: "being tried",
    FlowState.OPEN: "breaker open",
    FlowState.HELD: "held",
    FlowState.DISABLED: "disabled",
}


def destination_page(
    destination_id: str, context: PageContext, asked: Mapping[str, str], *, may_change: bool
) -> Page | None:
    """Show one destination: verdict, books, flow, lag, loss; None if there is none of that name."""
    view = context.destination(destination_id)
    if view is None:
        return None
    return Page(
        title=destination_id,
        here=PATH,
        status=f"{destination_id}: {view.verdict.value}. {view.reason}",
        regions=(
            Region("top", _top(view, context)),
            Region("flow", _flow(view, context, may_change=may_change)),
            Region(
                "pictures", pictures_section([view], context, f"/streams/{destination_id}", asked)
            ),
            Region("answers", answers_section(view)),
            Region("settings", settings_section(context.configured(destination_id))),
            Region("lag", lag_section([view])),
            Region("loss", loss_section([view], now_ms=context.overview.at_ms)),
            Region("minutes", minutes_table(view)),
            Region("find", find_section(view.stream), is_live=False),
        ),
    )


def destinations_page(context: PageContext, asked: Mapping[str, str], *, may_change: bool) -> Page:
    """Show one page of the requested destinations, worst first."""
    query, views = ListQuery.of(asked, _ONLY), worst_first(context.overview.destinations)
    matches = [
        view
        for view in views
        if query.text in view.destination_id and (not query.only or is_in_trouble(view.verdict))
    ]
    listed = SearchList(PATH, "destination", _ONLY, query, matches)
    heads = (
        "Destination",
        "Verdict",
        "Last 15 min",
        "Last answer",
        "Sending",
        "Taken, 5 min",
        "p95",
        "Backlog",
        "Waiting",
    )
    rows: list[list[Child]] = [
        [
            fragment(
                tag("a", view.destination_id, href=f"/streams/{view.destination_id}"),
                tag("span", code(_address(view, context)), class_="why under"),
            ),
            badge(view.verdict),
            sparks(view, context),
            _last_answer(view),
            _sending(view, context),
            _success(view),
            p95(view.since_accepted),
            wording.size(view.backlog_bytes),
            wording.count(view.balance.waiting),
        ]
        for view in listed.shown
    ]
    shown = (
        table(heads, rows, caption="Destinations, worst first", numbers_from=5)
        if rows
        else nothing_yet("To create one: hifi destinations put STREAM NAME URL")
    )
    summary = _troubles([view.destination_id for view in views if is_in_trouble(view.verdict)])
    lead = tag("p", summary, " ", listed.said, class_="lead")
    new = tag("p", tag("a", "New destination …", href=NEW)) if may_change else NOTHING
    return Page(
        title="Destinations",
        here=PATH,
        status=summary,
        regions=(
            Region("search", fragment(tag("h1", "Destinations"), listed.search), is_live=False),
            Region("list", fragment(lead, new, shown)),
            Region("more", listed.more),
        ),
    )


def _troubles(names: Sequence[str]) -> str:
    if not names:
        return "All destinations are well."
    others = len(names) - _NAMED_MAX
    more = f" and {wording.plural(others, 'other')}" if others > 0 else ""
    return f"In trouble: {', '.join(names[:_NAMED_MAX])}{more}."


def _top(view: DestinationView, context: PageContext) -> Safe:
    stream = tag("a", view.stream, href=f"/streams/{view.stream}")
    return hero(
        view.destination_id,
        view.verdict,
        fragment(stream, " / destination"),
        tag("p", wording.sentence(view.reason), class_="lead") if view.reason else NOTHING,
        tag("p", "to ", code(_address(view, context)), class_="quiet"),
        views=[view],
        paths={
            "acked": newest_path(view.stream),
            "delivered": "#minutes",
            "queued": "#flow",
            "waiting": "#flow",
            "dead": dead_path(stream=view.stream, destination=view.name),
            "unaccounted": "#loss",
        },
    )


def _flow(view: DestinationView, context: PageContext, *, may_change: bool) -> Safe:
    flow = context.flows.get(view.destination_id)
    configured = context.configured(view.destination_id)
    causes = ", ".join(
        f"{wording.count(number)} {cause}" for cause, number in view.waiting_by_cause.items()
    )
    backlog = wording.plural(view.backlog_events, "event")
    facts: list[tuple[str, Child]] = [
        ("Sending", _breaker(flow)),
        ("Taken", f"{view.delivered_per_s:,.1f} events/s over the last minute"),
        ("Requests at once, at most", _at_once(flow)),
        ("Backlog", f"{backlog}, about {wording.size(view.backlog_bytes)}"),
        ("Oldest event without an outcome", wording.duration(view.oldest_age_s)),
        ("Waiting", causes or "nothing"),
    ]
    halted = halt_fact(configured, flow, may_resume=may_change)
    if halted:
        facts[0] = ("Sending", halted)
    elif configured and configured.resumed_at_ms:
        facts.append(("Retry requested at", wording.moment(configured.resumed_at_ms)))
    failing = _failing(configured, flow, now_ms=context.overview.at_ms)
    is_tried = flow is not None and halt_of(configured, flow) in {"", "failing", "rate-limited"}
    if failing and is_tried:
        facts.insert(1, ("Failing", failing))
    if view.silent_s >= _SILENT_S:
        facts.append(("No report from its lane for", wording.duration(view.silent_s)))
    if view.verdict in OF_VERDICT:
        facts.append(("Next step", runbook_link(OF_VERDICT[view.verdict])))
    if view.balance.dead:
        path = dead_path(stream=view.stream, destination=view.name)
        count = wording.plural(view.balance.dead, "event")
        facts.append(("Dead letters", figure(count, path)))
    changes = changes_note(configured, may_change=may_change) if configured else NOTHING
    return section("Now", facts_list(facts), changes, _last_answers(view))


def _last_answers(view: DestinationView) -> Safe:
    """Show the last accepted and the last refused request, in the destination's own words."""
    facts = last_answers(view)
    if not facts:
        return NOTHING
    answer = view.last_refusal
    text = tag("pre", answer.text) if answer and answer.text else NOTHING
    return section("Last answers", facts_list(facts), text)


def _last_answer(view: DestinationView) -> Child:
    """Return its last answer, in its own words if it refused the request."""
    refusal = view.last_refusal
    if refusal is not None and refusal.at_ms > view.last_ok_at_ms:
        text = " ".join(filter(None, (words_of(refusal.reason), refusal.text[:_TEXT_CHARS_MAX])))
        return tag("span", f"{wording.minute(refusal.at_ms)} {text}", class_="warn")
    # Only to the minute: every change of a row is sent to all viewers.
    taken = f"{wording.minute(view.last_ok_at_ms)} taken" if view.last_ok_at_ms else wording.NONE
    return tag("span", taken, class_="good" if view.last_ok_at_ms else "quiet")


def _success(view: DestinationView) -> Child:
    """Return the share of deliveries among the last outcomes, with a link to its history."""
    ended = view.lately.total
    if not ended:
        return wording.NONE
    share = axes.PART.write(view.lately.delivered / ended)
    path = f"/streams/{view.destination_id}#past-success"
    return figure(share, path, kind="" if view.lately.delivered == ended else "warn")


def _sending(view: DestinationView, context: PageContext) -> Safe:
    """Return why it is held back: a person's request, or the state of its breaker."""
    configured = context.configured(view.destination_id)
    if configured and (configured.is_paused or configured.is_disabled):
        return tag("span", halt_of(configured, None), class_="warn")
    return _breaker(context.flows.get(view.destination_id))


def _breaker(flow: FlowRecord | None) -> Safe:
    if flow is None:
        return tag("span", "no report yet", class_="quiet")
    is_blocked = flow.state is FlowState.HELD and flow.flow.is_blocked
    state = f"blocked at offset {flow.flow.blocking.offset}" if is_blocked else _STATES[flow.state]
    if flow.since_ms:
        state += f" since {wording.clock(flow.since_ms)}"
    if flow.until_ms:
        state += f", next try at {wording.clock(flow.until_ms)}"
    return tag("span", state, class_="good" if flow.state is FlowState.CLOSED else "warn")


def _failing(configured: Destination | None, flow: FlowRecord | None, *, now_ms: int) -> Child:
    """Return when it began to fail and when Hifi gives it up; None until half-way between them."""
    since_ms = flow.flow.failing_since_ms if flow else 0
    if configured is None or not since_ms:
        return None
    after_ms = round(1000 * configured.disable_after_s)
    if now_ms - since_ms < WARN_AT[0] * after_ms:
        return None
    since, ends = wording.moment(since_ms), wording.moment(since_ms + after_ms)
    return tag("span", f"since {since}; without success, Hifi gives it up at {ends}", class_="warn")


def _at_once(flow: FlowRecord | None) -> str:
    return wording.NONE if flow is None else f"{flow.flow.concurrency.limit:.3g}"


def _address(view: DestinationView, context: PageContext) -> str:
    configured = context.configured(view.destination_id)
    return configured.url if configured else "(removed)"
