"""Destinations with limits that Hifi has not been told, in simulated time.

The limits: requests at once or per second, slower answers, a slow start, a moving limit.
Destinations receive nearly all that they can handle, and refuse little.
"""

import random
from dataclasses import dataclass

import pytest

from shared.config.destination import Destination
from shared.flow.flow import SendLimits
from shared.retry.attempt import Attempt, Response
from shared.retry.schedule import RetrySchedule
from tests.support.delivery.limited_servers import (
    AtOnce,
    Failing,
    Knee,
    LimitedServer,
    PerSecond,
    asks_for_a_second,
)
from tests.support.delivery.virtual_lane import VirtualLane

pytestmark = pytest.mark.simulation

# The time within which the limit is found.
FIND_S = 10


@dataclass
class Life(VirtualLane):
    """A lane that counts what its tasks got from a destination."""

    taken_count: int = 0
    # After the time in which the limit is to be found.
    late_count: int = 0
    refused_count: int = 0
    most_open: int = 0

    def note_ended(self, at_ms: float, attempt: Attempt) -> None:
        is_taken = attempt == Response(200)
        self.taken_count += is_taken
        if at_ms >= FIND_S * 1000:
            self.late_count += 1
            self.refused_count += not is_taken
        self.most_open = max(self.most_open, self.flow.breaker.open_count)


def lived(
    server: LimitedServer, *, seconds: float, parallel_max: int, task_count: int = 1
) -> tuple[float, float, Life]:
    """Return the used share of the capacity, the share of late requests refused, and the lane."""
    to = Destination("orders", "shop", "https://shop.example/in", parallel_max=parallel_max)
    life = Life(server.answer, SendLimits(to, RetrySchedule()), task_count)
    life.live(seconds)
    refused = life.refused_count / max(1, life.late_count)
    return life.taken_count / server.could_do(seconds), refused, life


def dice() -> random.Random:
    return random.Random(5)


# Cases in which a reviewer found Hifi stopped or at a tenth of the speed, and similar ones.
KNOWN: dict[str, tuple[LimitedServer, int, int]] = {
    "2 at once, 503": (AtOnce(lambda _: 2, 100, 503, dice()), 4, 1),
    "2 at once, 503, 4 tasks": (AtOnce(lambda _: 2, 100, 503, dice()), 4, 4),
    "2 at once, 429, 4 tasks": (AtOnce(lambda _: 2, 100, 429, dice()), 4, 4),
    "5 at once, 503, 4 tasks": (AtOnce(lambda _: 5, 100, 503, dice()), 16, 4),
    "5 at once, 429": (AtOnce(lambda _: 5, 100, 429, dice()), 16, 1),
    "20 a second, 503": (PerSecond(20, 100, 503, dice()), 4, 1),
    "20 a second, 503, quick": (PerSecond(20, 10, 503, dice()), 4, 4),
    "20 a second, 429, quick": (PerSecond(20, 10, 429, dice()), 4, 1),
    "100 a second, 503": (PerSecond(100, 50, 503, dice()), 16, 1),
    "100 a second, 429": (PerSecond(100, 50, 429, dice()), 16, 1),
    "knee at 10, half as long again": (Knee(10, 100, 1.5, dice()), 32, 1),
    "knee at 10, a tenth as long again": (Knee(10, 100, 1.1, dice()), 32, 1),
    "20 a second, 429 for 1 s": (asks_for_a_second(PerSecond(20, 10, 429, dice())), 4, 1),
    "100 a second, 429 for 1 s": (asks_for_a_second(PerSecond(100, 50, 429, dice())), 16, 1),
    "2 at once, 429 for 1 s": (asks_for_a_second(AtOnce(lambda _: 2, 100, 429, dice())), 4, 4),
    "5 at once, 503 for 1 s": (asks_for_a_second(AtOnce(lambda _: 5, 100, 503, dice())), 16, 1),
    "slow start": (AtOnce(lambda s: max(1, min(10, s / 3)), 100, 503, dice()), 16, 1),
    "4 or 8 at once by turns": (AtOnce(lambda s: 4 + 4 * (s // 30 % 2), 100, 503, dice()), 16, 1),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_destination_gets_what_it_can_do_and_little_that_it_refuses(name: str) -> None:
    server, parallel_max, task_count = KNOWN[name]
    did, refused, life = lived(server, seconds=60, parallel_max=parallel_max, task_count=task_count)
    assert did >= 0.8
    assert refused < 0.05
    assert life.most_open == 0


def seeded(seed: int) -> tuple[LimitedServer, int, int]:
    """Return a limit of some shape and size, and up to four tasks."""
    shape = random.Random(seed)
    status = shape.choice([429, 503])
    answer_ms = shape.choice([10.0, 50.0, 100.0, 300.0])
    limit = shape.randint(2, 12)
    moved, every_s = shape.randint(2, 12), shape.choice([60, 300, 900])
    start_s = shape.choice([20, 60])
    servers: list[LimitedServer] = [
        AtOnce(lambda _: limit, answer_ms, status, shape),
        PerSecond(shape.choice([10, 20, 50, 100]), answer_ms, status, shape),
        # Answers that are less than 25 ms later count as the scheduler's noise.
        Knee(limit, max(50.0, answer_ms), shape.choice([1.1, 1.3, 1.5]), shape),
        AtOnce(lambda s: max(1, min(limit, limit * s / start_s)), answer_ms, status, shape),
        AtOnce(lambda s: moved if s // every_s % 2 else limit, answer_ms, status, shape),
    ]
    return servers[seed % len(servers)], shape.choice([16, 32]), shape.randint(1, 4)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_so_it_does_over_an_hour_whatever_its_limit_is(seed: int) -> None:
    server, parallel_max, task_count = seeded(seed)
    seconds = 3_600
    did, refused, _ = lived(
        server, seconds=seconds, parallel_max=parallel_max, task_count=task_count
    )
    assert did >= 0.8
    assert refused < 0.05


@pytest.mark.parametrize("part", [0.02, 0.1])
def test_failures_that_no_pace_can_help_do_not_slow_it_down_for_long(part: float) -> None:
    did, _, life = lived(Failing(part, 50, random.Random(3)), seconds=600, parallel_max=16)
    assert did >= 0.6
    assert life.most_open == 0
