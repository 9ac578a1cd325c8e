"""No kill in mid-batch loses an event, and an event that arrives twice is labelled.

The usual run kills one worker. `make test-long` also kills a driver and all of Hifi three times,
and then each of the three kinds thirty times; ARGS="-k many_times --kills=10" makes that ten times.
"""

import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import structlog

from deploy.local.children import Child
from shared.config.destination import Destination
from shared.event.topics import stream_topic
from tests.support.deploy.stack_fixtures import PATIENCE_S, RunningHifi, wait_until
from tests.support.kafka.lane_marks import marks_written, may_be_sent, newest
from tests.support.servers.scripted_destination import (
    Reply,
    Request,
    Script,
    ScriptedDestination,
    scripted_destination,
)

log = structlog.get_logger()

pytestmark = pytest.mark.integration

# Events of a round: ten requests on each of four Kafka partitions, one after the other.
_ROUND = 400
_BATCH = 10
_FAULTS = 0.05
# The same faults in each run.
_SEED = 7


@dataclass
class Campaign:
    """A stream, its destination, and the work that each kill interrupted."""

    hifi: RunningHifi
    destination: ScriptedDestination
    to: Destination
    # The events between a lane's position and its planned end, at each kill.
    in_flight: set[tuple[str, int, int]] = field(default_factory=set)
    kills: int = 0

    def round(self, number: int, kill: Callable[["Campaign"], None]) -> None:
        """Post, wait until the round's events are being sent, and kill."""
        before = len(self.destination.requests)
        events = [{"id": f"r{number}-{n}", "partitionkey": f"k{n % 13}"} for n in range(_ROUND)]
        assert self.hifi.post(self.to.stream, events).status_code == 200
        # By then, half of the faults' local retries and some first requests are over.
        assert self.destination.wait_for(
            lambda: len(self.destination.requests) >= before + 6, timeout_s=PATIENCE_S
        )
        before_kill = marks_written(self.hifi.kafka, self.to.id)
        kill(self)
        self.kills += 1
        meanwhile = marks_written(self.hifi.kafka, self.to.id)[len(before_kill) :]
        self.in_flight |= may_be_sent([*newest(before_kill).items(), *meanwhile])

    def check(self) -> None:
        """Check that each event has its outcome; repeats were in flight, and are labelled."""
        books = self.hifi.wait_for_balance(
            self.to.id,
            lambda b: b.acked == _ROUND * self.kills and b.queued == b.waiting == 0,
            what="all events are settled",
            # Parked events wait for a tier, and once more if the destination fails again.
            timeout_s=3 * PATIENCE_S,
        )
        assert (books.unaccounted, books.dead) == (0, 0)
        came = self.destination.accepted_ids
        assert len(came) == _ROUND * self.kills
        where = {
            json.loads(record.value)["id"]: (record.topic, record.partition, record.offset)
            for record in self.hifi.records(stream_topic(self.to.stream))
        }
        repeated = {event for event, count in came.items() if count > 1}
        assert {where[event] for event in repeated} <= self.in_flight
        seen: set[str] = set()
        for request in self.destination.accepted:
            ids = {event["id"] for event in request.events}
            # The first of two copies may be unlabelled; each later one is labelled.
            is_plain = "hifi-maybe-duplicate" not in request.headers
            assert not (is_plain and ids & seen), "a second copy has no label"
            seen |= ids
        log.info(
            "campaign.done",
            kills=self.kills,
            events=len(where),
            came_again=len(repeated),
            repeats=sum(came.values()) - len(came),
            unaccounted=books.unaccounted,
        )


def faulty() -> Script:
    """Answer one request in twenty with 503, each with a delay in which a kill can fall."""
    dice = random.Random(_SEED)

    def script(_: int, __: Request) -> Reply:
        return Reply(503 if dice.random() < _FAULTS else 200, delay_s=0.05)

    return script


@pytest.fixture
def campaign(hifi: RunningHifi, request: pytest.FixtureRequest) -> Iterator[Campaign]:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name.lower()).strip("-")
    with scripted_destination(faulty()) as destination:
        to = Destination(
            stream=name, name="to", url=destination.url, batch_count_max=_BATCH, parallel_max=1
        )
        hifi.add(to)
        yield Campaign(hifi, destination, to)


def kill_worker(campaign: Campaign) -> None:
    """Kill one of the processes that send; Spark retries its task."""
    wait_until(lambda: bool(_workers(_driver(campaign))), what="a worker is sending", look_s=0.02)
    _kill(_workers(_driver(campaign))[0])


def kill_driver(campaign: Campaign) -> None:
    """Kill the delivery process with its JVM and its workers."""
    _kill_child(campaign.hifi.stack.children["delivery"])
    _come_back(campaign)


def kill_everything(campaign: Campaign) -> None:
    """Kill every process of Hifi, including Kafka."""
    stack = campaign.hifi.stack
    children = [
        *stack.children.values(),
        *(stack.cluster.child(broker) for broker in stack.cluster.running),
    ]
    for child in children:
        child.send(signal.SIGKILL)
    for child in children:
        child.kill()
        assert not child.alive
    _come_back(campaign)


CASES = {"worker": kill_worker, "driver": kill_driver, "everything": kill_everything}


# Starting a driver three times takes a minute, and all of Hifi half as long again.
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("what", "kills"),
    [
        ("worker", 1),
        pytest.param("driver", 3, marks=pytest.mark.long),
        pytest.param("everything", 3, marks=pytest.mark.long),
    ],
)
def test_kill_9_in_mid_batch_loses_nothing(campaign: Campaign, what: str, kills: int) -> None:
    for number in range(kills):
        campaign.round(number, CASES[what])
    campaign.check()


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("what", CASES)
def test_many_times_kill_9_in_mid_batch_loses_nothing(
    campaign: Campaign, what: str, request: pytest.FixtureRequest
) -> None:
    for number in range(request.config.getoption("--kills")):
        campaign.round(number, CASES[what])
    campaign.check()


def _come_back(campaign: Campaign) -> None:
    """Restart as `hifi up` does, but without its wait for a service that dies too often."""
    stack = campaign.hifi.stack
    stack.restarts.forgive()
    # Kafka first: a service that finds no Kafka ends at once, and the next check restarts it.
    stack.look_after()

    def is_back() -> bool:
        stack.restarts.forgive()
        stack.look_after()
        try:
            url = f"http://127.0.0.1:{stack.settings.gateway_metrics_port}/readyz"
            return httpx.get(url, timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    wait_until(is_back, what="the gateway is ready again", look_s=0.5)
    campaign.hifi.wait_for_lane(campaign.to.id)


def _kill_child(child: Child) -> None:
    assert child.alive, "it was dead already"
    child.kill()


def _driver(campaign: Campaign) -> int:
    return campaign.hifi.stack.children["delivery"].pid


def _workers(driver: int) -> list[int]:
    """Return the copies of the worker daemon under a driver, busiest first."""
    parents = {int(p.name): _parent(int(p.name)) for p in Path("/proc").glob("[0-9]*")}
    daemons = {pid for pid in parents if "-m delivery.lanes.worker_daemon" in _command(pid)}

    def is_below(pid: int | None) -> bool:
        while pid and pid != driver:
            pid = parents.get(pid)
        return pid == driver

    workers = [pid for pid in daemons if parents[pid] in daemons and is_below(pid)]
    return sorted(workers, key=_ticks, reverse=True)


def _parent(pid: int) -> int | None:
    return _stat(pid, 1)


def _ticks(pid: int) -> int:
    return (_stat(pid, 11) or 0) + (_stat(pid, 12) or 0)


def _stat(pid: int, nth: int) -> int | None:
    """Return a field of /proc/PID/stat; field 0 is the state, which follows the command's name."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[nth])
    except OSError:
        return None


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def _kill(pid: int) -> None:
    assert _stat(pid, 1) is not None, "it was dead already"
    os.kill(pid, signal.SIGKILL)
    # Once reaped by its parent, the process is gone, and not even a zombie.
    wait_until(lambda: _stat(pid, 1) is None, what=f"the worker {pid} is gone")
