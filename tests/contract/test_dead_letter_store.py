"""The contract of stores of dead letters: one suite, on the fake and on a real Kafka."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from gateway.control.stores.redrive import (
    PAGE_BYTES_MAX,
    DeadLetterStore,
    KafkaDeadLetters,
    Redriven,
    Survey,
)
from shared.event.envelope import Envelope, History
from shared.event.record import Origin, RecordIn, RecordOut
from shared.event.topics import DEAD, fixed_specs, stream_topic
from shared.retry.dead_letter import DeadLetterFilter, Place, open_letter
from shared.retry.decision import DeadLetter
from shared.retry.routing import route
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.gateway.gateway_fixtures import FakeDeadLetters
from tests.support.kafka.kafka_log import write_rows

SCHEDULE = RetrySchedule()
T = TypeVar("T")


@dataclass(frozen=True)
class Ground:
    """A store with the dead letters of one stream, and a way to add more."""

    store: DeadLetterStore
    stream: str
    lay_down: Callable[[list[RecordOut]], None]

    def letters(self, *reasons: str) -> None:
        self.lay_down([a_row(self.stream, n, reason) for n, reason in enumerate(reasons)])

    @property
    def all(self) -> DeadLetterFilter:
        return DeadLetterFilter(stream=self.stream)

    def places(self, wanted: DeadLetterFilter) -> list[Place]:
        page, _ = run(self.store.page(wanted, after=None, count_max=100))
        return [letter.place for letter in page.letters]

    def survey(self, *, count_max: int | None = None, newest_max: int = 0) -> Survey:
        return run(self.store.survey(self.all, count_max=count_max, newest_max=newest_max))

    def redrive(self, wanted: DeadLetterFilter, *, count_max: int | None = None) -> Redriven:
        return run(self.store.redrive(wanted, redrive_id="r", rate_per_s=1e6, count_max=count_max))


@pytest.fixture(params=["fake", pytest.param("kafka", marks=pytest.mark.integration)])
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    stream = f"dead-{uuid.uuid4().hex}"
    if request.param == "fake":
        yield fake_ground(stream)
        return
    servers = request.getfixturevalue("kafka").bootstrap_servers

    async def lay_down(rows: list[RecordOut]) -> None:
        async with topic_admin(servers) as admin:
            await admin.create_missing(fixed_specs([tier.name for tier in SCHEDULE.tiers]))
        await write_rows(servers, rows, partition_of=lambda *_: 0)

    yield Ground(
        KafkaDeadLetters(servers, schedule=SCHEDULE), stream, lambda rows: run(lay_down(rows))
    )


def fake_ground(stream: str) -> Ground:
    fake = FakeDeadLetters()

    def lay_down(rows: list[RecordOut]) -> None:
        for row in rows:
            place = Origin(DEAD, 0, len(fake.letters))
            record = RecordIn(place, now_ms(), row.key, row.value, row.headers)
            fake.letters.append(open_letter(record))

    return Ground(fake, stream, lay_down)


def a_row(stream: str, number: int, reason: str, *, value: bytes = b"{}") -> RecordOut:
    """Return the row that delivery writes for an event that it gives up."""
    envelope = Envelope(
        origin=Origin(stream_topic(stream), 0, number),
        value=value,
        key=None,
        stream=stream,
        event_id=f"e{number}",
        event_time_ms=now_ms(),
        accepted_at_ms=now_ms(),
    )
    history = History.fresh(now_ms=now_ms(), deadline_s=SCHEDULE.deadline_s)
    return route(DeadLetter(reason, history), envelope, f"{stream}/to", now_ms=now_ms())


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def test_a_page_has_what_is_wanted_and_says_where_to_read_on(ground: Ground) -> None:
    ground.letters("status_400", "status_404", "status_400", "status_400")
    wanted = DeadLetterFilter(stream=ground.stream, reason="status_400")
    first, marked = run(ground.store.page(wanted, after=None, count_max=2))
    assert [letter.event_id for letter in first.letters] == ["e0", "e2"]
    assert first.next is not None
    rest, _ = run(ground.store.page(wanted, after=first.next, count_max=2))
    assert [letter.event_id for letter in rest.letters] == ["e3"]
    assert not marked & set(ground.places(wanted))


def test_a_stream_without_dead_letters_has_an_empty_page(ground: Ground) -> None:
    ground.letters("status_400")
    wanted = DeadLetterFilter(stream=f"{ground.stream}-other")
    page, _ = run(ground.store.page(wanted, after=None, count_max=2))
    assert (page.letters, page.next) == ((), None)


def test_what_is_sent_again_is_what_was_counted_and_goes_once(ground: Ground) -> None:
    ground.letters("status_400", "status_404", "status_400")
    counted = ground.survey().counts
    assert (counted.count, counted.already) == (3, 0)
    assert ground.redrive(ground.all).count == 3
    again = ground.redrive(ground.all)
    assert (again.count, again.already) == (0, 3)
    page, marked = run(ground.store.page(ground.all, after=None, count_max=2))
    assert marked == {letter.place for letter in page.letters}, "the page's letters, and no more"


def test_a_page_of_large_events_ends_before_its_bytes_are_too_many(ground: Ground) -> None:
    size = PAGE_BYTES_MAX // 5 + 1
    value = b'"%b"' % (b"x" * (size - 2))
    ground.lay_down([a_row(ground.stream, n, "status_400", value=value) for n in range(6)])
    listed, _ = run(ground.store.page(ground.all, after=None, count_max=100))
    assert [(one.byte_count, one.value) for one in listed.letters] == [(size, b"")] * 6
    found, after = [], None
    for count in (4, 2):
        page, _ = run(ground.store.page(ground.all, after=after, count_max=100, keeps_values=True))
        assert [one.value for one in page.letters] == [value] * count
        found += [one.event_id for one in page.letters]
        after = page.next
    assert (found, after) == ([f"e{n}" for n in range(6)], None)


def test_a_limit_bounds_what_is_sent_again(ground: Ground) -> None:
    ground.letters("status_400", "status_400", "status_400")
    assert ground.survey(count_max=2).counts.count == 2
    assert ground.redrive(ground.all, count_max=2).count == 2
    assert ground.survey().counts.count == 1


def test_a_survey_has_the_newest_and_the_streams_of_what_can_be_sent(ground: Ground) -> None:
    ground.letters("status_400", "status_404", "status_400")
    survey = ground.survey(newest_max=2)
    assert {letter.event_id for letter in survey.newest} < {"e0", "e1", "e2"}
    assert len(survey.newest) == 2
    assert (survey.counts.count, survey.counts.next) == (3, None)
    assert survey.streams == {ground.stream: 3}
    older = run(ground.store.survey(ground.all, newest_max=9, before=survey.newest[-1].age))
    # The next page: each letter is on one page, even if all died in one millisecond.
    assert {letter.event_id for letter in (*survey.newest, *older.newest)} == {"e0", "e1", "e2"}
    assert (len(older.newest), older.counts.count) == (1, 3)
    ground.redrive(ground.all)
    again = ground.survey(newest_max=9)
    assert (again.counts.already, again.streams) == (3, {})
    assert {letter.place for letter in again.newest} <= again.marked
