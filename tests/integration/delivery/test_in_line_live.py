"""A stream keeps its order through every answer of its destination and every kill.

The usual run kills one worker. `make test-long ARGS="-k in_its_order --kills=10"` also kills a
worker ten times, and a driver ten times.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pytest

from shared.config.destination import Destination
from shared.runtime.clock import now_ms
from tests.integration.delivery.test_kills import Campaign, kill_driver, kill_worker
from tests.support.deploy.stack_fixtures import PATIENCE_S, RunningHifi, fetch, wait_until
from tests.support.servers.scripted_destination import (
    Reply,
    Request,
    ScriptedDestination,
    scripted_destination,
)

pytestmark = pytest.mark.integration

STREAM = "in-line"
_ROUND = 150
_SEED = 11


@dataclass
class Mood:
    """A destination that fails sometimes, or always."""

    dice: random.Random
    is_down: bool = False

    def __call__(self, _: int, __: Request) -> Reply:
        if self.is_down:
            return Reply(503)
        roll = self.dice.random()
        if roll < 0.04:
            return Reply(breaks_off=True, delay_s=0.02)
        return Reply(503 if roll < 0.12 else 200, delay_s=0.02)


@dataclass
class Ground:
    hifi: RunningHifi
    mood: Mood
    in_line: ScriptedDestination
    beside: ScriptedDestination
    to: Destination
    posted: int = 0

    def post(self, count: int) -> None:
        events = [{"id": f"n{self.posted + n}"} for n in range(count)]
        assert self.hifi.post(self.to.stream, events).status_code == 200
        self.posted += count

    def is_held(self) -> bool:
        metrics = f"http://127.0.0.1:{self.hifi.stack.settings.delivery_metrics_port}/metrics"
        state = f'hifi_delivery_flow_state{{destination="{self.to.id}",state="held"}} 1.0'
        return state in fetch(metrics)

    def check(self) -> None:
        """Check that each event arrived, in order except for repeats, which are labelled."""
        books = self.hifi.wait_for_balance(
            self.to.id,
            lambda b: b.acked == b.delivered == self.posted,
            what="all events are delivered",
            timeout_s=3 * PATIENCE_S,
        )
        assert (books.unaccounted, books.dead, books.waiting, books.queued) == (0, 0, 0, 0)
        came = [event["id"] for request in self.in_line.accepted for event in request.events]
        assert list(dict.fromkeys(came)) == [f"n{n}" for n in range(self.posted)]
        unlabelled = Counter(
            event["id"]
            for request in self.in_line.accepted
            if "hifi-maybe-duplicate" not in request.headers
            for event in request.events
        )
        assert max(unlabelled.values()) == 1, "an event arrived twice without a label"


@pytest.fixture
def ground(hifi: RunningHifi, request: pytest.FixtureRequest) -> Iterator[Ground]:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name.lower()).strip("-")
    stream, mood = f"{STREAM}-{name[-60:]}", Mood(random.Random(_SEED))
    with ExitStack() as resources:
        in_line = resources.enter_context(scripted_destination(mood))
        beside = resources.enter_context(scripted_destination())
        to = Destination(stream, "to", in_line.url, order="stream", batch_count_max=5)
        hifi.add(to, partition_count=1)
        hifi.add(Destination(stream, "beside", beside.url), partition_count=1)
        yield Ground(hifi, mood, in_line, beside, to)


def test_one_event_holds_up_all_behind_it_and_no_other_destination(ground: Ground) -> None:
    ground.mood.is_down = True
    ground.post(20)
    wait_until(ground.is_held, what="the destination is held", timeout_s=PATIENCE_S)
    assert ground.beside.wait_for(
        lambda: len(ground.beside.accepted_ids) == 20, timeout_s=PATIENCE_S
    )
    books = ground.hifi.balance(ground.to.id)
    assert (books.acked, books.queued, books.waiting) == (20, 20, 0)
    ground.mood.is_down = False
    # When a person resumes the destination, the event does not wait until it is due.
    ground.hifi.change(replace(ground.to, resumed_at_ms=now_ms()))
    ground.check()
    wait_until(lambda: not ground.is_held(), what="the lane continues", timeout_s=PATIENCE_S)


def kill_while_it_sends(ground: Ground, kill: Callable[[Campaign], None]) -> None:
    before = len(ground.in_line.requests)
    ground.post(_ROUND)
    assert ground.in_line.wait_for(
        lambda: len(ground.in_line.requests) >= before + 6, timeout_s=PATIENCE_S
    )
    kill(Campaign(ground.hifi, ground.in_line, ground.to))


@pytest.mark.timeout(300)
def test_a_stream_comes_in_its_order_through_a_kill(ground: Ground) -> None:
    kill_while_it_sends(ground, kill_worker)
    ground.check()


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("kill", [kill_worker, kill_driver])
def test_a_stream_comes_in_its_order_through_many_kills(
    ground: Ground, kill: Callable[[Campaign], None], request: pytest.FixtureRequest
) -> None:
    for _ in range(request.config.getoption("--kills")):
        kill_while_it_sends(ground, kill)
    ground.check()
