"""Positions in a topic that was deleted and recreated."""

import pytest
from msgspec.structs import replace as replace_mark
from structlog.testing import capture_logs

from delivery.lanes.marks import OPEN, Mark, mark_record
from delivery.lanes.strands.repeats import RepeatedRanges
from delivery.lanes.turns import Turns
from delivery.lanes.units import JobKind, Lane, Strand
from shared.event.record import KafkaPartition
from tests.unit.delivery.lanes.test_roster import TO, A, B, House

TOPIC = A.topic


def test_a_mark_says_in_which_topic_it_is_as_soon_as_kafka_tells() -> None:
    house = House()
    house.marks.marks = {Strand(TO.id, A): Mark(3, 4)}
    house.log.topic_ids[TOPIC] = "one"
    house.look(TO)
    # A mark that names no topic is taken to mean the present one.
    assert house.book.mark(Strand(TO.id, A)) == Mark(3, 4, life="one")
    assert house.outlet.rows == [mark_record(Strand(TO.id, B), Mark(0, 0, life="one"))]


@pytest.mark.parametrize("at", [3, 5])
def test_what_is_in_a_topic_that_was_deleted_begins_in_the_one_made_anew(at: int) -> None:
    house = House()
    here, there = Strand(TO.id, A), Strand(TO.id, B)
    house.marks.marks = {here: Mark(at, OPEN, life="one"), there: Mark(0, 0, life="two")}
    house.marks.repeats = {here: RepeatedRanges(((0, 3),), 0)}
    house.log.topic_ids[TOPIC] = "two"
    with capture_logs() as logs:
        house.look(TO)
    assert house.position() == {A: 1, B: 0}
    # A worker with an offset of the old topic may have sent everything in the log so far.
    assert house.book.mark(here) == Mark(1, 5, life="two")
    # Copies of the old topic's events may still wait, so what was sent again stays known.
    assert house.outlet.rows == [mark_record(here, Mark(1, 5, life="two"))]
    assert here in house.marks.repeats
    assert [(each["event"], each["at"]) for each in logs] == [("lane.topic_made_anew", at)]


def test_a_lane_that_runs_begins_in_the_new_topic_when_nothing_of_the_old_is_under_way() -> None:
    house, here = House(), Strand(TO.id, A)
    house.log.topic_ids[TOPIC] = "one"
    house.look(TO)
    lane = Lane(TO, JobKind.SHARED, 10)
    (job,) = house.book.plan(lambda _: lane, Turns(4, 1.0, 1.0, 1), now_s=0.0)
    (span,) = (spans[TO.id] for spans in (unit.spans for unit in job.units))
    assert span.life == "one"
    # Metadata with a new leader also shows that the topic was recreated.
    house.log.topic_ids[TOPIC] = "two"
    house.grow()
    house.look(TO, partition_count=3)
    assert house.book.mark(here) == Mark(1, 5, life="one")
    assert house.book.ended(here, span, 3)
    # The strand has more to send, but no span of the old topic is started any more.
    assert house.book.behind() == {TO.id}
    assert house.book.plan(lambda _: lane, Turns(4, 1.0, 1.0, 1), now_s=1e9) == []
    # Kafka reported no change, so it is asked again.
    assert house.roster.lives.again_s < 1e9
    house.roster.lives.again_s = 0.0
    house.look(TO, partition_count=3)
    # A worker's report about the old topic does not move the position in the new one.
    assert house.book.mark(here) == Mark(1, 3, life="two")
    assert not house.book.went(here, Mark(5, 5, life="one"))
    assert house.position()[A] == 1


def test_a_broker_that_has_not_heard_of_the_new_topic_changes_nothing() -> None:
    house, here = House(), Strand(TO.id, A)
    for life, partition_count in (("one", 2), ("two", 3), ("one", 4)):
        house.log.topic_ids[TOPIC] = life
        house.log.logs.setdefault(KafkaPartition(TOPIC, partition_count - 1), [])
        house.look(TO, partition_count=partition_count)
    assert house.book.mark(here).life == "two"


def test_nothing_goes_on_in_a_topic_of_which_kafka_does_not_say_which_it_is() -> None:
    house, here = House(), Strand(TO.id, A)
    house.marks.marks = {here: Mark(3, 4, life="one")}
    house.look(TO)
    assert here not in house.book
    house.log.topic_ids[TOPIC] = "one"
    house.roster.lives.again_s = 0.0
    house.look(TO)
    assert house.book.mark(here) == Mark(3, 4, life="one")


def test_a_mark_of_an_old_topic_that_comes_late_is_not_the_last_word() -> None:
    now = Mark(1, 1, life="two")
    late = Mark(500, 600, late=True, life="one").after(now)
    # So the mark is written once more, as the log has only the late one.
    assert late == replace_mark(now, late=True)
    assert Mark(2, 3, late=True, life="two").after(now) == Mark(2, 3, late=True, life="two")
