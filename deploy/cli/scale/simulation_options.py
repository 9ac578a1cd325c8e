"""Makes the options of a simulated day, and of the fleet that follows it."""

import random
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli.scale.inputs import (
    RATINGS,
    RatingsFolder,
    read_ratings,
    read_text,
    said_plainly,
    warn,
)
from shared.config.destination import SHARDS_MAX, Destination
from shared.runtime.setup_error import UsageError
from shared.scale.ask import DESTINATION_BATCH
from shared.scale.fleet import FleetPlan, LaneLoad
from shared.scale.ratings import best_rating
from shared.scale.throughput import Proportional
from shared.scale.traffic import Curve, curve_of, noisy, rates_in, rates_of


class Shape(StrEnum):
    """The names of the predefined days; shared/scale/traffic.py makes their curves."""

    STEADY = "steady"
    DIURNAL = "diurnal"
    SPIKY = "spiky"
    FLASH_CROWD = "flash-crowd"


@dataclass(frozen=True, slots=True)
class SimulatedDay:
    """The arrivals of a simulated day, and their name."""

    name: str
    curve: Curve


def day_of(  # noqa: PLR0917 - typer makes an option of each
    shape: Annotated[Shape, typer.Argument(help="Kind of day.")] = Shape.SPIKY,
    trace: Annotated[
        Path | None,
        typer.Option("--from", metavar="CSV", help="A recorded day instead: time,events/s."),
    ] = None,
    mean: Annotated[float, typer.Option(help="Events per second of a mean day.", min=1)] = 100_000,
    hours: Annotated[float, typer.Option(help="Hours to simulate.", min=0.01, max=168)] = 24,
    noise: Annotated[float, typer.Option(help="Noise of each second.", min=0, max=1)] = 0.03,
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 1,
) -> SimulatedDay:
    if trace is not None:
        # A recorded day has its own noise.
        with said_plainly():
            return SimulatedDay(trace.name, curve_of(rates_in(read_text(trace))))
    dice = random.Random(seed)  # noqa: S311 - repeatable noise, not a secret
    rates = rates_of(shape.value, mean=mean, length_s=round(3_600 * hours))
    return SimulatedDay(shape.value, curve_of(noisy(rates, noise, lambda: dice.gauss(0, 1))))


def fleet_of(  # noqa: PLR0917 - as above
    rating: Annotated[
        float | None, typer.Option(help="Events per second of a machine. Default: rated.", min=1)
    ] = None,
    cores: Annotated[int, typer.Option(help="Cores of a machine, for its rating.", min=1)] = 2,
    ratings: RatingsFolder = RATINGS,
    boot: Annotated[int, typer.Option(help="Seconds until a new machine works.", min=0)] = 90,
    metric: Annotated[int, typer.Option(help="Seconds that a metric averages.", min=1)] = 10,
    metric_delay: Annotated[int, typer.Option(help="Seconds until a metric is known.", min=0)] = 10,
    handover: Annotated[int, typer.Option(help="Seconds that a moving lane stops.", min=0)] = 3,
    failover: Annotated[
        int, typer.Option(help="Seconds that a lane stops if its machine is lost.", min=0)
    ] = 45,
    zone_loss_hour: Annotated[
        float | None, typer.Option(help="Hour when one of three zones fails.", min=0)
    ] = None,
    count_min: Annotated[int, typer.Option("--min", help="Machines at least.", min=1)] = 3,
    count_max: Annotated[int, typer.Option("--max", help="Machines at most.", min=1)] = 100,
    late: Annotated[int, typer.Option(help="Seconds after which an event is late.", min=1)] = 5,
) -> FleetPlan:
    if count_min > count_max:
        raise UsageError(f"--min {count_min} is above --max {count_max}: lower it.")
    with said_plainly():
        each = rating or _rating(ratings, cores)
    return FleetPlan(
        throughput=Proportional(each),
        boot_s=boot,
        metric_s=metric,
        metric_delay_s=metric_delay,
        handover_s=handover,
        failover_s=failover,
        count_min=count_min,
        count_max=count_max,
        zone_lost_at_s=None if zone_loss_hour is None else round(3_600 * zone_loss_hour),
        late_s=late,
    )


@dataclass(frozen=True, slots=True)
class LaneCounts:
    """The spread of a day's events over lanes: lane n gets 1/n^skew of the first lane's events."""

    lanes: int
    shards: int
    held: int
    skew: float

    def loads(self, curve: Curve) -> list[LaneLoad]:
        """Return a load for each shard; the smallest lanes are held."""
        sizes = [1 / number**self.skew for number in range(1, self.lanes + 1)]
        whole = self.shards * sum(sizes)
        return [
            LaneLoad(curve, size / whole, name, is_held=number >= self.lanes - self.held)
            for number, size in enumerate(sizes)
            for name in self._names(number)
        ]

    def _names(self, number: int) -> list[str]:
        url = "https://events.example.com/"
        return Destination(f"s{number}", "all", url, shards=self.shards).shard_names


def lanes_of(
    lanes: Annotated[int, typer.Option(help="Destinations.", min=1, max=10_000)] = 50,
    shards: Annotated[
        int, typer.Option(help="Shards of each destination.", min=1, max=SHARDS_MAX)
    ] = 1,
    held: Annotated[int, typer.Option(help="Lanes that wait for their destination.", min=0)] = 0,
    skew: Annotated[
        float, typer.Option(help="Inequality: lane n gets 1/n^SKEW of the first's events.", min=0)
    ] = 0.0,
) -> LaneCounts:
    if held > lanes:
        raise UsageError(f"--held {held} is above --lanes {lanes}: lower it.")
    return LaneCounts(lanes, shards, held, skew)


def _rating(folder: Path, cores: int) -> float:
    known = read_ratings(folder)
    name = best_rating(known, "delivery", instance=None, batch=DESTINATION_BATCH)
    warn(known, name)
    return known[name].of_core * cores
