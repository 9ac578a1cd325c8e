"""Destinations that are sent to, and the position from which each continues.

The log and the outlet are the fakes of tests/contract.
"""

import asyncio
import time
from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from delivery.lanes.book import Book
from delivery.lanes.marks import OPEN, Mark, mark_record, open_mark
from delivery.lanes.marks_log import MarksLog
from delivery.lanes.roster import Roster
from delivery.lanes.strands.repeats import RepeatedRanges
from delivery.lanes.turns import Turns
from delivery.lanes.units import JobKind, Lane, Strand
from shared.config.configuration import Configuration, RemovedDestination, Stream
from shared.config.destination import Destination, Start
from shared.event.record import KafkaPartition, Origin, Position, RecordIn
from shared.event.topics import LANES, RETRIER
from tests.support.delivery.memory_log import MemoryLog
from tests.support.delivery.memory_outlet import MemoryOutlet

A, B, C = (KafkaPartition("hifi.stream.s", number) for number in range(3))
TO = Destination("s", "d", "http://localhost/")


class House:
    """A roster over a log of two Kafka partitions: one has five events at 1 to 5 s, one none."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.log.make(LANES, 1)
        self.log.make("hifi.stream.s", 2)
        self.log.write(RecordIn(Origin(*A, n), 1_000 * (n + 1), None, b"1", ()) for n in range(5))
        self.log.forget(A, 1)
        self.marks = MarksLog(self.log)
        self.outlet = MemoryOutlet()
        self.book = Book()
        self.ours = True
        # The positions of consumer groups, and the groups that do not answer now.
        self.groups: dict[str, dict[KafkaPartition, int]] = {}
        self.silent: set[str] = set()
        self.roster = Roster(
            self.book, self.log, self.marks, self.outlet, lambda _: self.ours, self.told
        )

    async def told(self, names: Collection[str]) -> Mapping[str, Position]:
        return {name: self.groups.get(name, {}) for name in set(names) - self.silent}

    def look(self, *destinations: Destination, partition_count: int = 2) -> bool:
        self.roster.take(
            Configuration(
                streams={"s": Stream("s", partition_count)},
                destinations={each.id: each for each in destinations},
            )
        )
        return asyncio.run(self.roster.look())

    def grow(self) -> None:
        """Add a partition, as `kafka-topics.sh --alter --partitions` does."""
        self.log.logs[C] = []

    def position(self) -> dict[KafkaPartition, int]:
        return dict(self.book.position(TO.id, [A, B, C]))


@pytest.mark.parametrize(
    ("start", "begin"), [("earliest", 1), ("latest", 5), (3_000, 2), (9_000, 5), (0, 1)]
)
def test_a_new_lane_begins_where_its_destination_says(start: Start, begin: int) -> None:
    house = House()
    assert house.look(replace(TO, start=start))
    assert house.position() == {A: begin, B: 0}
    # Their marks are stored before anything is sent: the next process must begin at the same place.
    assert house.outlet.rows == [
        mark_record(Strand(TO.id, B), Mark(0, 0)),
        mark_record(Strand(TO.id, A), Mark(begin, begin)),
    ]


@pytest.mark.parametrize("start", ["earliest", "latest", 7])
def test_a_lane_goes_on_where_its_marks_say_whatever_its_start(start: Start) -> None:
    house = House()
    house.marks.marks = {Strand(TO.id, A): Mark(3, 4), Strand(TO.id, B): Mark(0, 0)}
    house.look(replace(TO, start=start))
    assert house.position() == {A: 3, B: 0}
    assert house.book.mark(Strand(TO.id, A)) == Mark(3, 4)
    assert house.outlet.rows == []


@pytest.mark.parametrize("start", ["earliest", "latest", 7])
def test_a_lane_whose_marks_are_lost_goes_on_where_its_consumer_group_is(start: Start) -> None:
    """A lane uses its `start` only where Kafka knows no position, as in a new partition."""
    house, to = House(), replace(TO, start=start)
    house.grow()
    house.log.write(RecordIn(Origin(*B, n), 1, None, b"1", ()) for n in range(2))
    house.groups[to.id] = {A: 3, B: 0, KafkaPartition("hifi.stream.other", 0): 9}
    house.look(to, partition_count=3)
    assert house.position() == {A: 3, B: 0, C: 0}
    assert house.outlet.rows == [
        mark_record(Strand(to.id, B), Mark(0, OPEN)),
        mark_record(Strand(to.id, C), Mark(0, 0)),
        mark_record(Strand(to.id, A), Mark(3, OPEN)),
    ]
    # Events in the log so far may have been sent; later ones have not.
    assert house.book.mark(Strand(to.id, A)) == Mark(3, 5)
    assert house.book.mark(Strand(to.id, B)) == Mark(0, 2)


def test_a_lane_that_has_lost_some_of_its_marks_goes_on_where_its_group_is() -> None:
    house = House()
    house.marks.marks = {Strand(TO.id, A): Mark(3, 4)}
    house.log.write(RecordIn(Origin(*B, n), 1, None, b"1", ()) for n in range(4))
    house.groups[TO.id] = {A: 2, B: 3}
    house.look(TO)
    assert house.position() == {A: 3, B: 3}
    assert house.outlet.rows == [mark_record(Strand(TO.id, B), Mark(3, OPEN))]


def test_a_lane_whose_group_is_known_needs_no_leader_to_be_marked() -> None:
    house = House()
    house.groups[TO.id] = {A: 3, B: 0}
    house.log.leaderless = {A}
    house.look(TO)
    assert house.position() == {B: 0}
    house.log.leaderless = set()
    house.groups.clear()
    house.look(TO)
    assert house.position() == {A: 3, B: 0}


def test_nothing_new_begins_while_kafka_does_not_say_whether_it_has_begun() -> None:
    house, other = House(), replace(TO, name="other")
    house.silent = {TO.id}
    for _ in range(2):
        assert house.look(TO, other)
        assert house.position() == {}
        assert list(house.roster.running()) == [other], "the other destination runs"
    assert house.roster.waiting() == {TO.id: ([0, 1], "Kafka does not report where they begin")}
    house.silent = set()
    house.look(TO, other)
    assert house.position() == {A: 1, B: 0}


def test_what_a_stream_has_grown_by_is_read_whole_whatever_its_start() -> None:
    house = House()
    house.marks.marks = {Strand(TO.id, A): Mark(3, 3)}
    house.log.write([RecordIn(Origin(*B, 0), 1, None, b"1", ())])
    house.look(replace(TO, start="latest"))
    assert house.position() == {A: 3, B: 0}
    assert house.outlet.rows == [mark_record(Strand(TO.id, B), Mark(0, 0))]


@pytest.mark.parametrize("refused", range(2))
def test_a_life_that_ends_among_its_first_marks_lets_the_next_begin_as_the_destination_says(
    refused: int,
) -> None:
    house, to = House(), replace(TO, start="latest")
    house.log.write(RecordIn(Origin(*B, n), 1, None, b"1", ()) for n in range(2))
    rows = house.outlet.rows
    house.outlet.refusal = lambda _: OSError("full") if len(rows) == refused else None
    with pytest.raises(OSError, match="full"):
        house.look(to)
    assert house.position() == {}
    assert rows == [mark_record(Strand(TO.id, B), Mark(2, 2))][:refused]
    next_life = House()
    next_life.log, next_life.roster.log = house.log, house.log
    opened = [open_mark(row.key or b"", row.value) for row in rows]
    next_life.marks.marks = {strand: mark for strand, mark in filter(None, opened) if mark}
    next_life.look(to)
    assert next_life.position() == {A: 5, B: 2}


def test_what_kafka_knows_of_a_stream_begins_and_the_rest_when_it_is_there() -> None:
    house = House()
    house.look(TO, partition_count=3)
    assert house.roster.new == {TO.id}
    assert list(house.roster.running()) == [TO]
    assert house.position() == {A: 1, B: 0}
    assert house.roster.waiting() == {TO.id: ([2], "Kafka has no such Kafka partitions")}
    house.grow()
    house.look(TO, partition_count=3)
    assert (house.roster.new, house.roster.waiting()) == (set(), {})
    assert house.position() == {A: 1, B: 0, C: 0}


@pytest.mark.parametrize("gone", [A, B])
@pytest.mark.parametrize(
    ("start", "begin"),
    [("earliest", {A: 1, B: 0}), ("latest", {A: 5, B: 2}), (3_000, {A: 2, B: 2})],
)
def test_a_kafka_partition_without_a_leader_holds_up_no_other(
    gone: KafkaPartition, start: Start, begin: dict[KafkaPartition, int]
) -> None:
    """Once the partition has a leader, its strand begins as the destination says."""
    house, to = House(), replace(TO, start=start)
    house.log.write(RecordIn(Origin(*B, n), 1, None, b"1", ()) for n in range(2))
    house.log.leaderless = {gone}
    for _ in range(2):
        assert house.look(to)
        assert house.roster.is_entered
        assert house.position() == {where: at for where, at in begin.items() if where != gone}
        assert house.roster.waiting() == {to.id: ([gone.partition], "no leader")}
    written = len(house.outlet.rows)
    assert written == 2
    next_life = House()
    next_life.log, next_life.roster.log = house.log, house.log
    next_life.marks.marks = dict(house.marks.marks)
    for life in (next_life, house):
        life.log.leaderless = set()
        life.look(to)
        assert (life.position(), life.roster.waiting()) == (begin, {})


def test_what_kafka_says_nothing_of_is_told_with_why() -> None:
    house = House()
    paused = replace(TO, name="paused", is_paused=True)
    house.log.leaderless = {A, B}
    house.look(TO, paused)
    assert house.roster.waiting() == {TO.id: ([0, 1], "no leader")}
    assert list(house.roster.running()) == []
    other = Destination("not-yet", "d", "http://localhost/")
    house.look(TO, other)
    assert house.roster.waiting()[other.id] == ([], "its stream is not configured")
    house.log.leaderless = set()
    house.roster.begin()
    (_, why) = house.roster.waiting()[TO.id]
    assert why == "hifi.lanes is not yet read up to the time when this process got them"


def test_what_was_added_in_kafka_by_hand_is_read_whole() -> None:
    house = House()
    house.look(replace(TO, start="latest"))
    house.grow()
    house.log.write([RecordIn(Origin(*C, 0), 1, None, b"1", ())])
    house.look(replace(TO, start="latest"))
    assert house.position() == {A: 5, B: 0, C: 0}
    assert house.outlet.rows[2:] == [mark_record(Strand(TO.id, C), Mark(0, 0))]
    assert house.roster.new == set()


def test_a_stream_that_grows_is_sent_meanwhile_where_it_is_known() -> None:
    house = House()
    house.look(TO)
    for _ in range(2):
        # The new partition is configured, but Kafka has not created it yet.
        house.look(TO, partition_count=3)
        assert list(house.roster.running()) == [TO]
        assert house.roster.destination(TO.id) == TO
        assert house.position() == {A: 1, B: 0}
    house.grow()
    house.look(TO, partition_count=3)
    assert house.position() == {A: 1, B: 0, C: 0}


@pytest.mark.parametrize(("wait_s", "until"), [(600.0, OPEN), (0.0, 5)])
def test_a_look_says_when_it_asked_where_logs_end(wait_s: float, until: int) -> None:
    """How much a following job may have sent is known only from a look after its end."""
    house, strand = House(), Strand(TO.id, A)
    house.look(TO)
    now_s = time.monotonic()
    jobs = house.book.plan(lambda _: Lane(TO, JobKind.FOLLOWING, 9), Turns(), now_s=now_s)
    (span,) = [unit.spans[TO.id] for job in jobs for unit in job.units]
    house.book.cut(strand, span, 1, not_before_s=now_s + wait_s)
    house.look(TO)
    assert house.book.mark(strand) == Mark(1, until)


def test_only_what_is_ours_configured_and_not_paused_is_sent_to() -> None:
    house = House()
    house.look(TO)
    assert list(house.roster.running()) == [TO]
    paused = replace(TO, is_paused=True)
    house.look(paused)
    assert list(house.roster.running()) == []
    assert house.roster.destination(TO.id) is None
    # The paused lane keeps its position meanwhile.
    assert house.position() == {A: 1, B: 0}
    house.look(TO)
    assert house.roster.destination(TO.id) == TO
    house.ours = False
    house.roster.drop()
    assert house.roster.destination(TO.id) is None
    assert house.position() == {}
    house.look()
    assert list(house.roster.running()) == []


GONE = RemovedDestination("s", "gone", "default", 1)
OUTLIVED = Destination("s", "outlived", "http://localhost/")


@pytest.mark.parametrize("ours", [True, False])
def test_the_marks_of_a_destination_go_with_what_is_known_of_its_removal(*, ours: bool) -> None:
    house = House()
    house.ours = ours
    late, latest = Strand("s/late", A), {TO.id: TO}
    kept = {Strand(TO.id, A), Strand(GONE.id, A), late}
    gone = [Strand(OUTLIVED.id, where) for where in (A, B)]
    house.marks.marks = {each: Mark(3, 3) for each in (*kept, *gone) if each != late}
    ours_again, theirs = gone[0], Strand(RETRIER, KafkaPartition("hifi.retry.30s", 0))
    house.marks.repeats = {it: RepeatedRanges(((1, 3),), 1) for it in (ours_again, theirs)}

    async def newest() -> Configuration:
        # Another process created and began the destination while this one fetched the
        # configuration.
        house.marks.marks[late] = Mark(0, 0)
        return Configuration(destinations=latest, removed_destinations={GONE.id: GONE})

    asyncio.run(house.roster.forget(newest))
    rows: list[tuple[object, ...]] = [(row.topic, row.key, row.value) for row in house.outlet.rows]
    if ours:
        keys = [b"s/outlived:0", b"s/outlived:1", b"s/outlived:hifi.stream.s:0:repeats"]
        assert rows == [(LANES, key, None) for key in keys]
        assert set(house.marks.marks) == kept
        assert set(house.marks.repeats) == {theirs}
        house.outlet.rows.clear()
        latest[late.destination] = replace(TO, name="late")
        asyncio.run(house.roster.forget(newest))
    else:
        assert kept | set(gone) == set(house.marks.marks)
    assert house.outlet.rows == []


@pytest.mark.parametrize("left", [{}, {GONE.id: GONE}])
def test_a_configuration_that_was_lost_takes_no_marks_with_it(
    left: dict[str, RemovedDestination],
) -> None:
    """Otherwise all lanes' positions would be gone when somebody restores the configuration."""
    house = House()
    house.look(TO)
    house.outlet.rows.clear()
    house.marks.marks |= {Strand(OUTLIVED.id, A): Mark(3, 3)}
    before = dict(house.marks.marks)

    async def newest() -> Configuration:
        return Configuration(removed_destinations=left)

    asyncio.run(house.roster.forget(newest))
    assert (house.outlet.rows, house.marks.marks) == ([], before)


def test_who_gets_the_name_of_one_that_is_forgotten_begins_where_it_says() -> None:
    house = House()
    house.marks.marks = {Strand(TO.id, A): Mark(2, 2), Strand(TO.id, B): Mark(0, 0)}

    async def newest() -> Configuration:
        return Configuration(removed_destinations={GONE.id: GONE})

    asyncio.run(house.roster.forget(newest))
    house.look(replace(TO, start="latest"))
    assert house.position() == {A: 5, B: 0}


def test_a_stream_that_does_not_exist_yet_holds_up_no_other() -> None:
    house = House()
    other = Destination("not-yet", "d", "http://localhost/")
    house.look(TO, other)
    assert house.roster.new == {other.id}
    assert list(house.roster.running()) == [TO]
