"""`hifi simulate`: simulates a day of traffic under several scaling policies."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli.options import made_of
from deploy.cli.printing import out, print_json, print_table, talk
from deploy.cli.scale.inputs import AsOutput, Output, said_plainly
from deploy.cli.scale.simulation_options import (
    LaneCounts,
    SimulatedDay,
    day_of,
    fleet_of,
    lanes_of,
)
from deploy.cli.scale.simulation_page import simulation_page
from shared.runtime.setup_error import UsageError
from shared.scale.fleet import FleetPlan, FleetRun, simulate
from shared.scale.policy import policy_of

# Hifi's own policy, the same policy run by AWS, AWS's usual one, and two that react to lag.
POLICIES = ("load:0.7", "aws-load:0.7", "cpu:0.6", "cpu:0.6+lag:5", "lag:5")
# The fleet's utilisation in the day's first minute, so that every policy starts at a fair size.
_FIRST_USE, _FIRST_S = 0.6, 60


@made_of(day=day_of, fleet=fleet_of, lanes=lanes_of)
def simulate_(  # noqa: PLR0917 - typer makes an option of each
    day: SimulatedDay,
    fleet: FleetPlan,
    lanes: LaneCounts,
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="POLICY", help="Policy, such as load:0.7; repeat for more."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with plots as well.")
    ] = None,
    output: AsOutput = Output.TABLE,
) -> None:
    """Simulate a day of traffic under several scaling policies, and compare the results.

    It simulates a delivery group second by second: arrivals, booting machines, late metrics, and
    lanes that stop while they move. docs/sizing.md lists what it leaves out.

        hifi simulate spiky --policy load:0.7 --policy cpu:0.6 --html day.html

        hifi simulate --from prometheus.csv --zone-loss-hour 12
    """
    loads = lanes.loads(day.curve)
    first_s = min(_FIRST_S, len(day.curve) - 1)
    needed = day.curve[first_s] / first_s / fleet.throughput.of(1)
    fleet = replace(fleet, count_first=math.ceil(needed / _FIRST_USE))
    with said_plainly():
        policies = {text: policy_of(text) for text in policy or POLICIES}
    runs = {text: simulate(loads, fleet, each) for text, each in policies.items()}
    summary = _said(day, fleet, lanes.lanes)
    if html is not None:
        _write(html, simulation_page(summary, runs))
    if output is Output.JSON:
        figures = {text: _figures(run) for text, run in runs.items()}
        print_json({"fleet": asdict(fleet), "policies": figures})
    else:
        out.print(summary + "\n")
        _print(runs, fleet.late_s)


def _write(path: Path, page: str) -> None:
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
    talk.print(f"The page is {path}.")


def _figures(run: FleetRun) -> dict[str, float]:
    return {
        "late_share": run.late_share,
        "worst_age_s": run.worst_age_s,
        "mean_wait_s": run.mean_wait_s,
        "machine_hours": run.instance_hours,
        "machines_max": max(run.ready, default=0),
        "steps": run.steps,
        "arrived": run.arrived,
        "delivered": run.delivered,
        "waiting": run.waiting,
        "held": run.held,
    }


def _said(day: SimulatedDay, plan: FleetPlan, lanes: int) -> str:
    curve, length_s = day.curve, len(day.curve) - 1
    zone = "" if plan.zone_lost_at_s is None else f"; a zone fails at {_clock(plan.zone_lost_at_s)}"
    return (
        f"{day.name}: {length_s / 3_600:g} h, {curve[-1]:,} events,"
        f" {curve[-1] / length_s:,.0f} events/s on average, {lanes} lanes; a machine does"
        f" {plan.throughput.of(1):,.0f} events/s and boots in {plan.boot_s} s; metrics average"
        f" {plan.metric_s} s and come {plan.metric_delay_s} s late{zone}."
    )


def _clock(at_s: int) -> str:
    return f"{at_s // 3_600:02}:{at_s // 60 % 60:02}"


def _print(runs: Mapping[str, FleetRun], late_s: int) -> None:
    print_table(
        (
            *("policy", f"late (> {late_s} s)", "worst age s", "mean wait s"),
            *("machine hours", "most", "steps", "waiting"),
        ),
        list(_rows(runs)),
        numbers=7,
    )


def _rows(runs: Mapping[str, FleetRun]) -> Iterator[tuple[str, ...]]:
    for policy, run in runs.items():
        yield (
            policy,
            f"{run.late_share:.2%}",
            f"{run.worst_age_s:,}",
            f"{run.mean_wait_s:,.2f}",
            f"{run.instance_hours:,.0f}",
            f"{max(run.ready, default=0)}",
            f"{run.steps}",
            f"{run.waiting + run.held:,}",
        )
