"""The list of tenants, worst first, and a tenant's page; only operators see others' tenants."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from starlette.exceptions import HTTPException

from console.page_context import PageContext, is_in_trouble, worst_first
from console.page_request import PageRequest
from console.pages.changes.key_changes import KEYS
from console.parts.layout import Page, still_page
from console.parts.markup import NOTHING, Child, Safe, tag
from console.parts.pieces import (
    badge,
    code,
    dead_path,
    facts_list,
    figure,
    nothing_yet,
    path_of,
    section,
    table,
    ways,
)
from console.parts.search_list import ROWS_MAX, ListQuery, SearchList, more_note
from shared import wording
from shared.config.access import ApiKey, Tenant
from shared.event.topics import pipeline_of
from shared.proof.overview import SEVERITY, DestinationView, StreamVerdict, StreamView, worst

PATH = "/tenants"
_ONLY = {"": "all tenants", "trouble": "tenants in trouble"}
# The things whose number a tenant's quota limits, as people name them.
_BOUNDS = ("streams", "partitions", "destinations", "pipelines", "tables", "channels", "keys")


@dataclass(slots=True)
class _Holding:
    """A tenant's things and their state."""

    name: str
    quotas: Tenant | None = None
    streams: list[StreamView] = field(default_factory=list)
    # Destinations, and pipelines that read.
    takers: list[DestinationView] = field(default_factory=list)
    keys: list[ApiKey] = field(default_factory=list)
    # All configured things, observed or not.
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_BOUNDS, 0))

    @property
    def verdict(self) -> StreamVerdict:
        return worst(
            [*(view.verdict for view in self.streams), *(view.verdict for view in self.takers)]
        )

    @property
    def dead(self) -> int:
        return sum(view.balance.dead for view in self.takers)

    @property
    def events_per_s(self) -> float:
        return sum(stream.events_per_s for stream in self.streams)

    @property
    def why(self) -> str:
        """Why the worst destination or pipeline is in trouble; empty if none is."""
        bad = [each for each in worst_first(self.takers) if is_in_trouble(each.verdict)]
        return f"{_name_of(bad[0])}: {bad[0].reason}" if bad else ""

    @property
    def quota(self) -> str:
        rates = self.quotas.rates if self.quotas else {}
        return ", ".join(f"{rate:,.15g} {of}/s" for of, rate in rates.items()) or "none"


async def tenants_page(asked: PageRequest) -> Page:
    query = ListQuery.of(asked.fields, _ONLY)
    matches = [
        each
        for each in _holdings(asked).values()
        if query.text in each.name and (not query.only or is_in_trouble(each.verdict))
    ]
    matches.sort(key=lambda each: (-SEVERITY.index(each.verdict), each.name))
    listed = SearchList(PATH, "tenant", _ONLY, query, matches)
    heads = ("Tenant", "Verdict", "Why", "Quota", "Events/s", "Streams", "Destinations", "Keys",
             "Dead")  # fmt: skip
    rows: list[list[Child]] = [
        [
            tag("a", each.name, href=_path(each.name)),
            badge(each.verdict),
            tag("span", each.why, class_="why") if each.why else "",
            each.quota,
            f"{each.events_per_s:,.1f}",
            *(wording.count(each.counts[name]) for name in ("streams", "destinations", "keys")),
            wording.count(each.dead),
        ]
        for each in listed.shown
    ]
    lead = "" if asked.viewer.is_operator else " Only operators see other tenants."
    return still_page(
        "Tenants",
        PATH,
        "tenants",
        tag("h1", "Tenants"),
        listed.search,
        tag("p", listed.said, lead, class_="lead"),
        table(heads, rows, caption="Tenants, worst first", numbers_from=4) if rows else NOTHING,
        listed.more,
        status=listed.said,
    )


async def tenant_page(asked: PageRequest) -> Page:
    name = asked.path.removeprefix(f"{PATH}/")
    holding = _holdings(asked).get(name)
    if holding is None:
        raise HTTPException(404, "There is no such tenant, or it is not yours.")
    keys = f"{KEYS}?{urlencode({'tenant': name})}"
    changes = f"/changes?{urlencode({'tenant': name})}"
    links = ways([("Keys", keys), ("Changes", changes)])
    return still_page(
        f"Tenant {name}",
        PATH,
        "tenant",
        tag("p", tag("a", "Tenants", href=PATH), " / ", name, class_="crumbs"),
        tag("h1", name, " ", badge(holding.verdict)),
        tag("p", holding.why, class_="lead") if holding.why else NOTHING,
        facts_list(_facts(holding)),
        tag("p", links),
        section("Streams", _streams(holding, asked)),
        section("Destinations and pipelines", _takers(holding, asked)),
        section("Keys", _keys(holding, keys)),
        status=f"{name}: {holding.verdict.value}",
    )


def _holdings(asked: PageRequest) -> dict[str, _Holding]:
    """Return the tenants that the viewer may see, each with its things, by name."""
    sees_all, viewer, known = asked.viewer.is_operator, asked.viewer, asked.context.configuration
    context = asked.context if sees_all else asked.context.seen_by(viewer)
    named: dict[str, _Holding] = {}

    def of(tenant: str) -> _Holding:
        return named.setdefault(tenant, _Holding(tenant, known.tenants.get(tenant)))

    for tenant in (*known.tenants, *([viewer.tenant] if viewer.tenant else [])):
        of(tenant)
    for key in known.keys.values() if sees_all else asked.keys:
        of(key.tenant).keys.append(key)
    for kind, tenant in _set_up(context, set(asked.streams), sees_all=sees_all):
        of(tenant).counts[kind] += 1
    for stream in context.overview.streams:
        of(context.tenant_of(stream.name)).streams.append(stream)
    for view in context.overview.takers:
        of(context.tenant_of(view.stream)).takers.append(view)
    for each in named.values():
        each.counts["keys"] = len(each.keys)
    # Unknown streams have no tenant: leave out the empty name.
    return {
        name: each for name, each in named.items() if name and (sees_all or name == viewer.tenant)
    }


def _set_up(
    context: PageContext, streams: set[str], *, sees_all: bool
) -> Iterable[tuple[str, str]]:
    """Yield the kind and the tenant of each configured thing."""
    known = context.configuration
    for stream in known.streams.values():
        if sees_all or stream.name in streams:
            yield "streams", stream.tenant
            yield from [("partitions", stream.tenant)] * stream.partition_count
    for destination in known.destinations.values():
        if sees_all or destination.stream in streams:
            yield "destinations", known.tenant_of(destination.stream)
    for pipeline in known.pipelines.values():
        if sees_all or pipeline.streams <= streams:
            yield "pipelines", pipeline.tenant
    for made in known.tables.values():
        yield "tables", made.tenant
    for channel in known.channels.values():
        yield "channels", channel.tenant


def _facts(holding: _Holding) -> list[tuple[str, Child]]:
    facts: list[tuple[str, Child]] = [
        ("Events/s", f"{holding.events_per_s:,.1f}"),
        ("Dead", wording.count(holding.dead)),
        ("Queued", wording.count(sum(view.balance.queued for view in holding.takers))),
        ("Quota", holding.quota),
    ]
    for name in _BOUNDS:
        most = getattr(holding.quotas, f"{name}_max", None)
        count = wording.count(holding.counts[name])
        facts.append((name.capitalize(), count if most is None else f"{count} of {most:,} at most"))
    return facts


def _streams(holding: _Holding, asked: PageRequest) -> Safe:
    views = sorted(holding.streams, key=lambda each: (-SEVERITY.index(each.verdict), each.name))
    if not views:
        return nothing_yet("Nothing is known yet about any stream of this tenant.")
    ours = set(asked.streams)
    rows: list[list[Child]] = [
        [
            _link(view.name, f"/streams/{view.name}", is_seen=view.name in ours),
            badge(view.verdict),
            tag("span", view.reason, class_="why") if view.reason else "",
            f"{view.events_per_s:,.1f}",
            wording.count(view.acked),
        ]
        for view in views[:ROWS_MAX]
    ]
    heads = ("Stream", "Verdict", "Why", "Events/s", "Events")
    listed = table(heads, rows, caption="Streams of this tenant, worst first", numbers_from=3)
    return tag("div", listed, more_note(len(views) - ROWS_MAX, "all streams", "/streams"))


def _takers(holding: _Holding, asked: PageRequest) -> Safe:
    views = worst_first(holding.takers)
    if not views:
        return nothing_yet("Nothing is known yet about any destination of this tenant.")
    ours = set(asked.streams)
    rows: list[list[Child]] = [
        [
            _link(_name_of(view), path_of(view), is_seen=view.stream in ours),
            badge(view.verdict),
            tag("span", view.reason, class_="why") if view.reason else "",
            wording.count(view.balance.queued),
            wording.count(view.balance.waiting),
            figure(
                wording.count(view.balance.dead),
                dead_path(stream=view.stream, destination=view.name)
                if view.balance.dead and view.stream in ours
                else "",
            ),
        ]
        for view in views[:ROWS_MAX]
    ]
    heads = ("Name", "Verdict", "Why", "Queued", "Waiting", "Dead")
    listed = table(heads, rows, caption="Destinations and pipelines, worst first", numbers_from=3)
    return tag("div", listed, more_note(len(views) - ROWS_MAX, "all destinations", "/destinations"))


def _name_of(view: DestinationView) -> str:
    """Return the name that people gave it; in the books a pipeline has an internal name."""
    pipeline = pipeline_of(view.destination_id)
    return view.destination_id if pipeline is None else f"pipeline {pipeline}"


def _keys(holding: _Holding, path: str) -> Safe:
    if not holding.keys:
        return nothing_yet("This tenant has no key.")
    names = sorted(key.id for key in holding.keys)[:ROWS_MAX]
    listed = [[", " if index else NOTHING, code(name)] for index, name in enumerate(names)]
    return tag("div", tag("p", listed), more_note(len(holding.keys) - ROWS_MAX, "all keys", path))


def _link(name: str, path: str, *, is_seen: bool) -> Child:
    """Return a link, or only the name if the viewer may not open the page."""
    return tag("a", name, href=path) if is_seen else name


def _path(tenant: str) -> str:
    return f"{PATH}/{quote(tenant)}"
