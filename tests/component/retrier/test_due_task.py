"""A worker processes due events with real requests, and the fakes of tests/contract for Kafka."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from retrier import task
from retrier.lane import lanes, plan_of
from retrier.settings import RetrierSettings
from retrier.task import DueJob, RangeEnd, send_due
from shared.config.configuration import Configuration
from shared.config.destination import Destination
from shared.event.record import KafkaPartition, Origin, RecordOut
from shared.event.topics import (
    DEAD,
    RECEIPTS,
    RETRIER,
    RETRIER_SLOW,
    retry_topic,
    retry_topics,
)
from shared.proof.receipt import ReceiptOutcome
from shared.runtime.clock import now_ms
from shared.runtime.kafka.leases.fenced_positions import Reach
from shared.runtime.kafka.log_client import LogClient
from tests.support.delivery.deliver_runs import (
    covered,
    events_only,
    new_folder,
    opened,
    waiting_record,
)
from tests.support.delivery.memory_log import MemoryLog
from tests.support.delivery.memory_outlet import MemoryOutlet
from tests.support.servers.scripted_destination import Reply, Request, Script, scripted_destination

A = KafkaPartition(retry_topic("30s"), 0)
B = KafkaPartition(retry_topic("5m"), 0)
SETTINGS = RetrierSettings(allow_private=True)
NUMBER = 77
PATIENCE_S = 30.0


@dataclass
class Ground:
    """The equipment of a worker: two tiers, and destinations at one address."""

    kafka: MemoryLog = field(default_factory=MemoryLog)
    outlet: MemoryOutlet = field(default_factory=MemoryOutlet)
    destinations: dict[str, Destination] = field(default_factory=dict)
    # The time now, and at each later call.
    clock: Callable[[], int] = now_ms
    # The record that says how far the first tier was read.
    reach: Reach = field(default_factory=lambda: Reach(0, 3, NUMBER))

    def __post_init__(self) -> None:
        for topic in retry_topics(tier.name for tier in SETTINGS.schedule.tiers):
            self.kafka.make(topic, 1)

    @property
    def broker(self) -> Any:
        async def clock() -> Callable[[], int]:
            return self.clock

        return SimpleNamespace(clock=clock)

    @property
    def known(self) -> Any:
        configuration = Configuration(destinations=self.destinations)
        return SimpleNamespace(
            configuration=lambda age_s_max: configuration,  # noqa: ARG005 - its name
            states=SimpleNamespace(flows={}),
        )

    async def log(self, _: Sequence[str]) -> LogClient:
        return self.kafka

    async def read(self) -> dict[KafkaPartition, Reach]:
        return {A: self.reach}

    async def close(self) -> None:
        """Do nothing: real positions have this method."""

    def wait(self, where: KafkaPartition, *names: str) -> None:
        """Write waiting events of these destinations."""
        log = self.kafka.logs[where]
        for name in names:
            record = waiting_record(f"demo/{name}")
            self.kafka.write([replace(record, origin=Origin(*where, len(log)))])

    def run(
        self, *places: KafkaPartition, ours_for_s: float = 60.0, **settings: Any
    ) -> dict[KafkaPartition, RangeEnd]:
        plan = replace(
            plan_of(lanes(SETTINGS)[RETRIER], SETTINGS),
            flow_folder=new_folder(),
            ours_until_ms=now_ms() + round(1_000 * ours_for_s),
            # On a busy machine the usual second may be over before anything is sent.
            **{"time_box_s": 30.0, **settings},
        )
        ranges = {where: (0, len(self.kafka.logs[where])) for where in places}
        (ends,) = send_due([DueJob("kept", "group", NUMBER, ranges, plan)])
        return {end.where: end for end in ends}


@pytest.fixture
def ground(monkeypatch: pytest.MonkeyPatch) -> Ground:
    found = Ground()
    monkeypatch.setattr(task, "_ties_of", lambda _: found)
    monkeypatch.setattr(task, "FencedPositions", lambda *_: found)
    return found


@pytest.fixture
def to(ground: Ground) -> Iterator[Callable[[str, Script], Any]]:
    contexts = []

    def add(name: str, script: Script) -> Any:
        context = scripted_destination(script)
        contexts.append(context)
        destination = context.__enter__()
        ground.destinations[f"demo/{name}"] = Destination("demo", name, destination.url)
        return destination

    yield add
    for context in contexts:
        context.__exit__(None, None, None)


def well(_: int, __: Request) -> Reply:
    return Reply()


def test_each_kafka_partition_is_brought_to_its_end_and_what_came_of_it_is_stored(
    ground: Ground, to: Callable[[str, Script], Any]
) -> None:
    destination = to("a", well)
    ground.wait(A, "a", "a", "a")
    ground.wait(B, "a")
    ends = ground.run(A, B)
    assert (ends[A], ends[B]) == (RangeEnd(A, 3, 3), RangeEnd(B, 1, 1))
    assert sum(len(request.events) for request in destination.requests) == 4
    assert len(covered(ground.outlet.rows, ReceiptOutcome.DELIVERED)) == 1


def test_what_is_gone_is_said_of_that_one_alone(
    ground: Ground, to: Callable[[str, Script], Any]
) -> None:
    to("a", well)
    ground.wait(A, "a", "a")
    ground.wait(B, "a")
    ground.kafka.forget(A, 1)
    ends = ground.run(A, B)
    assert (ends[A].at, ends[A].is_gone) == (0, True)
    assert ends[B] == RangeEnd(B, 1, 1)


def test_nothing_begins_when_the_lease_is_over(
    ground: Ground, to: Callable[[str, Script], Any]
) -> None:
    destination = to("a", well)
    ground.wait(A, "a")
    assert ground.run(A, ours_for_s=-1) == {A: RangeEnd(A, 0)}
    assert destination.requests == []
    assert ground.outlet.rows == []


@pytest.mark.parametrize("is_ours", [True, False])
def test_what_outlives_the_lease_counts_only_if_nobody_else_has_it(
    ground: Ground, to: Callable[[str, Script], Any], *, is_ours: bool
) -> None:
    late_ms = 0

    def answer(_: int, __: Request) -> Reply:
        nonlocal late_ms
        late_ms = 120_000
        return Reply()

    to("a", answer)
    ground.clock = lambda: now_ms() + late_ms
    ground.wait(A, "a")
    if not is_ours:
        ground.reach = Reach(0, 3)
    end = ground.run(A)[A]
    if is_ours:
        assert (end.at, end.error) == (1, "")
        assert events_only(ground.outlet.rows)
    else:
        assert end.at == 0
        assert "another process has these events" in end.error
        assert ground.outlet.rows == []


def test_one_that_does_not_answer_holds_up_nobody_behind_it_in_the_log(
    ground: Ground, to: Callable[[str, Script], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one record per fetch, the time box could otherwise end before later ones are read."""
    fetch = ground.kafka.fetch

    async def fetch_one(node: int, position: Any, **options: Any) -> Any:
        answers = await fetch(node, position, **options)
        return {
            where: answer._replace(records=answer.records[:1], reached=position[where] + 1)
            for where, answer in answers.items()
        }

    monkeypatch.setattr(ground.kafka, "fetch", fetch_one)
    to("hangs", lambda _, __: Reply(delay_s=60))
    destination = to("a", well)
    ground.wait(A, "hangs", "a", "hangs", "a")
    end = ground.run(A, time_box_s=0.5, patience_s=0.7)[A]
    assert (end.at, end.event_count, end.error) == (4, 4, "")
    assert sum(len(request.events) for request in destination.requests) == 2


def test_of_the_slow_each_is_stored_as_it_comes_and_not_with_the_slowest(
    ground: Ground, to: Callable[[str, Script], Any]
) -> None:
    is_stored = threading.Event()

    def note(row: RecordOut) -> None:
        if row.topic == RECEIPTS and row.key == b"demo/a":
            is_stored.set()

    def until_the_other_is_stored(_: int, __: Request) -> Reply:
        return Reply(200 if is_stored.wait(PATIENCE_S) else 400)

    ground.outlet.refusal = note
    to("slowest", until_the_other_is_stored)
    to("a", well)
    ground.wait(A, "slowest", "a")
    assert ground.run(A, patience_s=None)[A] == RangeEnd(A, 2, 2)
    told = {row.key for row in ground.outlet.rows if row.topic == RECEIPTS}
    assert told == {b"demo/a", b"demo/slowest"}
    assert not [row for row in ground.outlet.rows if row.topic == DEAD], "it must wait for it"


def test_what_is_not_stored_of_one_is_not_done_and_the_others_come_to_their_end(
    ground: Ground, to: Callable[[str, Script], Any]
) -> None:
    is_refused = threading.Event()

    def refusal(row: RecordOut) -> Exception | None:
        if row.topic == RECEIPTS and row.key == b"demo/a":
            is_refused.set()
            return OSError("no room")
        return None

    def until_the_other_is_refused(_: int, __: Request) -> Reply:
        is_refused.wait(PATIENCE_S)
        return Reply()

    ground.outlet.refusal = refusal
    slow = to("slowest", until_the_other_is_refused)
    to("a", well)
    ground.wait(A, "slowest", "a")
    end = ground.run(A, patience_s=None)[A]
    assert (end.at, end.error) == (0, "OSError: no room")
    assert len(slow.accepted) == 1


def test_a_round_of_the_slow_is_no_longer_than_what_is_waited_for_there(
    ground: Ground, to: Callable[[str, Script], Any]
) -> None:
    """Otherwise one tenant's `timeout_s` of five minutes would delay everybody."""
    plan = plan_of(lanes(SETTINGS)[RETRIER_SLOW], SETTINGS)
    assert (plan.timeout_s_max, plan.patience_s) == (60.0, None)
    may_end = threading.Event()

    def hang(_: int, __: Request) -> Reply:
        may_end.wait(PATIENCE_S)
        return Reply()

    to("hangs", hang)
    ground.destinations["demo/hangs"] = replace(
        ground.destinations["demo/hangs"], timeout_s=2 * PATIENCE_S
    )
    ground.wait(A, "hangs")
    assert ground.run(A, patience_s=None, timeout_s_max=0.3)[A] == RangeEnd(A, 1, 1)
    may_end.set()
    # The event's deadline comes before another round would begin.
    (given_up,) = [row for row in ground.outlet.rows if row.topic == DEAD]
    history = opened(given_up)
    assert (history.cause, history.is_ambiguous) == ("read_timeout", True)


def test_an_outcome_whose_report_is_cancelled_hurts_that_part_alone(
    ground: Ground, to: Callable[[str, Script], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    to("a", well)
    ground.wait(A, "a")
    ground.wait(B, "a")
    store, asked = ground.outlet.store, list[int]()

    async def cancelled(rows: Sequence[RecordOut]) -> None:
        if not asked:
            asked.append(len(rows))
            gone = asyncio.get_running_loop().create_future()
            gone.cancel()
            await gone
        await store(rows)

    monkeypatch.setattr(ground.outlet, "store", cancelled)
    ends = ground.run(A, B)
    assert sorted(end.error != "" for end in ends.values()) == [False, True]
