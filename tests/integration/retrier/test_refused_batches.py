"""A destination that refuses some events gets all others, however slowly it answers.

At first the destination is down, so that all events wait; then it refuses each request that
contains a bad event. The minimum number of requests is known: that many yes-or-no answers are
needed to identify the bad events (the information bound).
"""

import math
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from deploy.local.stack import Stack
from shared.config.destination import Destination
from tests.support.deploy.stack_fixtures import (
    QUICK_INTERVALS,
    RunningHifi,
    stack_settings,
    wait_until,
)
from tests.support.servers.scripted_destination import (
    Reply,
    Request,
    ScriptedDestination,
    scripted_destination,
)

pytestmark = pytest.mark.integration

PARALLEL = 32
# With this share of bad events: the time limits with answers after a second, and after a
# millisecond.
FRACTION, SLOW_S, QUICK_S = 0.06, 480.0, 45.0
# A neighbour gets an event this often, and first has Hifi to itself for this long.
NEIGHBOUR_EVERY_S, ALONE_S = 0.05, 40.0


@dataclass
class Crowd:
    """Events, some of which are refused, and their outcomes so far."""

    count: int
    fraction: float
    answer_s: float
    is_down: bool = True
    request_count: int = 0
    taken: set[int] = field(default_factory=set)
    refused_alone: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        bad_count = round(self.fraction * self.count)
        self.bad = set(random.Random(40).sample(range(self.count), bad_count))
        self._lock = threading.Lock()

    @property
    def bits(self) -> float:
        return math.log2(math.comb(self.count, len(self.bad)))

    @property
    def requests_max(self) -> float:
        return 1.5 * self.bits + (self.count - len(self.bad)) / 20

    @property
    def settled(self) -> int:
        return len(self.taken) + len(self.refused_alone)

    def answer(self, _: int, request: Request) -> Reply:
        if self.is_down:
            return Reply(503)
        numbers = {event["n"] for event in request.events}
        is_bad = not numbers.isdisjoint(self.bad)
        with self._lock:
            self.request_count += 1
            if not is_bad:
                self.taken |= numbers
            elif len(numbers) == 1:
                self.refused_alone |= numbers
        return Reply(422 if is_bad else 200, delay_s=self.answer_s)

    def wait_in(self, hifi: RunningHifi, to: Destination) -> None:
        """Post all events, and wait until they are in the retry tiers."""
        for first in range(0, self.count, 1_000):
            events = [{"n": n} for n in range(first, min(first + 1_000, self.count))]
            assert hifi.post(to.stream, events).status_code == 200
        hifi.wait_for_balance(to.id, lambda b: b.waiting == self.count, what="all events wait")


def check_books(hifi: RunningHifi, to: Destination, crowd: Crowd) -> None:
    good = crowd.count - len(crowd.bad)
    hifi.wait_for_balance(
        to.id, lambda b: b.delivered == good, what="the good events are delivered"
    )
    balance = hifi.wait_for_balance(to.id, lambda b: b.waiting == 0, what="nothing waits")
    assert (balance.dead, balance.unaccounted) == (len(crowd.bad), 0)
    assert crowd.refused_alone == crowd.bad


def test_a_refused_batch_goes_on_where_the_last_round_ended(hifi: RunningHifi) -> None:
    crowd = Crowd(600, FRACTION, answer_s=0.3)
    with scripted_destination(crowd.answer) as destination:
        to = Destination("refused", "to", destination.url, parallel_max=PARALLEL)
        hifi.add(to)
        crowd.wait_in(hifi, to)
        crowd.is_down = False
        wait_until(lambda: crowd.request_count > 0, what="the destination is asked again")
        begun_s = time.monotonic()
        wait_until(
            lambda: crowd.settled == crowd.count,
            what=lambda: f"{crowd.settled} of {crowd.count} after {crowd.request_count} requests",
            timeout_s=120.0,
        )
        print(f"{crowd.request_count} requests in {time.monotonic() - begun_s:.1f} s")  # noqa: T201
        assert crowd.request_count <= crowd.requests_max
        check_books(hifi, to, crowd)


@pytest.fixture(scope="module")
def patient_hifi(
    tmp_path_factory: pytest.TempPathFactory, jars_cache: Path
) -> Iterator[RunningHifi]:
    """Start a Hifi whose retry tiers have their real lengths."""
    settings = replace(stack_settings(tmp_path_factory.mktemp("patient"), jars_cache), time_scale=1)
    stack = Stack(settings, environ={**os.environ, **QUICK_INTERVALS}, say=lambda _: None)
    stack.start(lambda _: None)
    try:
        yield RunningHifi(stack)
    finally:
        stack.stop()


@contextmanager
def neighbour(hifi: RunningHifi, destination: ScriptedDestination, stream: str) -> Iterator[None]:
    """Send a neighbour's events, one after the other, each with its time of sending."""
    hifi.add(Destination(stream, "neighbour", destination.url))
    is_over = threading.Event()

    def send() -> None:
        while not is_over.wait(NEIGHBOUR_EVERY_S):
            assert hifi.post(stream, [{"sent_s": time.monotonic()}]).status_code == 200

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        is_over.set()
        sender.join()


def late_ms(destination: ScriptedDestination, *, since_s: float, until_s: float) -> float:
    """Return how late the latest of a hundred events sent in that time was."""
    late: list[float] = [
        request.received_s - event["sent_s"]
        for request in list(destination.accepted)
        for event in request.events
        if since_s <= event["sent_s"] < until_s
    ]
    return 1000 * sorted(late)[int(0.99 * len(late))]


def paces(crowd: Crowd, begun_s: float, timeout_s: float) -> Iterator[tuple[float, int]]:
    """Return how many are settled after each minute, and when all are."""
    minute = 1
    while crowd.settled < crowd.count:
        passed_s = time.monotonic() - begun_s
        assert passed_s < timeout_s, f"{crowd.settled} of {crowd.count} after {passed_s:.0f} s"
        if passed_s >= 60 * minute:
            yield passed_s, crowd.settled
            minute += 1
        time.sleep(0.2)
    yield time.monotonic() - begun_s, crowd.settled


@pytest.mark.long
@pytest.mark.timeout(1_500)
@pytest.mark.parametrize(
    ("fraction", "answer_s", "within_s"),
    [
        (0.06, 1.0, SLOW_S),
        (0.06, 0.001, QUICK_S),
        (0.01, 0.001, QUICK_S),
        # Three times as many requests as at 6 in 100.
        (0.3, 0.001, 4 * QUICK_S),
    ],
)
def test_20000_refused_in_part_are_done_in_time_and_cost_a_neighbour_nothing(
    patient_hifi: RunningHifi, fraction: float, answer_s: float, within_s: float
) -> None:
    crowd, hifi = Crowd(20_000, fraction, answer_s), patient_hifi
    stream = f"refused-{round(100 * fraction)}-{round(1000 * answer_s)}"
    with (
        scripted_destination(crowd.answer) as destination,
        scripted_destination() as well,
        neighbour(hifi, well, f"{stream}-beside"),
    ):
        to = Destination(stream, "to", destination.url, parallel_max=PARALLEL)
        hifi.add(to)
        time.sleep(10)
        alone_s = time.monotonic()
        time.sleep(ALONE_S)
        alone_ms = late_ms(well, since_s=alone_s, until_s=time.monotonic())
        crowd.wait_in(hifi, to)
        crowd.is_down, up_s = False, time.monotonic()
        # Waiting events wait for their tier's 30 s, and are not sent before.
        wait_until(
            lambda: crowd.request_count > 0, what="the destination is asked again", timeout_s=120
        )
        begun_s = time.monotonic()
        seen = list(paces(crowd, begun_s, 1.5 * within_s))
        beside_ms = late_ms(well, since_s=begun_s, until_s=time.monotonic())
        check_books(hifi, to, crowd)
    print(  # noqa: T201 - the figures
        f"{fraction:.0%} refused, answers after {answer_s:g} s: {crowd.request_count:,} requests"
        f" ({crowd.bits:,.0f} bits, {crowd.requests_max:,.0f} at most); asked"
        f" {begun_s - up_s:.0f} s after it was up, then"
        f" {', '.join(f'{settled:,} at {at_s:.0f} s' for at_s, settled in seen)};"
        f" a neighbour's p99 {alone_ms:.0f} ms alone, {beside_ms:.0f} ms beside it"
    )
    assert crowd.request_count <= crowd.requests_max
    assert seen[-1][0] <= within_s
    for at_s, settled in seen:
        assert settled >= crowd.count * at_s / within_s / 2
    assert beside_ms <= max(1.5 * alone_ms, alone_ms + 20)
