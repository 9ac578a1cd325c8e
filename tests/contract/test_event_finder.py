"""The contract of event finders: one suite, on the fake and on a real Kafka."""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from console.page_request import EventFinder
from shared.event.envelope import event_headers, open_stream_record
from shared.event.record import Origin, RecordIn, RecordOut
from shared.event.topics import fixed_specs, stream_spec, stream_topic
from shared.proof.trail import Trail
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.kafka.lookup.event_search import EventSearch, FoundEvent, SearchResult
from shared.runtime.kafka.topic_admin import topic_admin
from tests.contract.conftest import Gap
from tests.support.console.console_fixtures import GivenEvents
from tests.support.kafka.kafka_log import write_rows


@dataclass(frozen=True)
class Ground:
    """A finder, a stream, and a way to store an event in it."""

    finder: EventFinder
    stream: str
    store: Callable[[str], None]

    def find(self, event_id: str, *, before_ms: int | None = None) -> SearchResult:
        return asyncio.run(self.finder.find(self.stream, event_id, before_ms=before_ms))


@pytest.fixture(params=["fake", pytest.param("kafka", marks=pytest.mark.integration)])
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    stream = f"finder-{uuid.uuid4().hex}"
    if request.param == "fake":
        yield fake_ground(stream)
        return
    servers = request.getfixturevalue("kafka").bootstrap_servers

    async def store(event_id: str) -> None:
        async with topic_admin(servers) as admin:
            tiers = [tier.name for tier in RetrySchedule().tiers]
            await admin.create_missing([*fixed_specs(tiers), stream_spec(stream)])
        await write_rows(servers, [a_row(stream, event_id)])

    yield Ground(EventSearch(servers), stream, lambda event_id: asyncio.run(store(event_id)))


def fake_ground(stream: str) -> Ground:
    fake = GivenEvents()

    def store(event_id: str) -> None:
        row, stored_at_ms = a_row(stream, event_id), now_ms()
        place = Origin(row.topic, 0, len(fake.found))
        record = RecordIn(place, stored_at_ms, row.key, row.value, row.headers)
        fake.found[stream, event_id] = FoundEvent(
            open_stream_record(record), stored_at_ms, Trail.of([place])
        )

    return Ground(fake, stream, store)


def a_row(stream: str, event_id: str) -> RecordOut:
    at_ms = now_ms()
    headers = event_headers(event_id=event_id, event_time_ms=at_ms, accepted_at_ms=at_ms)
    return RecordOut(stream_topic(stream), None, b"{}", headers)


def test_an_event_is_found_by_its_stream_and_id(ground: Ground) -> None:
    ground.store("a")
    ground.store("b")
    (event,) = ground.find("a").found
    assert (event.envelope.stream, event.envelope.event_id) == (ground.stream, "a")
    trail = event.trail
    assert (trail.receipts, trail.retries, trail.dead, trail.is_whole) == ([], [], [], True)


def test_an_event_that_is_not_there_is_not_found_in_the_whole_log(ground: Ground) -> None:
    ground.store("a")
    result = ground.find("b")
    assert (result.found, result.back_to_ms) == ((), None)


def test_only_what_is_older_is_looked_at_when_a_search_goes_on(
    ground: Ground, gap_of_the_fake: Gap
) -> None:
    gap_of_the_fake("it has events of one time only: pages show the link, and do not follow it")
    ground.store("a")
    assert ground.find("a", before_ms=now_ms() - 3_600_000).found == ()
