"""Three machines, each with its own flow files, keep limits; the destination itself counts.

Kafka and HTTP are real, and each machine is a process; only the events do not come from a lane.
"""

import asyncio
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from shared.event.topics import STATE, fixed_specs
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.delivery.flow_machine import machines
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.servers.scripted_destination import Reply, Request, scripted_destination

pytestmark = pytest.mark.integration

NAMES = ("a", "b", "c")
# By then, news is known everywhere.
KNOWN_S = 2.0
WINDOW_S = 10.0


@dataclass
class Counting:
    """A destination that notes how many requests run at once, and when each machine sent."""

    answer_s: float
    busy: int = 0
    sent: list[tuple[float, str]] = field(default_factory=list)
    # Each time at which the number of requests under way changed, and the new number.
    at_once: list[tuple[float, int]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    # The answer to a machine's next request; requests without one are accepted.
    answers: dict[str, Reply] = field(default_factory=dict)

    def __call__(self, _: int, request: Request) -> Reply:
        name = request.events[0]["id"].partition("-")[0]
        with self.lock:
            self.sent.append((time.monotonic(), name))
            self._note(1)
            reply = self.answers.get(name, Reply())
        time.sleep(self.answer_s)
        with self.lock:
            self._note(-1)
        return reply

    def _note(self, more: int) -> None:
        self.busy += more
        self.at_once.append((time.monotonic(), self.busy))

    def names(self, begin_s: float, end_s: float) -> set[str]:
        return {name for at_s, name in list(self.sent) if begin_s <= at_s < end_s}

    def count(self, begin_s: float, end_s: float) -> int:
        return sum(begin_s <= at_s < end_s for at_s, _ in list(self.sent))

    def spans(self, begin_s: float, end_s: float) -> list[tuple[float, int]]:
        """Return how long each number of requests was under way."""
        steps = [each for each in self.at_once if begin_s <= each[0] < end_s]
        return [(later - sooner, count) for (sooner, count), (later, _) in pairwise(steps)]


@pytest.fixture(scope="module")
def state_topic(kafka: Cluster) -> str:
    async def create() -> None:
        async with topic_admin(kafka.bootstrap_servers) as admin:
            await admin.create_missing([each for each in fixed_specs([]) if each.name == STATE])

    asyncio.run(create())
    return kafka.bootstrap_servers


def all_send(server: Counting) -> float:
    """Return the time at which all machines had sent something."""
    wait_until(
        lambda: {name for _, name in list(server.sent)} == set(NAMES), what="all machines send"
    )
    return time.monotonic()


def wait(until_s: float) -> None:
    wait_until(lambda: time.monotonic() >= until_s, what="the time is over")


@pytest.mark.long
def test_a_rate_holds_over_three_machines(state_topic: str, tmp_path: Path) -> None:
    server, rate = Counting(0.02), 60.0
    with scripted_destination(server) as destination:
        to: dict[str, object] = {"stream": "rated", "name": "to", "url": destination.url}
        to |= {"rate_per_s": rate, "batch_count_max": 1, "parallel_max": 32}
        with machines(state_topic, tmp_path, to, NAMES):
            begun_s = all_send(server) + KNOWN_S
            wait(begun_s + 2 * WINDOW_S)
    for begin_s in (begun_s, begun_s + WINDOW_S):
        assert 0.9 * rate <= server.count(begin_s, begin_s + WINDOW_S) / WINDOW_S <= 1.1 * rate


@pytest.mark.long
def test_requests_at_once_hold_over_three_machines(state_topic: str, tmp_path: Path) -> None:
    server, most = Counting(0.1), 6
    with scripted_destination(server) as destination:
        to: dict[str, object] = {"stream": "crowded", "name": "to", "url": destination.url}
        to |= {"parallel_max": most, "batch_count_max": 1}
        with machines(state_topic, tmp_path, to, NAMES):
            begun_s = all_send(server) + KNOWN_S
            wait(begun_s + WINDOW_S)
    spans = server.spans(begun_s, begun_s + WINDOW_S)
    assert sum(span_s * count for span_s, count in spans) >= 0.8 * most * WINDOW_S
    assert sum(span_s for span_s, count in spans if count > most) <= 0.01 * WINDOW_S
    assert server.names(begun_s, begun_s + WINDOW_S) == set(NAMES)


def test_what_one_machine_has_met_all_know_within_two_seconds(
    state_topic: str, tmp_path: Path
) -> None:
    server, asked_s = Counting(0.02), 4
    with scripted_destination(server) as destination:
        to = {"stream": "known", "name": "to", "url": destination.url, "rate_per_s": 60.0}
        with machines(state_topic, tmp_path, to | {"batch_count_max": 1}, NAMES):
            wait(all_send(server) + 1.0)
            # One machine is asked to wait.
            server.answers["a"] = Reply(429, {"retry-after": str(asked_s)})
            met_s = time.monotonic()
            wait_until(lambda: "a" in server.names(met_s, met_s + 9), what="one machine has met it")
            first_s = min(at_s for at_s, name in list(server.sent) if at_s >= met_s and name == "a")
            server.answers.clear()
            wait(first_s + asked_s)
            assert server.names(first_s + KNOWN_S, first_s + asked_s) == set()
            wait_until(lambda: server.count(first_s + asked_s, 1e12) > 0, what="sending continues")
            # One machine gets only this answer: its breaker opens, and so do the other machines'.
            server.answers["b"] = Reply(503)
            fails_s = time.monotonic()
            wait_until(
                lambda: (
                    server.count(fails_s, 1e12) > 0
                    and time.monotonic() - server.sent[-1][0] > KNOWN_S
                ),
                what="no machine sends",
            )
            ended_s = server.sent[-1][0]
            last_s = max(at_s for at_s, name in list(server.sent) if name == "b")
            assert ended_s - last_s <= KNOWN_S
