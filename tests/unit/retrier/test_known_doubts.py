"""Copies that may arrive before waiting events: the retrier's knowledge, and its reports."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from delivery.lanes.marks import OPEN, Mark, mark_record
from delivery.lanes.marks_log import MARKS, MarksLog
from delivery.lanes.strands.repeats import open_repeats, repeats_record
from delivery.lanes.units import Strand
from retrier import known_doubts
from retrier.known_doubts import KnownDoubts
from retrier.task import DueJob, RangeEnd
from shared.event.record import KafkaPartition, Origin, RecordIn, RecordOut
from shared.event.topics import LANES, RETRIER
from shared.retry.doubts import Doubts
from shared.runtime.kafka.leases.fenced_positions import Reach
from tests.support.delivery.memory_log import MemoryLog
from tests.support.delivery.memory_outlet import MemoryOutlet
from tests.support.delivery.memory_retrier import A, B, memory_retrier
from tests.support.suite.samples import NOW_MS, a_history, an_envelope

STREAM = KafkaPartition("hifi.stream.orders", 0)
SHOP = Strand("orders/shop", STREAM)
DEADLINE_S = 100.0


class Ground:
    """The records in `hifi.lanes`, and a reader that follows them."""

    def __init__(self) -> None:
        self.log, self.outlet = MemoryLog(), MemoryOutlet()
        self.log.make(LANES, 1)
        self.doubts = KnownDoubts(self.log, MarksLog(self.log), self.outlet, DEADLINE_S)

    def write(self, *rows: RecordOut, at_ms: int = NOW_MS) -> None:
        for row in rows:
            place = Origin(*MARKS, len(self.log.logs[MARKS]))
            self.log.write([RecordIn(place, at_ms, row.key, row.value, ())])

    def now(self, **reaches: Reach) -> Doubts:
        async def scenario() -> Doubts:
            following = asyncio.create_task(self.doubts.follow())
            known = {{"a": A, "b": B}[name]: reach for name, reach in reaches.items()}
            found = await self.doubts.now(known, now_ms=NOW_MS)
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
            return found

        return asyncio.run(scenario())


def covered(doubts: Doubts, upto: int = 12) -> list[int]:
    """Return the stream's offsets whose waiting copies are in doubt."""
    return [
        n
        for n in range(upto)
        if doubts.cover(
            replace(an_envelope(n), destination_id=SHOP.destination, history=a_history())
        )
    ]


def read_again(doubts: Doubts, upto: int = 12) -> list[int]:
    """Return the same doubts by offset in a tier."""
    waiting = replace(an_envelope(0), destination_id="other/one", history=a_history())
    return [n for n in range(upto) if doubts.cover(replace(waiting, read_at=Origin(*A, n)))]


def test_what_its_lane_has_passed_and_nobody_sent_again_is_in_no_doubt() -> None:
    ground = Ground()
    ground.write(mark_record(SHOP, Mark(0, 9)), mark_record(SHOP, Mark(9, 9)))
    assert covered(ground.now()) == []


def test_what_its_lane_has_not_passed_may_be_sent_again() -> None:
    """Nobody sends for the lane yet, or somebody does at this very moment."""
    ground = Ground()
    ground.write(mark_record(SHOP, Mark(4, 9)))
    assert covered(ground.now()) == list(range(4, 12))
    ground.write(mark_record(SHOP, Mark(6, OPEN)))
    assert covered(ground.now()) == list(range(6, 12))


def test_what_was_sent_again_stays_in_doubt_whoever_passes_it() -> None:
    ground = Ground()
    ground.write(
        mark_record(SHOP, Mark(4, 7)),
        repeats_record(SHOP, ((4, 7),)),
        # A mark by the lane's first owner, and one by the process that sent again.
        mark_record(SHOP, Mark(7, 7, late=True)),
        mark_record(SHOP, Mark(9, 9)),
    )
    assert covered(ground.now()) == [4, 5, 6]
    ground.write(RecordOut(LANES, repeats_record(SHOP, ()).key, b""))
    assert covered(ground.now()) == []


def test_nothing_waits_for_longer_than_its_deadline() -> None:
    ground = Ground()
    said = repeats_record(SHOP, ((4, 7),))
    ground.write(said, at_ms=NOW_MS - 101_000)
    assert covered(ground.now()) == []
    ground.write(said, at_ms=NOW_MS - 99_000)
    assert covered(ground.now()) == [4, 5, 6]


def test_of_its_own_it_knows_by_what_kafka_has_of_it() -> None:
    ground = Ground()
    assert read_again(ground.now(a=Reach(3, 3), b=Reach(0, 9))) == []
    assert read_again(ground.now(a=Reach(3, 5))) == list(range(3, 12))


def test_what_it_reads_again_is_said_once() -> None:
    ground = Ground()
    for _ in range(2):
        again = {A: (3, 5), B: (2, 2)}
        asyncio.run(ground.doubts.read_again(again, now_ms=NOW_MS))
        (row,) = ground.outlet.rows
    assert open_repeats(row.key or b"", row.value) == (Strand(RETRIER, A), ((3, 5),))
    assert read_again(ground.now(a=Reach(9, 9))) == [3, 4]


@pytest.mark.parametrize("is_leaderless", [True, False])
def test_who_cannot_tell_labels_all_and_waits_for_nobody(
    monkeypatch: pytest.MonkeyPatch, *, is_leaderless: bool
) -> None:
    """Otherwise all tenants' retries would stand still because of a few."""
    monkeypatch.setattr(known_doubts, "_PATIENCE_S", 0.05)
    ground = Ground()
    if is_leaderless:
        ground.log.leaderless.add(MARKS)
        doubts = ground.now()
    else:
        # Nobody follows the log.
        ground.write(mark_record(SHOP, Mark(9, 9)))
        doubts = asyncio.run(ground.doubts.now({}, now_ms=NOW_MS))
    assert covered(doubts) == list(range(12))


def test_what_a_dead_job_may_have_sent_is_said_before_it_is_sent_again() -> None:
    async def scenario() -> None:
        hifi = memory_retrier({A: Reach(2, 5, 77), B: Reach(4, 4, 78)})
        said: dict[KafkaPartition, bool] = {}

        def task(job: DueJob) -> list[RangeEnd]:
            said.update(dict.fromkeys(job.ranges, bool(hifi.said)))
            return [RangeEnd(where, end) for where, (_, end) in job.ranges.items()]

        hifi.task = task
        hifi.fill(9, A, B)
        await hifi.begin_with(0, 1)
        await hifi.settle()
        assert said == {A: True, B: said[B]}
        (row,) = hifi.said
        again = Strand(RETRIER, A), ((2, 5),)
        assert open_repeats(row.key or b"", row.value) == again

    asyncio.run(scenario())


def test_a_job_knows_of_what_is_in_doubt_when_it_begins() -> None:
    async def scenario() -> None:
        hifi = memory_retrier({A: Reach(2, 5, 77)})
        hifi.fill(9, A)
        await hifi.begin_with(0)
        await hifi.settle()
        (job,) = hifi.jobs
        assert read_again(job.plan.doubts, 9) == [2, 3, 4, 5, 6, 7, 8]
        hifi.fill(1, A)
        await hifi.settle()
        assert read_again(hifi.jobs[1].plan.doubts, 9) == [2, 3, 4]

    asyncio.run(scenario())
