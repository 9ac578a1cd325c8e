"""What comes from another process goes on where that one has ended, whatever happens meanwhile."""

import asyncio
from collections.abc import Callable, Collection, Sequence

import pytest

from delivery.lanes.marks import Mark, mark_record
from delivery.lanes.units import Strand
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from shared.event.record import KafkaPartition, Origin, RecordIn, RecordOut
from shared.event.topics import LANES
from tests.support.kept_log import KeptLog
from tests.unit.delivery.lanes.test_roster import TO, A, B, House

COMES = Destination("s", "comes", "http://localhost/")
HERE, BESIDE = Strand(COMES.id, A), Strand(COMES.id, B)


class HandOver(House):
    """One destination is ours, another is somebody else's, who has marked it at 1 last we heard."""

    def __init__(self) -> None:
        super().__init__()
        self.mine = {TO.id}
        self.roster.holds = self.mine.__contains__
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
        """Read the marks that there are."""
        asyncio.run(self.marks.read())

    def begin(self) -> None:
        """Who had it has marked it to the last, and it is ours from now on."""
        self.mark(HERE, Mark(4, 4))
        self.mine.add(COMES.id)
        self.roster.begin()

    def at(self) -> int | None:
        return self.book.position(COMES.id, [A]).get(A)


class Interrupted(KeptLog):
    """Something happens while the ends of a stream are asked for."""

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
        # Who waits for them holds up nobody else.
        assert asyncio.run(house.roster.look())
        assert list(house.roster.running()) == [TO]
        assert house.at() is None
    house.hear()
    asyncio.run(house.roster.look())
    assert house.at() == 4


def test_what_comes_while_kafka_is_asked_waits_for_the_next_look() -> None:
    house = HandOver()
    house.log.__class__ = Interrupted
    assert isinstance(house.log, Interrupted)
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
