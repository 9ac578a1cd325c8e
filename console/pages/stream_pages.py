"""The list of all streams, with a search by name or by trouble, and a stream's page."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias
from urllib.parse import urlencode

from console.page_context import PageContext, is_in_trouble, worst_first
from console.pages.changes.stream_changes import NEW, stream_links
from console.pages.overview_page import destinations_table
from console.pages.pipeline_pages import pipelines_table
from console.parts.lag_pieces import lag_section
from console.parts.layout import Page, Region, form
from console.parts.loss_pieces import loss_section
from console.parts.markup import NOTHING, Child, Safe, fragment, tag
from console.parts.pictures import pictures_section, stream_spark
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
    ways,
)
from console.parts.search_list import ListQuery, SearchList
from shared import wording
from shared.config.configuration import Stream
from shared.event.spread import SpreadView
from shared.proof.overview import SEVERITY, DestinationView, StreamView
from shared.proof.restored import RestoredView

PATH = "/streams"
_ONLY = {"": "all streams", "trouble": "streams in trouble", "unwanted": "streams without readers"}

# Destinations, and pipelines that read, by stream.
_Takers: TypeAlias = Mapping[str, Sequence[DestinationView]]


def streams_page(context: PageContext, asked: Mapping[str, str], *, may_change: bool) -> Page:
    """Show one page of the requested streams, worst first."""
    query, takers = ListQuery.of(asked, _ONLY), _takers(context)
    matches = [
        stream
        for stream in context.overview.streams
        if query.text in stream.name and _is_meant(stream, query.only, takers)
    ]
    matches.sort(key=lambda stream: (-SEVERITY.index(stream.verdict), stream.name))
    listed = SearchList(PATH, "stream", _ONLY, query, matches)
    rows = _rows(listed.shown, context, takers)
    new = tag("p", ways([("New stream …", NEW)])) if may_change else NOTHING
    return Page(
        title="Streams",
        here=PATH,
        status=listed.said,
        regions=(
            Region("search", fragment(tag("h1", "Streams"), listed.search), is_live=False),
            Region("list", fragment(tag("p", listed.said, class_="lead"), new, rows)),
            Region("more", listed.more),
        ),
    )


def _takers(context: PageContext) -> _Takers:
    takers: dict[str, list[DestinationView]] = {}
    for view in context.overview.takers:
        takers.setdefault(view.stream, []).append(view)
    return takers


def _is_meant(stream: StreamView, only: str, takers: _Takers) -> bool:
    if only == "trouble":
        return is_in_trouble(stream.verdict)
    return only != "unwanted" or stream.name not in takers


def _rows(shown: Sequence[StreamView], context: PageContext, takers: _Takers) -> Safe:
    if not shown:
        return nothing_yet("To create one: hifi streams put NAME")
    heads = ("Stream", "Verdict", "Last 15 min", "Events/s", "Last event", "Events", "Destinations",
             "Pipelines", "Queued", "Dead", "Unaccounted")  # fmt: skip
    through: dict[str, int] = {}
    for view in context.overview.pipelines:
        through[view.stream] = through.get(view.stream, 0) + 1
    rows = [
        _row(stream, takers.get(stream.name, ()), through.get(stream.name, 0), context)
        for stream in shown
    ]
    return table(heads, rows, caption="Streams, worst first", numbers_from=3)


def _row(
    stream: StreamView, takers: Sequence[DestinationView], pipelines: int, context: PageContext
) -> list[Child]:
    here, newest = f"{PATH}/{stream.name}", newest_path(stream.name)
    why = stream.reason or ("" if takers else "nothing reads its events")
    return [
        tag("a", stream.name, href=here),
        fragment(badge(stream.verdict), tag("span", " ", why, class_="why") if why else NOTHING),
        stream_spark(stream.name, context),
        figure(f"{stream.events_per_s:,.1f}", newest if stream.events_per_s else ""),
        _last_event(stream, context.overview.at_ms, newest),
        figure(wording.count(stream.acked), newest if stream.acked else ""),
        _counted(len(stream.destinations), f"{here}#destinations"),
        _counted(pipelines, f"{here}#pipelines"),
        _counted(sum(view.balance.queued for view in takers), f"{here}#destinations"),
        _counted(sum(view.balance.dead for view in takers), dead_path(stream=stream.name)),
        _counted(
            sum(view.balance.unaccounted for view in takers), f"{here}#loss", kind="bad"
        ),
    ]  # fmt: skip


def _counted(number: int, path: str, *, kind: str = "") -> Child:
    """A count, with a link unless it is zero."""
    return figure(wording.count(number), path if number else "", kind=kind if number else "")


def _last_event(stream: StreamView, now_ms: int, path: str) -> Child:
    """Return the time since the last event; nothing if none has come since observe started."""
    if not stream.last_accepted_at_ms:
        return wording.NONE
    ago_s = max(0, now_ms - stream.last_accepted_at_ms) // 1000
    return figure(f"{wording.duration(ago_s) if ago_s else 'under 1 s'} ago", path)


def stream_page(
    name: str, context: PageContext, asked: Mapping[str, str], *, may_change: bool
) -> Page | None:
    """Show a stream and all its destinations; None when there is no such stream."""
    stream = context.stream(name)
    if stream is None:
        return None
    views = worst_first(stream.destinations)
    takers = worst_first(_takers(context).get(name, ()))
    newest = newest_path(name)
    lead = tag("p", f"{stream.reason}.", class_="lead") if stream.reason else NOTHING
    crumbs = fragment(tag("a", "Streams", href=PATH), " / stream")
    paths = {
        "acked": newest,
        **dict.fromkeys(("due", "delivered", "queued", "waiting"), "#destinations"),
        "dead": dead_path(stream=name),
        "unaccounted": "#loss",
    }
    top = hero(name, stream.verdict, crumbs, lead, views=views, paths=paths, acked=stream.acked)
    facts: list[tuple[str, Child]] = [
        ("Acknowledged", figure(f"{stream.events_per_s:,.1f} events/s", newest)),
        ("Last event", _last_event(stream, context.overview.at_ms, newest)),
        ("Delay until accepted", f"{p95(stream.ingest)} (p95, since the events' own time)"),
    ]
    if stream.restored.count:
        facts.append(("Restored events", _restored(stream.restored, context.overview.at_ms)))
    facts += _spread(stream.spread)
    links = stream_links(name, context, may_change=may_change)
    listed = (
        destinations_table(
            views,
            caption=f"Destinations of {name}",
            path=f"/destinations?{urlencode({'q': f'{name}/'})}",
        )
        if views
        else nothing_yet(
            "This stream has no destination yet."
            f" To create one: hifi destinations put {name} NAME URL"
        )
    )
    return Page(
        title=name,
        here=PATH,
        status=f"{name}: {stream.verdict.value}",
        regions=(
            Region("top", top),
            Region("now", section("Now", facts_list(facts), links)),
            Region("destinations", section("Destinations", listed)),
            Region("pipelines", _through(name, context)),
            Region(
                "pictures",
                pictures_section(takers, context, f"{PATH}/{name}", asked, streams=[name]),
            ),
            Region("lag", lag_section(takers)),
            Region("loss", loss_section(takers, now_ms=context.overview.at_ms)),
            Region("settings", _settings(context.configuration.streams.get(name))),
            Region("find", find_section(name), is_live=False),
        ),
    )


def _restored(restored: RestoredView, now_ms: int) -> str:
    """Count the restored events, which are among the acknowledged ones, each counted once."""
    ago_s = max(0, now_ms - restored.last_ms) // 1000
    ago = f"{wording.duration(ago_s) if ago_s else 'under 1 s'} ago"
    return f"{wording.plural(restored.count, 'event')} of these; last by {restored.last}, {ago}"


def find_section(stream: str) -> Safe:
    """Return links to a stream's newest events and replays, and a form to find one event."""
    replays = f"/replays?{urlencode({'stream': stream})}"
    return section(
        "Events",
        tag(
            "p",
            ways([("The newest events", newest_path(stream)), ("Replays", replays)]),
            class_="note",
        ),
        form(
            "get",
            "/events",
            {"stream": stream},
            tag("label", "Event id ", tag("input", name="id", required=True, autocomplete="off")),
            tag("button", "Show its trace", type="submit"),
            class_="row card pad",
        ),
    )


def _settings(stream: Stream | None) -> Safe:
    """Show the main settings of a stream, and the command that shows all of them."""
    if stream is None:
        return NOTHING
    facts: list[tuple[str, Child]] = [
        ("Tenant", stream.tenant),
        ("Kafka partitions", str(stream.partition_count)),
        ("Ordering key", code(stream.key_pointer) if stream.key_pointer else "none"),
        ("Schema", wording.plural(len(stream.json_schema), "character") if stream.json_schema
         else "none: any JSON is accepted"),
    ]  # fmt: skip
    if stream.partitioning is not None:
        shards = wording.plural(len(stream.partitioning.shards), "shard")
        facts.append(("Split into", fragment(shards, " by ", code(stream.partitioning.pointer))))
    shown = fragment(code(f"hifi streams get {stream.name}"), " shows all settings.")
    return section("Settings", facts_list(facts), tag("p", shown, class_="note"))


def _spread(spread: SpreadView | None) -> list[tuple[str, Child]]:
    """Show how evenly its events are spread over Kafka partitions, once enough have come."""
    if spread is None:
        return []
    share = f"{100 * spread.part:.0f} % of the events, {spread.times:.1f} times its share"
    fullest = f"number {spread.fullest}: {share}"
    keys = [fragment(code(key), f" {100 * part:.0f} %") for key, part in spread.keys]
    listed = [part for key in keys for part in (", ", key)][1:]
    return [
        ("Fullest Kafka partition", tag("span", fullest, class_="warn" if spread.is_hot else None)),
        ("Most frequent keys", fragment(*listed) if keys else "no key has a tenth of the events"),
    ]


def _through(name: str, context: PageContext) -> Safe:
    """Show the pipelines that read a stream or write to it."""
    pipelines = context.configuration.pipelines
    views = [
        view
        for view in context.overview.pipelines
        if view.name in pipelines and name in pipelines[view.name].streams
    ]
    if not views:
        return NOTHING
    caption = f"Pipelines that read {name} or write to it"
    return section("Pipelines", pipelines_table(views, context, caption=caption))
