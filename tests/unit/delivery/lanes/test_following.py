"""A job learns that it may follow its logs for longer; otherwise it ends and is planned again."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec import structs

from delivery.lanes.following.terms import TERMS_LOG, Term, number_of, term_record
from delivery.lanes.marks import Mark
from delivery.lanes.turns import Turn
from delivery.lanes.units import JobKind
from shared.event.record import Origin, RecordIn, RecordOut
from shared.flow.flow import FlowState
from shared.flow.flow_record import FlowRecord
from shared.flow.neighbours import Neighbours, StoreNews
from tests.support.delivery.memory_log import NODE
from tests.unit.delivery.lanes.test_loop import BESIDE, HERE, TO, Driver, known

REAL_TIME = replace(TO, latency="realtime")
LEASE_MS = 77


class Following(Driver):
    """A driver whose job follows a destination's logs and nears its end."""

    def __init__(self) -> None:
        super().__init__(marks={HERE: Mark(0, 0), BESIDE: Mark(0, 0)}, follow_s=2.0)
        self.configure(REAL_TIME)
        self.loop.states.value = {TO.id: structs.replace(known(), store="ours")}
        self.look()
        self.now_s = 1_000.0
        loop = self.loop
        (self.job,) = loop.book.plan(loop._lane_of, loop.turns, now_s=self.now_s)
        assert self.job.kind is JobKind.FOLLOWING
        loop.following.began(self.job)

    @property
    def turn(self) -> Turn:
        (turn,) = self.loop.turns.running
        return turn

    def told(self, after_s: float = 1.5) -> list[RecordOut]:
        """Return the records written for the job this long after it started."""
        before = len(self.outlet.rows)

        async def scenario() -> None:
            self.loop.following.prolong(now_s=self.now_s + after_s, ours_until_ms=LEASE_MS)
            await asyncio.gather(*self.loop.following._telling)

        asyncio.run(scenario())
        return self.outlet.rows[before:]


def test_who_would_be_begun_anew_just_as_it_is_goes_on() -> None:
    driver = Following()
    number = number_of(driver.job.units)
    assert driver.told(0.5) == [], "the job is not yet near its end"
    # The state is published again and again, without a change to how events are sent.
    driver.loop.states.value = {TO.id: structs.replace(known(attempts={"ok": 3}), store="ours")}
    assert driver.told() == [term_record(number, Term(4.0, LEASE_MS))]
    assert driver.turn.ends_s == driver.now_s + 4.0
    assert driver.told() == [], "the job hears of it only once"
    assert driver.told(3.5) == [term_record(number, Term(6.0, LEASE_MS))]


def is_slow(driver: Following) -> None:
    driver.loop.states.value = {TO.id: structs.replace(known(slow_left=1), store="ours")}


def is_shut(driver: Following) -> None:
    driver.loop.states.value = {TO.id: structs.replace(known(FlowState.OPEN), store="ours")}


def is_known_elsewhere(driver: Following) -> None:
    driver.loop.states.value = {TO.id: structs.replace(known(), store="another machine's")}


def leaves(driver: Following) -> None:
    driver.loop._leaving = frozenset({driver.loop.member.slot_of(TO.id)})


@pytest.mark.parametrize(
    "change",
    [
        lambda driver: driver.configure(replace(REAL_TIME, timeout_s=7.0)),
        lambda driver: driver.configure(replace(REAL_TIME, is_paused=True)),
        lambda driver: driver.configure(TO),
        lambda driver: driver.configure(replace(REAL_TIME, name="another")),
        *(is_slow, is_shut, is_known_elsewhere, leaves),
    ],
)
def test_whoever_is_to_be_sent_to_in_another_way_ends_its_job(
    change: Callable[[Following], None],
) -> None:
    driver = Following()
    change(driver)
    assert driver.told() == []
    assert driver.turn.ends_s == driver.now_s + 2.0
    driver.configure(REAL_TIME)
    assert driver.told(1.6) == [], "a decision that is taken is not written again"


def test_a_job_that_has_ended_is_told_nothing_and_neither_is_one_that_has_not_begun() -> None:
    driver = Following()
    driver.loop.following.ended(driver.job)
    assert driver.told() == []


def test_what_kafka_does_not_take_is_not_told_and_the_job_ends() -> None:
    driver = Following()
    driver.outlet.refusal = lambda _: TimeoutError("away")
    assert driver.told() == []


def test_a_job_is_told_of_what_is_written_once_it_has_begun() -> None:
    """Without that topic, as before an upgrade, a job hears nothing and its tasks end in time."""
    driver = Following()
    assert driver.loop._orders([HERE], driver.job).terms_at is None
    driver.log.make(TERMS_LOG.topic, 1)
    old = term_record(1, Term(9.0, LEASE_MS))
    driver.log.write([RecordIn(Origin(*TERMS_LOG, 0), 1, old.key, old.value, ())])
    driver.look()
    orders = driver.loop._orders([HERE], driver.job)
    assert (orders.terms_at, orders.leaders[TERMS_LOG]) == (1, NODE)


def test_who_is_sent_to_by_others_too_ends_and_hears_of_them() -> None:
    """An executor elsewhere gets other senders' news with its orders; silent ones count as gone."""
    driver = Following()

    def told_at(at_ms: int) -> dict[str, FlowRecord]:
        others = Neighbours(me="ours", others={"another": StoreNews(at_ms, 4, 4, 1.0)})
        flow = structs.replace(known().flow, neighbours=others)
        return {TO.id: structs.replace(known(), store="ours", flow=flow, published_at_ms=at_ms)}

    driver.loop.states.value = told_at(1_000)
    driver.loop.following.began(driver.job)
    driver.loop.states.value = told_at(2_500)
    assert driver.told() == []


def test_what_was_given_up_and_came_back_is_planned_anew_and_not_prolonged() -> None:
    driver = Following()
    driver.loop.book.leave(TO.id)
    for strand in (HERE, BESIDE):
        driver.loop.book.enter(strand, Mark(0, 0))
    assert driver.told() == []


@pytest.mark.parametrize("has_topic", [False, True])
def test_a_kafka_without_terms_is_told_none(*, has_topic: bool) -> None:
    driver = Following()
    if has_topic:
        driver.log.make(TERMS_LOG.topic, 1)
    driver.look()
    driver.turn.since_s, driver.turn.ends_s = time.monotonic() - 1.5, time.monotonic() + 0.5
    before = len(driver.outlet.rows)

    async def scenario() -> None:
        driver.loop._sees_ends = True
        driver.loop._start_jobs()
        await asyncio.gather(*driver.loop.following._telling)

    asyncio.run(scenario())
    told = [row for row in driver.outlet.rows[before:] if row.topic == TERMS_LOG.topic]
    assert bool(told) is has_topic
