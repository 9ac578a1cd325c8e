"""The contract of publishers: one suite, run on the fake and on a real Kafka."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from gateway.intake.events import Event
from gateway.publish.publisher import KafkaPublisher, Publisher
from gateway.publish.report import Fate, Report
from shared.event.envelope import event_headers
from shared.event.topics import stream_of, stream_spec
from shared.runtime.kafka.clients import new_admin, running
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.gateway.fake_publisher import PARTITION_COUNT, FakePublisher
from tests.support.kafka.kafka_log import read_all

Rows = dict[tuple[int, int], Event]


@dataclass(frozen=True)
class Ground:
    """A publisher on an empty topic, and a way to read the topic at the end."""

    publisher: Publisher
    topic: str
    read: Callable[[], Awaitable[Rows]]
    # Another owner's topic, and a way to delete it.
    other: str
    remove_other: Callable[[], Awaitable[None]]


Opened = Callable[[], AbstractAsyncContextManager[Ground]]


@pytest.fixture(params=["fake", pytest.param("kafka", marks=pytest.mark.integration)])
def opened(request: pytest.FixtureRequest) -> Iterator[Opened]:
    if request.param == "fake":
        yield fake_ground
        return
    servers = request.getfixturevalue("kafka").bootstrap_servers

    @asynccontextmanager
    async def real_ground() -> Any:
        topic, other = (f"hifi.stream.contract-{uuid.uuid4().hex}" for _ in range(2))
        await create_topics(servers, topic, other)
        publisher = kafka_publisher(servers)
        await publisher.start(deadline_s=30)
        try:
            yield Ground(
                publisher,
                topic,
                lambda: read_topic(servers, topic),
                other,
                lambda: delete_topic(servers, other),
            )
        finally:
            await publisher.stop()

    yield real_ground


@asynccontextmanager
async def fake_ground() -> Any:
    topic, other = "hifi.stream.contract", "hifi.stream.other"
    publisher = FakePublisher([topic, other])

    async def read() -> Rows:
        return {
            (partition, offset): event
            for partition, log in enumerate(publisher.logs[topic])
            for offset, event in enumerate(log)
        }

    async def remove_other() -> None:
        del publisher.logs[other]

    yield Ground(publisher, topic, read, other, remove_other)


def kafka_publisher(servers: str) -> KafkaPublisher:
    # Batches so small that a request of the suite needs several.
    return KafkaPublisher(servers, ack_deadline_s=10, queue_deadline_s=5, batch_bytes_max=2_000)


def on(opened: Opened, test: Callable[[Ground], Awaitable[None]]) -> None:
    async def run() -> None:
        async with opened() as ground:
            await test(ground)

    asyncio.run(run())


def events(count: int, *, key: Callable[[int], bytes | None] = lambda _: None) -> list[Event]:
    found = []
    for n in range(count):
        headers = event_headers(event_id=f"e{n}", event_time_ms=n, accepted_at_ms=n)
        found.append(Event.of(id=f"e{n}", key=key(n), value=b'{"n":%d}' % n, headers=headers))
    return found


def positions(reports: Sequence[Report]) -> list[int]:
    return sorted(position for report in reports for position in report.positions)


def where(reports: Sequence[Report]) -> dict[int, tuple[int, int]]:
    """Return the reported Kafka partition and offset of each event, by its position."""
    found: dict[int, tuple[int, int]] = {}
    for report in reports:
        assert report.fate is Fate.STORED
        assert report.partition is not None
        assert report.first_offset is not None
        for nth, position in enumerate(report.positions):
            found[position] = report.partition, report.first_offset + nth
    return found


@pytest.mark.parametrize("key", [lambda _: None, lambda n: b"k%d" % (n % 7)], ids=["free", "keyed"])
def test_each_event_is_reported_once_and_rests_where_the_report_says(
    opened: Opened, key: Callable[[int], bytes | None]
) -> None:
    async def test(ground: Ground) -> None:
        sent = events(100, key=key)
        reports = await ground.publisher.publish(ground.topic, sent)
        assert positions(reports) == list(range(100))
        rows = await ground.read()
        assert {n: rows[place] for n, place in where(reports).items()} == dict(enumerate(sent))
        assert len(rows) == 100

    on(opened, test)


def test_events_of_one_key_rest_in_one_partition_in_their_order(opened: Opened) -> None:
    async def test(ground: Ground) -> None:
        for _ in range(3):
            await ground.publisher.publish(ground.topic, events(50, key=lambda n: b"k%d" % (n % 5)))
        rows = await ground.read()
        partitions: dict[bytes | None, set[int]] = {}
        numbers: dict[bytes | None, list[int]] = {}
        for (partition, _), event in sorted(rows.items()):
            partitions.setdefault(event.key, set()).add(partition)
            numbers.setdefault(event.key, []).append(int(event.id[1:]))
        assert len(partitions) == 5
        assert all(len(found) == 1 for found in partitions.values())
        for n in range(5):
            assert numbers[b"k%d" % n] == list(range(n, 50, 5)) * 3

    on(opened, test)


def test_an_event_that_has_a_partition_rests_there_whatever_its_key(opened: Opened) -> None:
    async def test(ground: Ground) -> None:
        wanted = [n * 3 % PARTITION_COUNT for n in range(60)]
        sent = [
            msgspec.structs.replace(event, partition=partition)
            for event, partition in zip(events(60, key=lambda _: b"k"), wanted, strict=True)
        ]
        reports = await ground.publisher.publish(ground.topic, sent)
        places = where(reports)
        assert [places[n][0] for n in range(60)] == wanted
        rows = await ground.read()
        for partition in range(PARTITION_COUNT):
            offsets = sorted(offset for at, offset in rows if at == partition)
            there = [rows[partition, offset].id for offset in offsets]
            assert there == [event.id for event in sent if event.partition == partition]

    on(opened, test)


def test_events_without_a_key_spread_over_the_partitions(opened: Opened) -> None:
    async def test(ground: Ground) -> None:
        # Several turns of two batches of 2,000 bytes for each of the partitions.
        for _ in range(100):
            await ground.publisher.publish(ground.topic, events(50))
        used = {partition for partition, _ in await ground.read()}
        assert used == set(range(PARTITION_COUNT))

    on(opened, test)


def test_requests_at_the_same_time_do_not_mix_their_reports(opened: Opened) -> None:
    async def test(ground: Ground) -> None:
        batches = [events(n, key=lambda n: b"%d" % n) for n in range(1, 30)]
        told = await asyncio.gather(*(ground.publisher.publish(ground.topic, b) for b in batches))
        rows = await ground.read()
        places = [place for reports in told for place in where(reports).values()]
        assert len(places) == len(set(places)) == sum(map(len, batches))
        for batch, reports in zip(batches, told, strict=True):
            assert all(rows[place] == batch[n] for n, place in where(reports).items())

    on(opened, test)


def test_nothing_to_publish_is_nothing_to_report(opened: Opened) -> None:
    async def test(ground: Ground) -> None:
        assert positions(await ground.publisher.publish(ground.topic, [])) == []

    on(opened, test)


def test_a_topic_that_is_not_there_stores_nothing_and_raises_nothing(opened: Opened) -> None:
    async def test(ground: Ground) -> None:
        reports = await ground.publisher.publish("hifi.stream.nowhere", events(3))
        assert positions(reports) == [0, 1, 2]
        assert {report.fate for report in reports} == {Fate.NOT_STORED}

    on(opened, test)


def test_a_topic_that_is_deleted_under_way_costs_another_topic_nothing(opened: Opened) -> None:
    async def refused(ground: Ground) -> Sequence[Report]:
        # A broker confirms the deletion of a topic before it has dropped the topic.
        while True:
            reports = await ground.publisher.publish(ground.other, events(3))
            if Fate.STORED not in {report.fate for report in reports}:
                return reports

    async def test(ground: Ground) -> None:
        where(await ground.publisher.publish(ground.other, events(3)))
        await ground.remove_other()
        gone = asyncio.create_task(refused(ground))
        told = []
        while not gone.done():
            told.append(await ground.publisher.publish(ground.topic, events(5)))
            await asyncio.sleep(0)
        told.append(await ground.publisher.publish(ground.topic, events(5)))
        assert positions(gone.result()) == [0, 1, 2]
        stored = [place for reports in told for place in where(reports).values()]
        assert len(stored) == len(set(stored)) == len(await ground.read())

    on(opened, test)


def test_a_caller_that_is_cancelled_does_not_take_its_events_back(opened: Opened) -> None:
    async def test(ground: Ground) -> None:
        # The first publish learns the topic, so the second is put into a batch at once.
        await ground.publisher.publish(ground.topic, [])
        await ground.publisher.publish(ground.topic, events(1))
        leaving = asyncio.create_task(ground.publisher.publish(ground.topic, events(2)))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        # Published later to every partition, so reported after the cancelled events.
        for n in range(2 * PARTITION_COUNT):
            await ground.publisher.publish(ground.topic, events(1, key=_always(b"%d" % n)))
        assert len(await ground.read()) == 3 + 2 * PARTITION_COUNT

    on(opened, test)


def test_a_publisher_is_ready_and_owes_nothing_after_its_reports(opened: Opened) -> None:
    async def test(ground: Ground) -> None:
        await ground.publisher.publish(ground.topic, events(10))
        assert ground.publisher.problem is None
        assert ground.publisher.overdue_bytes == 0

    on(opened, test)


def _always(key: bytes) -> Callable[[int], bytes | None]:
    return lambda _: key


async def create_topics(servers: str, *topics: str) -> None:
    specs = [stream_spec(stream_of(topic), partition_count=PARTITION_COUNT) for topic in topics]
    async with topic_admin(servers) as admin:
        await admin.create_missing(specs)


async def delete_topic(servers: str, topic: str) -> None:
    async with running(new_admin(servers), servers) as admin:
        await admin.delete_topics([topic])


async def read_topic(servers: str, topic: str) -> Rows:
    """Read everything in a topic, from its start to its end."""
    return {
        (r.partition, r.offset): Event.of(
            id=dict(r.headers)["event-id"].decode(),
            key=r.key,
            value=r.value,
            headers=tuple(r.headers),
        )
        for r in await read_all(servers, topic)
    }
