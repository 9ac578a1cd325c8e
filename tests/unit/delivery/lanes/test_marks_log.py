"""A reader of the marks hears all of them, or the process ends."""

import asyncio
import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn, Self, cast

import pytest
from structlog.testing import capture_logs

from delivery.lanes import marks_log, service
from delivery.lanes.marks import Mark, mark_record
from delivery.lanes.marks_log import MARKS, MarksLog
from delivery.lanes.strands.repeats import RepeatedRanges, repeats_record
from delivery.lanes.units import Strand
from delivery.metrics import DeliveryMetrics
from delivery.settings import DeliverySettings
from shared.config.configuration import Configuration
from shared.event.envelope import History
from shared.event.record import Origin, RecordIn
from shared.event.topics import LANES
from shared.retry.attempt import Response
from shared.retry.decision import Hold, Situation
from shared.retry.schedule import RetrySchedule
from shared.runtime.health import Health
from shared.runtime.setup_error import KafkaUnavailableError
from shared.runtime.spark import process
from tests.support.delivery.memory_log import MemoryLog
from tests.support.suite.samples import NOW_MS, decided
from tests.unit.delivery.lanes.test_hand_over import BESIDE, HERE, HandOver
from tests.unit.delivery.lanes.test_roster import TO, A, B

SCHEDULE = RetrySchedule()


def written(log: MemoryLog, strand: Strand, mark: Mark, *, at_ms: int = 1) -> None:
    row, at = mark_record(strand, mark), len(log.logs[MARKS])
    log.write([RecordIn(Origin(LANES, 0, at), at_ms, row.key, row.value, ())])


def follow_until(marks: MarksLog, last: Mark) -> None:
    heard = asyncio.Event()

    def tell(_: Strand, mark: Mark) -> None:
        if mark == last:
            heard.set()

    async def scenario() -> None:
        following = asyncio.create_task(marks.follow(tell))
        async with asyncio.timeout(10):
            await heard.wait()
        following.cancel()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("late", "known"), [(Mark(22, 22), Mark(29, 36)), (Mark(33, 33), Mark(33, 36))]
)
def test_who_writes_after_its_lease_takes_back_nothing_that_others_have_said(
    late: Mark, known: Mark
) -> None:
    """The new owner may be killed before it has written its position again."""
    log = MemoryLog()
    log.make(LANES, 1)
    for mark in (Mark(22, 29), Mark(29, 36), Mark(late.at, late.until, late=True)):
        written(log, HERE, mark)
    marks = MarksLog(log)
    asyncio.run(marks.read())
    assert marks.marks == {HERE: Mark(known.at, known.until, late=True)}
    written(log, HERE, Mark(5, 5))
    follow_until(marks, Mark(5, 5))
    assert marks.marks == {HERE: Mark(5, 5)}, "its owner may set a lane back"


def test_what_was_sent_again_is_known_until_it_is_taken_away() -> None:
    log = MemoryLog()
    log.make(LANES, 1)
    row = repeats_record(HERE, ((3, 5),))

    def write(value: bytes, at_ms: int) -> None:
        place = Origin(LANES, 0, len(log.logs[MARKS]))
        log.write([RecordIn(place, at_ms, row.key, value, ())])

    write(row.value, 7)
    marks = MarksLog(log)
    asyncio.run(marks.read())
    assert (marks.marks, marks.repeats) == ({}, {HERE: RepeatedRanges(((3, 5),), 7)})
    write(b"what nobody can read", 8)
    asyncio.run(marks.read())
    assert len(marks.repeats) == 1
    write(b"", 9)
    asyncio.run(marks.read())
    assert marks.repeats == {}


def test_a_log_that_was_made_anew_is_followed_from_its_start() -> None:
    log = MemoryLog()
    log.make(LANES, 1)
    for offset in range(5):
        written(log, HERE, Mark(offset, offset))
    marks = MarksLog(log)
    asyncio.run(marks.read())
    log.make(LANES, 1)
    written(log, HERE, Mark(7, 7))
    with capture_logs() as logs:
        follow_until(marks, Mark(7, 7))
    assert [(each["event"], each["at"]) for each in logs] == [("lane.marks_anew", 0)]
    assert (marks.at, marks.marks, marks.restarts) == (1, {HERE: Mark(7, 7)}, 1)


def test_what_was_deleted_from_is_followed_from_what_is_left() -> None:
    log = MemoryLog()
    log.make(LANES, 1)
    for offset in range(5):
        written(log, HERE, Mark(offset, offset))
    log.forget(MARKS, 3)
    marks = MarksLog(log)
    follow_until(marks, Mark(4, 4))
    assert (marks.at, marks.restarts) == (5, 1)


def test_the_next_owner_waits_as_long_as_is_left_by_the_brokers_clock() -> None:
    """Neither the clock of the worker that was asked to wait matters, nor that of its successor."""
    dice = random.Random(13)
    for _ in range(200):
        asked_ms, wrong_by_ms = dice.randint(1, 3_600_000), dice.randint(-3_600_000, 3_600_000)
        broker_ms, passed_ms = NOW_MS, dice.randint(0, 7_200_000)
        clock_ms = broker_ms + wrong_by_ms
        situation = Situation(1, clock_ms, is_in_line=True)
        asked = Response(503, retry_after=f"{asked_ms / 1000:.3f}")
        fresh = History.fresh(now_ms=clock_ms, deadline_s=SCHEDULE.deadline_s)
        held = decided(fresh, asked, SCHEDULE, situation)
        assert isinstance(held, Hold)
        wait_ms = held.history.not_before_ms - clock_ms
        log = MemoryLog()
        log.make(LANES, 1)
        written(log, HERE, Mark(4, 4, waiting=held.history, wait_ms=wait_ms), at_ms=broker_ms)
        # Somebody else's mark shows what time it is.
        written(log, BESIDE, Mark(7, 7), at_ms=broker_ms + passed_ms)
        marks = MarksLog(log)
        asyncio.run(marks.read())
        assert wait_ms >= asked_ms
        assert marks.wait_s(HERE) == max(0, wait_ms - passed_ms) / 1000
        assert marks.wait_s(BESIDE) == 0.0
        written(log, HERE, Mark(5, 5), at_ms=broker_ms + passed_ms)
        follow_until(marks, Mark(5, 5))
        assert marks.wait_s(HERE) == 0.0


def test_a_log_of_marks_that_is_not_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks_log, "_PATIENCE_S", 0.02)
    monkeypatch.setattr(marks_log, "_AGAIN_S", 0.005)
    with pytest.raises(KafkaUnavailableError, match=r"hifi\.lanes.*`hifi topics` makes it"):
        asyncio.run(MarksLog(MemoryLog()).read())


def test_who_comes_waits_for_no_end_that_the_log_does_not_have_any_more() -> None:
    house = HandOver()
    house.begin()
    # The look has found the log's end, but nobody has read that far yet.
    asyncio.run(house.roster.look())
    assert house.at() is None
    house.log.make(LANES, 1)
    house.mark(HERE, Mark(4, 4))
    follow_until(house.marks, Mark(4, 4))
    before = len(house.outlet.rows)
    asyncio.run(house.roster.look())
    assert house.at() == 4
    # The log may no longer have the marks of the lanes that stayed here.
    assert set(house.outlet.rows[before:]) == {
        mark_record(Strand(TO.id, A), Mark(1, 1)),
        mark_record(Strand(TO.id, B), Mark(0, 0)),
    }


class Part:
    """A part of the process that behaves as its test says."""

    problem = None
    flows: Mapping[str, Any] = MappingProxyType({})
    configuration = Configuration()
    owned: frozenset[int] = frozenset()
    sparkContext = None  # noqa: N815 - Spark's term

    def __init__(self, *_: object, **__: object) -> None:
        self.member = self

    def tell(self, _: Health) -> None:
        """Report that the part is well."""

    async def __aenter__(self) -> Self:
        return self

    async def at_once(self, *_: object, **__: object) -> None:
        """Return at once: there is nothing to wait for."""

    async def never_ends(self, *_: object) -> None:
        await asyncio.Event().wait()

    start = stop = close = commit = tell_last = follow = read = leave_for = drain = at_once
    __aexit__ = warm_up = store = at_once
    run = keep_telling = never_ends


class Deaf(Part):
    async def follow_marks(self) -> NoReturn:
        await asyncio.sleep(0)
        raise TypeError("what nobody has thought of")


def test_a_process_that_would_hear_of_no_mark_any_more_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Strands would be free only when whole jobs end, and lanes that arrive would never begin."""
    for name in (
        "ConfigFeed",
        "StateFeed",
        "LanePositions",
        "LogClient",
        "Outlet",
        "TaskJobs",
        "MarksLog",
    ):
        monkeypatch.setattr(service, name, Part)
    monkeypatch.setattr(service, "LaneLoop", Deaf)
    monkeypatch.setattr(service, "keep_standing", Part().never_ends)
    monkeypatch.setattr(service, "kept_standing", lambda _: None)
    monkeypatch.setattr(process, "require_running", lambda _: None)
    settings, spark = DeliverySettings(bootstrap_servers="kafka:1"), cast("Any", Part())

    async def scenario() -> None:
        async with asyncio.timeout(30):
            await service._run(spark, settings, DeliveryMetrics(), Health())

    with pytest.raises(TypeError, match="what nobody has thought of"):
        asyncio.run(scenario())
