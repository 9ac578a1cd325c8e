"""A sender with endless work, and destinations with various habits, in simulated time.

Two of the stories are faults that Vector's adaptive concurrency has had: swinging between all and
nothing on 429 (its issue 3998), and staying slow after a recovery (12960).
"""

import random
from dataclasses import dataclass, field

import pytest

from shared.config.destination import Destination
from shared.flow.flow import SendLimits
from shared.retry.attempt import Attempt, Failure, NoResponse, Response
from shared.retry.schedule import RetrySchedule
from tests.support.delivery.virtual_lane import Answering, VirtualLane

pytestmark = pytest.mark.simulation

BATCH = 100
LIMITS = SendLimits(
    Destination("orders", "shop", "https://shop.example/in", parallel_max=32), RetrySchedule()
)


@dataclass
class Life(VirtualLane):
    """A lane that notes when each request was sent, how it ended, and how many were under way."""

    sent_ms: list[float] = field(default_factory=list)
    ended: list[tuple[float, Attempt]] = field(default_factory=list)
    running: list[tuple[float, int]] = field(default_factory=list)

    def note_sent(self, at_ms: float, running_count: int) -> None:
        self.sent_ms.append(at_ms)
        self.running.append((at_ms, running_count))

    def note_ended(self, at_ms: float, attempt: Attempt) -> None:
        self.ended.append((at_ms, attempt))

    def events_taken(self, start_s: float, end_s: float) -> int:
        return BATCH * sum(
            start_s * 1000 <= at_ms < end_s * 1000 and attempt == Response(200)
            for at_ms, attempt in self.ended
        )

    def count(self, status: int) -> int:
        return sum(isinstance(a, Response) and a.status == status for _, a in self.ended)


def live(answer: Answering, *, seconds: float) -> Life:
    """Let one task run for this long, and return its records."""
    life = Life(answer, LIMITS, batch_count=BATCH)
    life.live(seconds)
    return life


def test_a_dead_destination_gets_a_probe_now_and_then_and_no_storm() -> None:
    refused = NoResponse(Failure.CONNECT_REFUSED)
    life = live(lambda _: (refused, 1), seconds=3_600)
    # Ten requests until the breaker opens; then after 30, 60, 120, 240, 480 s and every 15 minutes.
    assert len(life.sent_ms) <= 10 + 2 + 8
    assert sum(at_ms > 60_000 for at_ms in life.sent_ms) <= 8


def test_a_slow_destination_is_not_hammered_either() -> None:
    timed_out = NoResponse(Failure.READ_TIMEOUT)
    life = live(lambda _: (timed_out, 15_000), seconds=1_800)
    assert len(life.sent_ms) <= 20
    assert max(running for at_ms, running in life.running if at_ms > 0) <= 2


def throttling(events_per_s: int) -> Answering:
    """Answer as a destination that takes this many events a second, and asks others to wait 1 s."""
    taken: dict[int, int] = {}

    def answer(at_ms: float) -> tuple[Attempt, float]:
        second = int(at_ms // 1000)
        if taken.get(second, 0) + BATCH > events_per_s:
            return Response(429, "1"), 10
        taken[second] = taken.get(second, 0) + BATCH
        return Response(200), 10

    return answer


def test_a_throttling_destination_gets_nearly_all_it_takes_without_swinging() -> None:
    life = live(throttling(2_000), seconds=180)
    assert life.events_taken(60, 180) >= 0.7 * 2_000 * 120
    assert life.count(429) <= 0.05 * len(life.sent_ms)
    # No half minute is idle.
    for start_s in range(60, 180, 30):
        assert life.events_taken(start_s, start_s + 30) >= 0.5 * 2_000 * 30
        sent = sum(start_s * 1000 <= at_ms < (start_s + 30) * 1000 for at_ms in life.sent_ms)
        assert sent <= 1.2 * 20 * 30


def outage(begin_s: float, end_s: float) -> Answering:
    def answer(at_ms: float) -> tuple[Attempt, float]:
        is_away = begin_s * 1000 <= at_ms < end_s * 1000
        return (Response(503), 50) if is_away else (Response(200), 500)

    return answer


def test_after_an_outage_it_ramps_up_from_one_and_is_soon_as_fast_as_before() -> None:
    life = live(outage(60, 660), seconds=1_290)
    taken_ms = [at_ms for at_ms, attempt in life.ended if attempt == Response(200)]
    back_ms = min(at_ms for at_ms in taken_ms if at_ms >= 660_000)
    # The longest wait of a breaker that opened five times, plus its jitter.
    assert back_ms <= (660 + 480 * 1.2) * 1000
    ramp = [running for at_ms, running in life.running if 0 <= at_ms - back_ms < 5_000]
    assert ramp[:3] == [1, 1, 1]
    # The limit doubles until it is half of the old one, and then rises by one in each window.
    had = max(running for at_ms, running in life.running if at_ms < 60_000)
    assert max(ramp) <= had / 2 + 10
    well = live(lambda _: (Response(200), 500), seconds=60)
    soon_s = back_ms / 1000 + 25
    assert life.events_taken(soon_s, soon_s + 30) >= 0.9 * well.events_taken(30, 60)


def test_a_destination_that_can_do_eight_at_once_is_found_out() -> None:
    """Beyond eight requests at once the destination answers later; beyond sixteen it fails."""

    busy_until_ms: list[float] = []

    def answer(at_ms: float) -> tuple[Attempt, float]:
        busy_until_ms[:] = [until_ms for until_ms in busy_until_ms if until_ms > at_ms]
        if len(busy_until_ms) == 16:
            return Response(503), 20
        latency_ms = 100 * max(8, len(busy_until_ms) + 1) // 8
        busy_until_ms.append(at_ms + latency_ms)
        return Response(200), latency_ms

    life = live(answer, seconds=120)
    steady = [running for at_ms, running in life.running if at_ms > 30_000]
    assert 6 <= sum(steady) / len(steady) <= 16
    assert life.count(503) <= 0.05 * len(life.sent_ms)
    assert life.events_taken(30, 120) >= 0.8 * 80 * BATCH * 90


def test_a_destination_that_flaps_gets_what_it_takes_and_is_not_given_up() -> None:
    dice = random.Random(3)

    def answer(_: float) -> tuple[Attempt, float]:
        return (Response(200), 30) if dice.random() < 0.6 else (Response(500), 30)

    life = live(answer, seconds=120)
    assert life.count(200) > 0.5 * life.count(500)
    assert life.events_taken(60, 120) > 0
    assert not life.flow.disabled_at_ms
