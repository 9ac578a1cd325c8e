"""A lane from another process continues where that process ended, whatever happens meanwhile."""

import asyncio
from collections.abc import Callable, Collection, Sequence

import pytest

from delivery.lanes.marks import OPEN, Mark, mark_record
from delivery.lanes.units import Span, Strand
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from shared.event.record import KafkaPartition, Origin, RecordIn, RecordOut
from shared.event.topics import LANES
from tests.support.delivery.memory_log import MemoryLog
from tests.unit.delivery.lanes.test_roster import TO, A, B, House

COMES = Destination("s", "comes", "http://localhost/")
HERE, BESIDE = Strand(COMES.id, A), Strand(COMES.id, B)


class HandOver(House):
    """Holds one destination; another process holds a second one, whose last mark is at 1."""

    def __init__(self) -> None:
        super().__init__()
        self.mine = {TO.id}
        self.roster.owns = self.mine.__contains__
        self.roster.take(
            Configuration(streams={"s": Stream("s", 2)}, destinations={TO.id: TO, COMES.id: COMES})
        )
        asyncio.run(self.roster.look())
        self.mark(HERE, Mark(1, 1))
        self.mark(BESIDE, Mark(0, 0))
        self.hear()

    def mark(self, strand: Strand, mark: Mark) -> None:
        row, at = mark_record(strand, mark), len(self.log.logs[KafkaPartition(LANES, 0)])
        self.log.write([RecordIn(Origin(LANES, 0, at), 1, row.key, row.value, ())])

    def hear(self) -> None:
        """Read the marks written so far."""
        asyncio.run(self.marks.read())

    def follow(self, *marks: Mark) -> None:
        """Read these marks as another process writes them."""
        heard = asyncio.Event()
        for mark in marks:
            self.mark(HERE, mark)

        def tell(strand: Strand, mark: Mark) -> None:
            self.roster.mark_came(strand, mark)
            if mark == marks[-1]:
                heard.set()

        async def scenario() -> None:
            following = asyncio.create_task(self.marks.follow(tell))
            async with asyncio.timeout(10):
                await heard.wait()
            following.cancel()

        asyncio.run(scenario())

    def take_over(self) -> int:
        """Take the lane over at 4; return how many marks were stored by then."""
        self.begin()
        self.hear()
        asyncio.run(self.roster.look())
        assert self.at() == 4
        return len(self.outlet.rows)

    def begin(self) -> None:
        """Mark the lane to the end, as its old owner does, and begin to take it over."""
        self.mark(HERE, Mark(4, 4))
        self.mine.add(COMES.id)
        self.roster.begin()

    def at(self) -> int | None:
        return self.book.position(COMES.id, [A]).get(A)


class InterruptedKafka(MemoryLog):
    """A Kafka in which something happens while a stream's ends are being fetched."""

    meanwhile: Callable[[], None] | None = None

    async def ends(self, places: Collection[KafkaPartition]) -> dict[KafkaPartition, int]:
        found = await super().ends(places)
        if self.meanwhile and A in places:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return found


def test_nobody_is_entered_before_the_marks_of_who_had_it_are_known() -> None:
    house = HandOver()
    house.begin()
    for _ in range(3):
        # A destination that waits for marks does not delay the others.
        assert asyncio.run(house.roster.look())
        assert list(house.roster.running()) == [TO]
        assert house.at() is None
    house.hear()
    asyncio.run(house.roster.look())
    assert house.at() == 4


def test_what_comes_while_kafka_is_asked_waits_for_the_next_look() -> None:
    house = HandOver()
    house.log.__class__ = InterruptedKafka
    assert isinstance(house.log, InterruptedKafka)
    house.log.meanwhile = house.begin
    asyncio.run(house.roster.look())
    assert house.at() is None
    house.hear()
    asyncio.run(house.roster.look())
    assert house.at() == 4


def test_while_kafka_does_not_say_where_the_marks_end_nobody_is_entered() -> None:
    house = HandOver()
    house.begin()
    marks = house.log.logs.pop(KafkaPartition(LANES, 0))
    assert not asyncio.run(house.roster.look())
    assert house.at() is None
    house.log.logs[KafkaPartition(LANES, 0)] = marks
    asyncio.run(house.roster.look())
    assert house.at() is None
    house.hear()
    assert asyncio.run(house.roster.look())
    assert house.at() == 4


def test_what_goes_and_comes_back_while_its_first_mark_is_stored_is_not_entered_by_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = HandOver()
    house.marks.marks.clear()
    house.mine.add(COMES.id)
    house.roster.drop()
    store = house.outlet.store

    async def goes_and_comes_back(rows: Sequence[RecordOut]) -> None:
        await store(rows)
        house.mine.remove(COMES.id)
        house.roster.drop()
        house.begin()

    monkeypatch.setattr(house.outlet, "store", goes_and_comes_back)
    asyncio.run(house.roster.look())
    assert [row.key for row in house.outlet.rows[-2:]] == [b"s/comes:1", b"s/comes:0"]
    assert house.at() is None
    house.hear()
    asyncio.run(house.roster.look())
    assert house.at() == 4


@pytest.mark.parametrize(
    "late", [Mark(2, 2), Mark(1, 3), Mark(3, 9), Mark(2, 2, late=True), Mark(3, 9, late=True)]
)
def test_a_mark_that_who_had_it_writes_late_is_set_right_though_nothing_comes(late: Mark) -> None:
    """The old owner was frozen and now writes its old position; our lane may be idle for days."""
    house = HandOver()
    before = house.take_over()
    house.follow(late)
    asyncio.run(house.roster.look())
    assert house.outlet.rows[before:] == [mark_record(HERE, Mark(4, 4))]
    house.follow(Mark(4, 4))
    asyncio.run(house.roster.look())
    assert len(house.outlet.rows) == before + 1, "the mark is not written twice"


def test_who_takes_a_lane_over_with_a_late_mark_says_again_where_it_is() -> None:
    """No other process has written the position, and the earlier mark may be compacted away."""
    house = HandOver()
    house.begin()
    house.mark(HERE, Mark(2, 2, late=True))
    house.hear()
    before = len(house.outlet.rows)
    asyncio.run(house.roster.look())
    assert house.at() == 4
    assert house.outlet.rows[before:] == [mark_record(HERE, Mark(4, 4))]


def test_what_is_not_set_right_as_kafka_is_away_is_set_right_later() -> None:
    house = HandOver()
    before = house.take_over()
    house.follow(Mark(2, 2))
    house.outlet.refusal = lambda _: TimeoutError("away")
    with pytest.raises(TimeoutError, match="away"):
        asyncio.run(house.roster.look())
    house.outlet.refusal = lambda _: None
    asyncio.run(house.roster.look())
    assert house.outlet.rows[before:] == [mark_record(HERE, Mark(4, 4))]


def test_of_what_is_under_way_its_worker_speaks_until_that_has_ended() -> None:
    house = HandOver()
    before = house.take_over()
    span = Span(4, 5)
    house.book._ways[HERE].under_way = span
    house.follow(Mark(4, 4))
    asyncio.run(house.roster.look())
    assert len(house.outlet.rows) == before
    house.book.cut(HERE, span, 4, not_before_s=0.0)
    asyncio.run(house.roster.look())
    # The event may have been sent, which the late mark does not say.
    assert house.outlet.rows[before:] == [mark_record(HERE, Mark(4, 5))]


def test_what_says_no_less_than_is_true_needs_no_second_word() -> None:
    house = HandOver()
    before = house.take_over()
    house.follow(Mark(4, 4), Mark(4, 7), Mark(5, 5), Mark(4, OPEN))
    # These marks arrive after the worker's job has reported the end; marks read together count
    # together.
    house.follow(Mark(2, 4), Mark(4, 4))
    house.mine.remove(COMES.id)
    house.follow(Mark(1, 1))
    house.roster.drop()
    asyncio.run(house.roster.look())
    assert len(house.outlet.rows) == before
