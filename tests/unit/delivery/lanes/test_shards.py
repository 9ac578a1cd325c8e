"""A destination whose Kafka partitions are spread over several processes."""

import asyncio
from dataclasses import replace

import pytest

from delivery.lanes.marks import Mark
from delivery.lanes.marks_log import MarksLog
from shared.config.configuration import Configuration, Stream
from shared.event.record import KafkaPartition, Origin, RecordIn
from shared.event.topics import LANES
from shared.runtime.kafka import lane_positions
from tests.unit.delivery.lanes.test_given_up import Groups
from tests.unit.delivery.lanes.test_loop import BESIDE, HERE, Driver
from tests.unit.delivery.lanes.test_loop import TO as ALONE
from tests.unit.delivery.lanes.test_roster import TO, A, B, C, House

SHARDED = replace(TO, shards=2, start="latest")


class Process(House):
    """One of the processes that share a log; it holds some shards."""

    def __init__(self, *shards: str, beside: House | None = None) -> None:
        super().__init__()
        if beside is None:
            self.log.write(RecordIn(Origin(*B, n), 1, None, b"1", ()) for n in range(3))
        else:
            self.log = self.roster.log = beside.log
            self.marks = self.roster.marks = MarksLog(self.log)
        self.mine = set(shards)
        self.roster.owns = self.mine.__contains__
        self._told = 0

    def goes(self, *, partition_count: int = 2) -> dict[KafkaPartition, int]:
        """Look, let all processes read the marks stored by that, and return our positions."""
        asyncio.run(self.marks.read())
        self.look(SHARDED, partition_count=partition_count)
        for row in self.outlet.rows[self._told :]:
            at = len(self.log.logs[KafkaPartition(LANES, 0)])
            self.log.write([RecordIn(Origin(LANES, 0, at), 1, row.key, row.value, ())])
        self._told = len(self.outlet.rows)
        return self.position()


@pytest.mark.parametrize("is_first", [True, False])
def test_each_process_begins_with_its_shard_where_the_destination_says(*, is_first: bool) -> None:
    """Shards that begin before the first shard do not mistake that one for growth of the stream."""
    first = Process(TO.id)
    other = Process(f"{TO.id}#1", beside=first)
    if not is_first:
        assert other.goes() == {}
        assert other.outlet.rows == []
    assert first.goes() == {A: 5}
    assert other.goes() == {B: 3}
    assert first.goes() == {A: 5}


def test_what_a_stream_has_grown_by_is_read_whole_by_whoever_has_its_shard() -> None:
    first = Process(TO.id)
    other = Process(f"{TO.id}#1", beside=first)
    first.goes()
    other.goes()
    first.grow()
    first.log.write(RecordIn(Origin(*C, n), 1, None, b"1", ()) for n in range(2))
    assert other.goes(partition_count=3) == {B: 3}
    assert first.goes(partition_count=3) == {A: 5, C: 0}


def test_a_shard_that_moves_goes_on_where_it_was_and_the_others_stay() -> None:
    both = Process(TO.id, f"{TO.id}#1")
    assert both.goes() == {A: 5, B: 3}
    other = Process(beside=both)
    assert other.goes() == {}
    both.mine.discard(f"{TO.id}#1")
    both.roster.drop()
    assert both.goes() == {A: 5}
    other.mine.add(f"{TO.id}#1")
    other.roster.begin()
    assert other.goes() == {B: 3}
    assert not other.roster.new
    both.mine.clear()
    both.roster.drop()
    assert both.goes() == {}


def test_a_shard_without_a_kafka_partition_waits_for_nothing() -> None:
    first, empty = Process(TO.id), Process(f"{TO.id}#2")
    first.goes()
    empty.roster.take(
        Configuration(
            streams={"s": Stream("s", 2)}, destinations={TO.id: replace(SHARDED, shards=3)}
        )
    )
    asyncio.run(empty.roster.look())
    assert empty.position() == {}
    assert empty.roster.waiting() == {}


def test_to_give_up_a_shard_is_to_wait_for_what_is_under_way_of_that_one_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lane_positions, "LaneGroups", lambda _: Groups())
    driver = Driver(marks={HERE: Mark(0, 0), BESIDE: Mark(0, 0)})
    driver.log.write(RecordIn(Origin(*BESIDE.where, n), 1, None, b"1", ()) for n in range(4))
    loop, to = driver.loop, replace(ALONE, shards=2)
    driver.configure(to)
    driver.look()
    assert driver.spans().keys() == {HERE, BESIDE}, "both strands are under way"
    slot = loop.member.slot_of(to.shard_of(1))
    assert slot != loop.member.slot_of(to.id)

    async def give_up() -> None:
        await loop.finish(frozenset({slot}))
        loop.member.owned -= {slot}

    async def scenario() -> None:
        giving_up = asyncio.create_task(give_up())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await asyncio.shield(giving_up)
        assert driver.spans() == {}
        loop._mark_came(BESIDE, Mark(4, 4))
        async with asyncio.timeout(5):
            await giving_up
        # The shard is released in the next moment.
        await asyncio.sleep(0)

    asyncio.run(scenario())
    assert BESIDE not in loop.book
    assert loop.book.is_under_way(HERE), "the other strand continues"


@pytest.mark.parametrize("shards", [1, 2])
def test_a_lane_without_marks_whose_group_knows_one_partition_only_reads_the_others_whole(
    shards: int,
) -> None:
    """The lane has begun before, so its `start` no longer counts."""
    house = House()
    house.roster.owns = {TO.id, f"{TO.id}#1"}.__contains__
    house.groups[TO.id] = {B: 0}
    for _ in range(2):
        house.look(replace(TO, shards=shards, start="latest"))
    assert house.position() == {A: 1, B: 0}
