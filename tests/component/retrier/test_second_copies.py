"""Events that arrive twice are labelled the second time, whichever copy that is (ADR 0117).

Workers of delivery and of the retrier are real, and so are their requests; Kafka is in memory.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest

from delivery.lanes.book import Book
from delivery.lanes.marks import Mark, mark_record
from delivery.lanes.marks_log import MARKS, MarksLog
from delivery.lanes.strands.telling import Teller
from delivery.lanes.units import Span, Strand
from delivery.sending import Plan
from retrier.known_doubts import KnownDoubts
from retrier.lane import lanes, plan_of
from retrier.settings import RetrierSettings
from shared.config.destination import Destination
from shared.event.record import KafkaPartition, Origin, RecordIn, RecordOut
from shared.event.topics import LANES, RETRIER, RETRY_PREFIX
from shared.retry.doubts import Doubts
from shared.runtime.clock import now_ms
from shared.runtime.kafka.leases.fenced_positions import Reach
from tests.component.delivery.test_task import WHERE, Ground
from tests.support.delivery.deliver_runs import events, new_folder, run
from tests.support.delivery.memory_log import MemoryLog
from tests.support.servers.scripted_destination import always

SETTINGS = RetrierSettings(allow_private=True)
NAME = "demo/a"
LANE = Strand(NAME, WHERE)


class Second(Ground):
    """A lane whose worker dies between outcomes and mark, and a retrier beside it."""

    def lane_dies(self, span: Span) -> None:
        """Let the lane's worker die: only the outcomes of its events are stored."""
        asyncio.run(self.outlet.store([mark_record(LANE, Mark(span.begin, span.end or 0))]))
        self.dies_with(span)

    def dies_with(self, span: Span) -> None:
        self.outlet.refusal = lambda row: OSError("it is dead") if row.topic == LANES else None
        assert self.run(a=span)["a"].at == span.begin
        self.outlet.refusal = lambda _: None

    def next_owner(self, *, dies: bool = False) -> None:
        """Continue from the written marks, like an owner that has read all of them."""
        marks = MarksLog(self.written())
        asyncio.run(marks.read())
        book = Book()
        book.see_ends({WHERE: len(self.kafka.logs[WHERE])})
        book.enter(LANE, marks.marks[LANE])
        mark = book.mark(LANE)
        span = Span(mark.at, mark.until, mark.until)
        teller = Teller(self.outlet.store, book.mark_of, marks.marks, marks.repeats)
        asyncio.run(teller.begin({LANE: span}))
        if dies:
            self.dies_with(span)
            return
        assert self.run(a=span)["a"].at == span.end

    def written(self) -> MemoryLog:
        """Return the current contents of `hifi.lanes`."""
        log = MemoryLog()
        log.make(LANES, 1)
        rows = [row for row in self.outlet.rows if row.topic == LANES]
        at_ms = now_ms()
        log.write(
            RecordIn(Origin(*MARKS, offset), at_ms, row.key, row.value, ())
            for offset, row in enumerate(rows)
        )
        return log

    def known(self) -> KnownDoubts:
        log = self.written()
        return KnownDoubts(log, MarksLog(log), self.outlet, SETTINGS.schedule.deadline_s)

    def doubts(self, reaches: Mapping[KafkaPartition, Reach] | None = None) -> Doubts:
        known = self.known()

        async def scenario() -> Doubts:
            following = asyncio.create_task(known.follow())
            found = await known.now(reaches or {}, now_ms=now_ms())
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
            return found

        return asyncio.run(scenario())

    def plan(self, doubts: Doubts) -> Plan:
        to = Destination("demo", "a", self.to["a"].url, batch_count_max=1)
        return replace(
            plan_of(lanes(SETTINGS)[RETRIER], SETTINGS),
            destinations={NAME: to},
            flow_folder=new_folder(),
            time_box_s=60.0,
            patience_s=60.0,
            doubts=doubts,
        )

    def came(self) -> list[tuple[str, bool]]:
        """Return the ids that the destination accepted, and whether each was labelled."""
        return [
            (event["id"], "hifi-maybe-duplicate" in request.headers)
            for request in self.to["a"].accepted
            for event in request.events
        ]


def waiting(rows: list[RecordOut]) -> list[RecordIn]:
    """Return the events that wait, as they will be read when due."""
    found = [row for row in rows if row.topic.startswith(RETRY_PREFIX)]
    return [
        RecordIn(Origin(row.topic, 0, offset), 0, row.key, row.value, row.headers)
        for offset, row in enumerate(found)
    ]


def second_arrivals(came: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    return [each for n, each in enumerate(came) if each[0] in {event for event, _ in came[:n]}]


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> Iterator[Second]:
    with ExitStack() as resources:
        yield Second(monkeypatch, resources)


def test_what_a_dead_worker_had_parked_says_so_when_its_next_owner_was_first(
    second: Second,
) -> None:
    second.kafka.write(events(4))
    second.destination("a", always(503))
    second.lane_dies(Span(0, 4))
    second.to["a"].script = always(200)
    parked = waiting(second.outlet.rows)
    assert len(parked) == 4
    second.next_owner()
    run(parked, second.plan(second.doubts()))
    again = second_arrivals(second.came())
    assert sorted(again) == [(f"e{n}", True) for n in range(4)]


def test_what_is_sent_before_anybody_goes_on_says_so_too(second: Second) -> None:
    """The next owner's copy may overtake this one on its way."""
    second.kafka.write(events(4))
    second.destination("a", always(503))
    second.lane_dies(Span(0, 4))
    second.to["a"].script = always(200)
    run(waiting(second.outlet.rows), second.plan(second.doubts()))
    second.next_owner()
    assert set(second.came()) == {(f"e{n}", True) for n in range(4)}


def test_what_nobody_sends_again_says_nothing(second: Second) -> None:
    second.kafka.write(events(4))
    second.destination("a", always(503))
    assert second.run(a=Span(0, 4))["a"].at == 4
    second.to["a"].script = always(200)
    run(waiting(second.outlet.rows), second.plan(second.doubts()))
    assert sorted(second.came()) == [(f"e{n}", False) for n in range(4)]


def test_what_a_dead_retrier_had_let_wait_anew_says_so_when_its_repeat_was_first(
    second: Second,
) -> None:
    """A retrier has the same gap between its outcomes and its position."""
    second.kafka.write(events(2))
    second.destination("a", always(503))
    assert second.run(a=Span(0, 2))["a"].at == 2
    first = waiting(second.outlet.rows)
    where, begun = first[0].origin.log, Reach(0, 2, 77)
    # The retrier stores that they wait again, and dies before its position is written.
    anew = waiting(run(first, second.plan(second.doubts({where: begun}))))
    second.to["a"].script = always(200)
    asyncio.run(second.known().read_again({where: (begun.at, begun.until)}, now_ms=now_ms()))
    run(first, replace(second.plan(second.doubts()), replay_until={where: begun.until}))
    run(anew, second.plan(second.doubts({where: Reach(2, 2)})))
    # The order of due events is not fixed.
    assert sorted(second.came()) == [(f"e{n}", True) for n in (0, 0, 1, 1)]
