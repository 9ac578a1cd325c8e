"""Makes a past for charts: streams that accept, a destination that works, one that is down."""

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from observe.series.series import SETTLES, Series
from observe.series.steps import STEP_MS, DestinationStep, EndedStep
from shared.proof.log_buckets import LogBuckets
from tests.support.suite import samples

WELL = DestinationStep(10, 1_000, 0, 0, 0, 50, 0, 0, 0, 0, oldest_s=0.4, backlog=12)
DOWN = DestinationStep(10, 0, 0, 300, 0, 0, 0, 0, 30, 0, backlog=0)
NOT_LATE = samples.log_buckets([200] * 99 + [900])


def no_past() -> Series:
    """Return a series without any data."""
    return open_series(Path(tempfile.mkdtemp(prefix="hifi-series-")))


def open_series(folder: Path) -> Series:
    series = Series(folder)
    series.open()
    return series


def an_ended(number: int = 0) -> EndedStep:
    """Return a step; with each, more events wait longer for the destination that is down."""
    down = DOWN._replace(oldest_s=10.0 * number, backlog=100.0 * number)
    taken = {
        "orders/billing": (WELL, NOT_LATE),
        "orders/lake": (down, LogBuckets()),
        "players/stats": (WELL, NOT_LATE),
    }
    return EndedStep({"orders": 1_000, "players": 1_000}, taken)


def fill(series: Series, *, now_ms: int, steps: int = 90) -> None:
    """Fill the last `steps` steps of the first range, up to now."""
    newest = now_ms // STEP_MS - SETTLES
    for number, step in enumerate(range(newest - steps + 1, newest + 1)):
        assert series.end_step(step, an_ended(number))


def fill_many(series: Series, names: Sequence[str], *, now_ms: int) -> None:
    """Fill the last 15 minutes of many destinations, no two alike; each fails sometimes."""
    chance = random.Random(7)
    newest = now_ms // STEP_MS - SETTLES
    for step in range(newest - 89, newest + 1):
        taken = {}
        for name in names:
            failed = chance.randrange(90) if chance.random() < 0.1 else 0
            counts = (chance.randrange(900), 0, failed, 0, chance.randrange(50), 0, 0, failed, 0)
            waits = DestinationStep(
                10, *counts, oldest_s=chance.random(), backlog=chance.randrange(90)
            )
            taken[name] = (waits, NOT_LATE)
        assert series.end_step(step, EndedStep({"orders": chance.randrange(9_000)}, taken))
