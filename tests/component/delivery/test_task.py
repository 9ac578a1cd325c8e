"""A worker processes its units with real requests, and the fakes of tests/contract for Kafka.

ADR 0062: nothing counts before its outcome is stored, and no lane waits for or fails with another.
"""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import Any

import pytest

from delivery.flow_store import FlowStore
from delivery.lanes import reading, task
from delivery.lanes.marks import OPEN, Mark, open_mark
from delivery.lanes.task import run_units
from delivery.lanes.units import Orders, Span, Strand, StrandEnd, Unit
from delivery.sending import Sending
from shared.config.destination import Destination
from shared.event.record import KafkaPartition, RecordOut
from shared.event.topics import LANES, RECEIPTS
from shared.flow.flow import SendLimits
from shared.flow.flow_record import open_flow_record
from shared.proof.receipt import receipts_of
from shared.runtime.clock import now_ms
from shared.runtime.kafka.log_client import FetchAnswer, LogClient
from tests.support.delivery.deliver_runs import QUICK, TOPIC, events, new_folder
from tests.support.delivery.memory_log import NODE, MemoryLog
from tests.support.delivery.memory_outlet import MemoryOutlet
from tests.support.servers.scripted_destination import (
    Reply,
    Script,
    ScriptedDestination,
    always,
    scripted_destination,
)

WHERE = KafkaPartition(TOPIC, 0)
PATIENCE_S = 60.0


@dataclass
class Ground:
    """A log of events, an outlet, and destinations that are named by letters."""

    monkeypatch: pytest.MonkeyPatch
    resources: ExitStack
    kafka: MemoryLog = field(default_factory=MemoryLog)
    outlet: MemoryOutlet = field(default_factory=MemoryOutlet)
    to: dict[str, ScriptedDestination] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    tenants: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kafka.make(TOPIC, 1)
        self.monkeypatch.setattr(task, "_kafka_of", lambda _: self)

    async def log(self) -> LogClient:
        """Return the log from which the worker reads."""
        return self.kafka

    def destination(self, name: str, script: Script | None = None) -> None:
        to = scripted_destination(script) if script else scripted_destination()
        self.to[name] = self.resources.enter_context(to)

    def run(self, **spans: Span) -> dict[str, StrandEnd]:
        wanted = {
            name: Destination("demo", name, self.to[name].url, batch_count_max=2) for name in spans
        }
        orders = Orders(
            bootstrap_servers="kept",
            destinations={each.id: each for each in wanted.values()},
            tenants={each.id: self.tenants.get(name, "") for name, each in wanted.items()},
            flows={},
            unasked=frozenset(each.id for each in wanted.values()),
            resting=frozenset(),
            flow_folder=new_folder(),
            schedule=QUICK,
            time_box_s=PATIENCE_S,
            follow_s=0.3,
            ours_until_ms=now_ms() + 3_600_000,
            allows_private=True,
            leaders={WHERE: NODE},
            publish_every_ms=1_000,
        )
        unit = Unit(WHERE, {wanted[name].id: span for name, span in spans.items()})
        ends = list(run_units([([unit], replace(orders, **self.given))]))
        assert len(ends) <= 1
        reports = [end for task in ends for end in task.reports]
        return {end.strand.destination.removeprefix("demo/"): end for end in reports}

    def marks(self, name: str) -> list[Mark]:
        opened = [open_mark(row.key or b"", row.value) for row in self.outlet.rows if is_mark(row)]
        return [mark for strand, mark in filter(None, opened) if is_of(strand, name) and mark]

    def stored(self, name: str) -> set[int]:
        """Return the offsets whose outcomes Kafka has."""
        return offsets(self.outlet.rows, name)


def is_mark(row: RecordOut) -> bool:
    return row.topic == LANES


def is_of(strand: Strand, name: str) -> bool:
    return strand == Strand(f"demo/{name}", WHERE)


def offsets(rows: Sequence[RecordOut], name: str) -> set[int]:
    receipts = [each for row in rows if row.topic == RECEIPTS for each in receipts_of(row.value)]
    return {
        offset
        for receipt in receipts
        if receipt and receipt.destination_id == f"demo/{name}"
        for part in receipt.covered
        for offset in range(part.first, part.end)
    }


def speaks_of(row: RecordOut, name: str) -> bool:
    opened = open_mark(row.key or b"", row.value) if is_mark(row) else None
    return bool(offsets([row], name)) or (opened is not None and is_of(opened[0], name))


@pytest.fixture
def ground(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    with ExitStack() as resources:
        yield Ground(monkeypatch, resources)


class DrippingLog(MemoryLog):
    """A log that returns two events in each answer."""

    def _answer(self, where: KafkaPartition, at: int) -> FetchAnswer:
        answer = super()._answer(where, at)
        records = answer.records[:2]
        return answer._replace(records=records, reached=records[-1].offset + 1 if records else at)


def let_drip(ground: Ground) -> None:
    """Write six events, of which two are settled at a time."""
    ground.kafka = DrippingLog()
    ground.kafka.make(TOPIC, 1)
    ground.kafka.write(events(6))
    ground.monkeypatch.setattr(task, "_ROWS_MAX", 2)


def test_each_mark_comes_after_the_outcomes_of_all_below_it(ground: Ground) -> None:
    ground.kafka = DrippingLog()
    ground.kafka.make(TOPIC, 1)
    ground.kafka.write(events(9))
    ground.monkeypatch.setattr(task, "_ROWS_MAX", 2)
    ground.destination("a")
    ends = ground.run(a=Span(1, 8))
    assert ends == {"a": StrandEnd(Strand("demo/a", WHERE), 8, 7)}
    marks = ground.marks("a")
    assert len(marks) > 2
    ats = [mark.at for mark in marks]
    assert ats == sorted(set(ats)), "each mark must be past the one before"
    assert [mark.until for mark in marks] == [8] * len(marks)
    for number, row in enumerate(ground.outlet.rows):
        if is_mark(row) and (opened := open_mark(row.key or b"", row.value)) and opened[1]:
            assert offsets(ground.outlet.rows[:number], "a") == set(range(1, opened[1].at))


def test_while_outcomes_are_being_stored_the_next_are_sent_and_none_is_marked(
    ground: Ground,
) -> None:
    let_drip(ground)
    ground.destination("a")
    seen: list[tuple[int, int]] = []

    async def until_more_is_sent() -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(ground.to["a"].requests) < 2:  # noqa: ASYNC110 - it is another thread
                await asyncio.sleep(0.005)
        seen.append((len(ground.stored("a")), len(ground.marks("a"))))

    def first_outcome(row: RecordOut) -> Any:
        return until_more_is_sent() if row.topic == RECEIPTS and not seen else None

    ground.outlet.awaits = first_outcome
    assert ground.run(a=Span(0, 6))["a"].at == 6
    assert seen[0] == (0, 0)
    assert ground.stored("a") == set(range(6))


@pytest.mark.parametrize("topic", [RECEIPTS, LANES])
def test_what_kafka_does_not_take_is_not_done_and_nobody_else_fails(
    ground: Ground, topic: str
) -> None:
    ground.kafka.write(events(4))
    ground.destination("a")
    ground.destination("b")

    def refusal(row: RecordOut) -> Exception | None:
        return OSError("no room") if row.topic == topic and speaks_of(row, "a") else None

    ground.outlet.refusal = refusal
    ends = ground.run(a=Span(0, 4), b=Span(0, 4))
    assert ends["a"] == StrandEnd(Strand("demo/a", WHERE), 0, 4, "OSError: no room")
    assert ends["b"] == StrandEnd(Strand("demo/b", WHERE), 4, 4)
    assert ground.marks("a") == []
    assert ground.marks("b") == [Mark(4, 4)]
    assert ground.stored("a") == (set() if topic == RECEIPTS else set(range(4)))


@pytest.mark.parametrize("end", [4, None])
def test_whoever_has_sent_all_shares_requests_with_nobody(ground: Ground, end: int | None) -> None:
    """A single event must read the flow only a few times: each read is a third of its cost."""
    looks: list[int] = []
    lock = FlowStore.lock

    def counted(store: FlowStore, limits: SendLimits, *, now_ms: int) -> Any:
        looks.append(now_ms)
        return lock(store, limits, now_ms=now_ms)

    ground.monkeypatch.setattr(FlowStore, "lock", counted)
    ground.given = {"flow_folder": (folder := new_folder()), "unasked": frozenset()}
    ground.kafka.write(events(4))
    ground.destination("a")
    assert ground.run(a=Span(2, end))["a"].at == 4
    # The flow is read before the request, after it, and, if more could have come, at the end.
    assert len(looks) == (2 if end else 3)
    record = open_flow_record((folder / "demo.a.json").read_bytes())
    assert record is not None
    assert record.flow.tasks == {}


def test_a_mistake_of_ours_with_one_destination_touches_no_other(ground: Ground) -> None:
    """The mistake is reported, and its memory released, so that the others have room to read."""

    class Mistaken(Sending):
        async def settle(self, rows: Any, **options: Any) -> list[RecordOut]:
            assert "demo/a" not in self._plan.destinations, "a mistake"
            return await super().settle(rows, **options)

    ground.monkeypatch.setattr(task, "Sending", Mistaken)
    ground.monkeypatch.setattr(task, "_ROWS_MAX", 2)
    ground.monkeypatch.setattr(reading, "_BYTES_MAX", 1)
    ground.kafka = DrippingLog()
    ground.kafka.make(TOPIC, 1)
    ground.kafka.write(events(12))
    ground.destination("a")
    ground.destination("b")
    ends = ground.run(a=Span(0, 12), b=Span(0, 12))
    assert (ends["a"].at, ends["a"].event_count) == (0, 0)
    assert ends["a"].error.startswith("AssertionError: a mistake")
    assert not ends["a"].is_data_lost
    assert ends["b"] == StrandEnd(Strand("demo/b", WHERE), 12, 12)
    assert ground.to["a"].requests == []


def test_one_that_hangs_holds_up_no_other_mark(ground: Ground) -> None:
    is_marked = threading.Event()

    def until_the_other_is_marked(_: int, __: object) -> Reply:
        return Reply(200 if is_marked.wait(PATIENCE_S) else 400)

    def note(row: RecordOut) -> None:
        if is_mark(row) and speaks_of(row, "b"):
            is_marked.set()

    ground.outlet.refusal = note
    ground.kafka.write(events(2))
    ground.destination("a", until_the_other_is_marked)
    ground.destination("b")
    ends = ground.run(a=Span(0, 2), b=Span(0, 2))
    assert [(ends[name].at, ends[name].error) for name in "ab"] == [(2, ""), (2, "")]
    assert [speaks_of(row, "b") for row in ground.outlet.rows if is_mark(row)] == [True, False]


def test_who_has_lost_events_says_so_and_the_others_go_on(ground: Ground) -> None:
    ground.kafka.write(events(6))
    ground.kafka.forget(WHERE, 3)
    ground.destination("a")
    ground.destination("b")
    ends = ground.run(a=Span(1, 6), b=Span(4, 6))
    assert ends["a"].is_data_lost
    assert "begins at 3" in ends["a"].error
    assert (ends["a"].at, ends["a"].event_count) == (1, 0)
    assert ends["b"] == StrandEnd(Strand("demo/b", WHERE), 6, 2)


def test_a_lane_beyond_the_end_of_its_log_has_lost_events(ground: Ground) -> None:
    """book.py asks for this span after a topic was recreated."""
    ground.kafka.write(events(6))
    ground.destination("a")
    (end,) = ground.run(a=Span(500, 501)).values()
    assert (end.is_data_lost, end.at) == (True, 500)
    assert ground.outlet.rows == []


def labels(destination: ScriptedDestination) -> dict[str, bool]:
    return {
        event["id"]: "hifi-maybe-duplicate" in {name.lower() for name in request.headers}
        for request in destination.requests
        for event in request.events
    }


def test_a_repeat_is_its_span_and_no_more_and_every_request_says_so(ground: Ground) -> None:
    """A cut or refused job repeats exactly the events that it may have sent."""
    ground.kafka.write(events(9))
    ground.destination("a")
    ground.destination("b", always(503))
    ends = ground.run(a=Span(2, 5, 5), b=Span(2, 5, 5))
    for name in "ab":
        assert labels(ground.to[name]) == dict.fromkeys(["e2", "e3", "e4"], True)
        assert ends[name].at == 5
        assert ground.marks(name)[-1] == Mark(5, 5)
        assert ground.stored(name) == {2, 3, 4}
    ground.run(a=Span(5, 9))
    assert labels(ground.to["a"]) == {
        **dict.fromkeys(["e2", "e3", "e4"], True),
        **dict.fromkeys(["e5", "e6", "e7", "e8"], False),
    }


def test_a_part_of_a_repeat_still_says_how_far_the_rest_may_have_been_sent(ground: Ground) -> None:
    ground.kafka.write(events(9))
    ground.destination("a")
    ground.run(a=Span(2, 4, 7))
    assert ground.marks("a") == [Mark(4, 7)]
    assert labels(ground.to["a"]) == {"e2": True, "e3": True}


def test_a_lease_that_is_over_sends_nothing_and_stores_nothing(ground: Ground) -> None:
    ground.kafka.write(events(4))
    ground.destination("a")
    ground.given = {"ours_until_ms": now_ms() - 1}
    (end,) = ground.run(a=Span(0, 4)).values()
    assert (end.at, end.event_count) == (0, 0)
    assert end.error == "", "a lease that has ended is no error"
    assert ground.to["a"].requests == []
    assert ground.outlet.rows == []


def test_a_lease_that_ends_meanwhile_lets_end_what_was_begun_and_begins_nothing(
    ground: Ground,
) -> None:
    let_drip(ground)
    ground.destination("a")
    until_ms = now_ms() + 3_600_000
    times_ms = chain([until_ms], repeat(until_ms + 1))
    ground.monkeypatch.setattr(task, "now_ms", lambda: next(times_ms))
    ground.given = {"ours_until_ms": until_ms}
    (end,) = ground.run(a=Span(0, 6)).values()
    assert (end.at, end.event_count) == (2, 2)
    assert end.error == ""
    assert ground.marks("a") == [Mark(2, 6, late=True)]
    assert labels(ground.to["a"]) == {"e0": False, "e1": False}


def test_another_try_of_a_task_sends_nothing_as_nobody_knows_what_the_first_one_sent(
    ground: Ground,
) -> None:
    ground.kafka.write(events(2))
    ground.destination("a")
    ground.monkeypatch.setattr(task, "is_another_try", lambda: True)
    assert ground.run(a=Span(0, 2)) == {}
    assert ground.to["a"].requests == []
    assert ground.outlet.rows == []


def test_what_follows_its_log_is_marked_as_it_goes_and_says_that_more_may_be_sent(
    ground: Ground,
) -> None:
    ground.kafka.write(events(2))
    ground.destination("a")
    is_more_written = False

    def write_more(row: RecordOut) -> None:
        nonlocal is_more_written
        if is_mark(row) and not is_more_written:
            is_more_written = True
            ground.kafka.write(events(3, first=2))

    ground.outlet.refusal = write_more
    ground.given = {"follow_s": 1.0}
    (end,) = ground.run(a=Span(0, None)).values()
    assert (end.at, end.event_count, end.error) == (5, 5, "")
    marks = ground.marks("a")
    assert marks[0] == Mark(2, OPEN)
    assert [mark.at for mark in marks] == sorted(mark.at for mark in marks)
    assert ground.stored("a") == set(range(5))


def test_records_that_others_wrote_are_settled_beside_those_of_the_gateway(ground: Ground) -> None:
    """A record that is no event of ours still belongs to the stream."""
    ours, theirs = events(2)
    ground.kafka.write([ours, replace(theirs, value=b"no json", headers=())])
    ground.destination("a")
    (end,) = ground.run(a=Span(0, 2)).values()
    assert (end.at, end.error) == (2, "")
    assert ground.stored("a") == {0, 1}
