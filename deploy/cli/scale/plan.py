"""`hifi plan`: plans the AWS resources for your traffic, with the bottleneck and the cost."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from deploy.cli.options import made_of
from deploy.cli.printing import out, print_json, print_table
from deploy.cli.scale.ask_options import Members, promises_of, traffic_of
from deploy.cli.scale.inputs import (
    PRICES,
    RATINGS,
    RatingsFolder,
    read_prices,
    read_ratings,
    said_plainly,
    warn,
)
from shared.scale.ask import Ask
from shared.scale.catalogue import Catalogue
from shared.scale.site_file import site_sizes, to_toml
from shared.scale.sizing import Group, Sizing, sizing_of
from shared.scale.topic_sizes import days
from shared.scale.traffic import DAY_S

_GB = 10**9
_ZONES = "over 3 zones"


class PlanOutput(StrEnum):
    """For people, for programs, and for deploy/aws."""

    TABLE = "table"
    JSON = "json"
    TOML = "toml"


@made_of(traffic=traffic_of, promises=promises_of)
def plan(  # noqa: PLR0917 - typer makes an option of each
    traffic: Members,
    promises: Members,
    gateway_instance: Annotated[
        str, typer.Option(help="Machine type for the gateway.")
    ] = "c7g.2xlarge",
    delivery_instance: Annotated[
        str, typer.Option(help="Machine type for delivery and the retrier.")
    ] = "c7g.2xlarge",
    ratings: RatingsFolder = RATINGS,
    prices: Annotated[
        Path, typer.Option(metavar="FILE", help="Machines, limits and prices, with their date.")
    ] = PRICES,
    output: Annotated[
        PlanOutput, typer.Option("--output", "-o", help="TOML: sizes for deploy/aws.")
    ] = PlanOutput.TABLE,
) -> None:
    """Plan the AWS resources for your traffic: their sizes, the bottleneck and the cost.

    Give two of events per second, bytes per event and bytes per day. Each line says whether its
    figure was measured or calculated; docs/sizing.md has the rules.

        hifi plan --events-per-s 120000 --per-day 5TB --fan-out 2

        hifi plan --events-per-s 1000000 --event-bytes 1000 --output toml > sizes.toml
    """
    with said_plainly():
        given = read_prices(prices)
        known = read_ratings(ratings)
        sizing = sizing_of(
            Ask(**traffic, **promises),
            given,
            known,
            gateway_instance=gateway_instance,
            delivery_instance=delivery_instance,
        )
    _show(sizing, given, output)
    warn(known, sizing.gateways.rating_name, sizing.delivery.rating_name)


def _show(sizing: Sizing, given: Catalogue, output: PlanOutput) -> None:
    sizes = site_sizes(sizing, region=given.region, prices_at=given.at)
    if output is PlanOutput.TOML:
        out.out(to_toml(sizes))
    elif output is PlanOutput.JSON:
        print_json(_as_json(sizing, given) | {"site": msgspec.to_builtins(sizes)})
    else:
        _print(sizing, given)


def _as_json(sizing: Sizing, given: Catalogue) -> dict[str, object]:
    whole: dict[str, object] = msgspec.to_builtins(sizing)
    brokers = sizing.brokers
    return whole | {
        "binds": sizing.binds.resource,
        "needs": [asdict(need) | {"headroom": need.headroom} for need in sizing.needs],
        "brokers": {
            "size": brokers.size.name,
            "count": brokers.count,
            "taken": brokers.taken,
            "binds": brokers.binds,
        },
        "topics": [
            asdict(topic) | {"stored_bytes": topic.stored_bytes, "out_bytes_s": topic.out_bytes_s}
            for topic in sizing.topics
        ],
        "usd_month": sizing.usd_month,
        "prices": {"region": given.region, "at": given.at, "sources": dict(given.sources)},
    }


def _print(sizing: Sizing, given: Catalogue) -> None:
    ask = sizing.ask
    bytes_s = ask.events_per_s * ask.event_bytes
    a_day = bytes_s * ask.mean_share * DAY_S
    away = "with one of three zones down" if ask.survives_zone else "with all zones up"
    out.print(
        f"{ask.events_per_s:,.0f} events/s of {ask.event_bytes:,} bytes ({_amount(bytes_s)}/s;"
        f" {_amount(a_day)} on a mean day) to {ask.fan_out:g} destination(s) each, kept for"
        f" {ask.retention_s / DAY_S:g} days, {away}:\n"
    )
    print_table(("what", "size", "count", ""), list(_machines(sizing)))
    out.print()
    rows = [
        (
            need.resource + (" <- limit" if need is sizing.binds else ""),
            need.basis,
            f"{need.needed:,.0f}",
            f"{need.there_is:,.0f}" if need.there_is < math.inf else "-",
            need.unit,
            f"{need.headroom - 1:.0%}" if need.headroom < math.inf else "-",
        )
        for need in sizing.needs
    ]
    print_table(("at the peak", "source", "needed", "capacity", "", "room"), rows, numbers=4)
    out.print()
    topics = [
        (
            topic.name,
            f"{topic.partitions}",
            f"{topic.in_bytes_s / 1e6:,.1f}",
            f"{topic.out_bytes_s / 1e6:,.1f}",
            f"{days(topic):g}",
            f"{topic.stored_bytes / _GB:,.0f}",
        )
        for topic in sizing.topics
    ]
    heads = ("topics", "partitions", "MB/s in", "MB/s out", "days", "GB in one copy")
    print_table(heads, topics, numbers=5)
    out.print()
    costs = [(cost.what, f"{cost.usd_month:,.0f}") for cost in sizing.costs]
    print_table(
        (f"a month in {given.region}, prices of {given.at}", "USD"),
        [*costs, ("total", f"{sizing.usd_month:,.0f}")],
        numbers=1,
    )
    out.print()
    for text in _notes(sizing):
        out.print(text)


def _machines(sizing: Sizing) -> Iterator[tuple[str, ...]]:
    brokers, flows = sizing.brokers, sizing.flows
    yield "Kafka brokers", brokers.size.name, f"{brokers.count}", _ZONES
    for group in (sizing.gateways, sizing.delivery):
        yield f"{group.what} machines", group.instance.name, f"{group.count}", _ZONES
    units = f"{sizing.balancer_units:,.0f}"
    yield "load balancer", "capacity units", units, "1 GB an hour each"
    crossing = f"{flows.crossing / 1e6:,.0f}"
    yield "between zones", "MB/s", crossing, "on a mean day"


def _notes(sizing: Sizing) -> Iterator[str]:
    binds = sizing.binds
    yield f"The limit: {binds.resource}; full at {binds.headroom:.2f} times this traffic."
    for group in (sizing.gateways, sizing.delivery):
        yield _note(group)
    yield "Documented: the vendor's limits, not measured on AWS."


def _note(group: Group) -> str:
    how = (
        f"as rated in {group.rating_name}"
        if group.basis == "measured"
        else f"extrapolated from {group.rating_name}: {group.note}"
    )
    return (
        f"A {group.what} machine does {group.rating:,.0f} events/s, {how};"
        f" used to {group.use:.0%} at the peak."
    )


def _amount(byte_rate: float) -> str:
    for unit, size in (("PB", 10**15), ("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if byte_rate >= size:
            return f"{byte_rate / size:,.4g} {unit}"
    return f"{byte_rate / 1_000:,.4g} kB"
