"""The contract of stores of receipts: one suite, on the fake and on a real Kafka."""

import asyncio
import itertools
import uuid
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from gateway.control.stores.receipts import KafkaReceipts, ReceiptStore
from shared.event.derived import ORIGIN, VIA
from shared.event.envelope import Envelope, event_headers
from shared.event.record import Origin, RecordOut
from shared.event.topics import ACKED, RESTORES, fixed_specs, stream_of, stream_spec, stream_topic
from shared.proof.acked import AckedRow, AckedSlice
from shared.proof.receipt import Receipt, ReceiptOutcome, facts_of, make_receipt
from shared.proof.restored import RestoredEvents
from shared.retry.routing import route_receipt
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.kafka.topic_admin import topic_admin
from tests.component.gateway.control.test_receipt_chain import a_restore
from tests.contract.conftest import Gap
from tests.support.gateway.gateway_fixtures import FakeReceipts
from tests.support.kafka.kafka_log import write_rows

TO = "orders/to"
T = TypeVar("T")


@dataclass(frozen=True)
class Ground:
    """A store, and ways to write what it reads."""

    store: ReceiptStore
    topic: str
    acknowledge: Callable[[AckedRow], None]
    tell: Callable[[Receipt], None]
    # Writes an event of a pipeline: the pipeline, the id, and the place of the source event.
    derive: Callable[[str, str, Origin], None]
    restore: Callable[[RestoredEvents], None]


@pytest.fixture(params=["fake", pytest.param("kafka", marks=pytest.mark.integration)])
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    if request.param == "fake":
        fake = FakeReceipts()
        topic, places = stream_topic("orders"), itertools.count()

        def derive(pipeline: str, event_id: str, of: Origin) -> None:
            place = Origin(topic, 0, next(places))
            fake.derived.append((pipeline, place, event_id, of, now_ms()))

        def restore(said: RestoredEvents) -> None:
            assert fake.restored is not None
            fake.restored.take(said.to_json())

        yield Ground(fake, topic, fake.ledger.append, fake.receipts.append, derive, restore)
        return
    servers = request.getfixturevalue("kafka").bootstrap_servers
    stream = f"receipts-{uuid.uuid4().hex}"

    async def write(row: RecordOut) -> None:
        async with topic_admin(servers) as admin:
            tiers = [tier.name for tier in RetrySchedule().tiers]
            await admin.create_missing([*fixed_specs(tiers), stream_spec(stream)])
        await write_rows(servers, [row])

    yield Ground(
        KafkaReceipts(servers),
        stream_topic(stream),
        lambda row: run(write(RecordOut(ACKED, stream.encode(), row.to_bytes(), ()))),
        lambda receipt: run(write(route_receipt(receipt))),
        lambda pipeline, event_id, of: run(write(a_derived(stream, pipeline, event_id, of))),
        lambda said: run(write(RecordOut(RESTORES, said.key.encode(), said.to_json(), ()))),
    )


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def a_derived(stream: str, pipeline: str, event_id: str, of: Origin) -> RecordOut:
    """Return a record as pipelines write it."""
    told = event_headers(event_id=event_id, event_time_ms=now_ms(), accepted_at_ms=now_ms())
    place = f"{of.topic}:{of.partition}:{of.offset}".encode()
    return RecordOut(
        stream_topic(stream),
        b"key",
        b"{}",
        (*told, (ORIGIN, place), (VIA, f"earlier,{pipeline}".encode())),
    )


def a_row(topic: str, request_id: str, *ids: str) -> AckedRow:
    """Return the gateway's row for a request whose events begin at offset 10."""
    stored = AckedSlice(10, ((len(ids), 0),), now_ms(), request_id, len(ids))
    return AckedRow(topic, 2, (stored,), ids)


def delivered(topic: str, *offsets: int) -> Receipt:
    envelopes = [
        Envelope(
            origin=Origin(topic, 2, offset),
            value=b"{}",
            key=None,
            stream="orders",
            event_id=f"e{offset}",
            event_time_ms=now_ms(),
            accepted_at_ms=now_ms(),
        )
        for offset in offsets
    ]
    return make_receipt(
        facts_of(envelopes),
        destination_id=TO,
        outcome=ReceiptOutcome.DELIVERED,
        reason="",
        batch_id="b",
        attempt=1,
        started_at_ms=now_ms(),
        ended_at_ms=now_ms(),
    )


def test_the_ledger_names_the_events_of_a_request(ground: Ground) -> None:
    ours, other = uuid.uuid4().hex, uuid.uuid4().hex
    since_ms = now_ms()
    ground.acknowledge(a_row(ground.topic, other, "x"))
    ground.acknowledge(a_row(ground.topic, ours, "a", "b"))
    acked = run(ground.store.request(ours, since_ms=since_ms, wait_s=0))
    assert acked.is_complete
    assert acked.topic == ground.topic
    assert acked.ids == {(2, 10): "a", (2, 11): "b"}


def test_a_request_that_nobody_made_has_no_events(ground: Ground) -> None:
    ground.acknowledge(a_row(ground.topic, uuid.uuid4().hex, "x"))
    acked = run(ground.store.request(uuid.uuid4().hex, since_ms=now_ms(), wait_s=0))
    assert (acked.count, acked.ids, acked.read_until_ms) == (0, {}, None)


def test_what_is_older_than_a_request_is_not_read(ground: Ground, gap_of_the_fake: Gap) -> None:
    gap_of_the_fake("it reads its whole ledger: no test of the gateway has rows of another time")
    request_id = uuid.uuid4().hex
    ground.acknowledge(a_row(ground.topic, request_id, "a"))
    an_hour_on_ms = now_ms() + 3_600_000
    acked = run(ground.store.request(request_id, since_ms=an_hour_on_ms, wait_s=0))
    assert acked.count == 0


def test_a_trail_has_the_receipts_of_its_events_and_of_no_others(ground: Ground) -> None:
    since_ms = now_ms()
    ground.tell(delivered(ground.topic, 10, 11))
    ground.tell(delivered(ground.topic, 12))
    trail = run(
        ground.store.trail([Origin(ground.topic, 2, 11)], since_ms=since_ms, destination_ids=[TO])
    )
    assert trail.is_whole
    assert [receipt.event_count for receipt in trail.receipts] == [2]
    assert trail.is_delivered_to([TO])


def test_what_a_pipeline_made_of_events_is_found_by_them(ground: Ground) -> None:
    first, other = Origin(ground.topic, 2, 10), Origin(ground.topic, 2, 11)
    since_ms = now_ms()
    for pipeline, event_id, of in (
        ("p", "d1", first),
        ("p", "d2", first),
        ("p", "of-another", other),
        ("q", "by-another", first),
    ):
        ground.derive(pipeline, event_id, of)
    when = (since_ms, now_ms())
    to = stream_of(ground.topic)
    found = run(ground.store.made([first], "p", to, when, count_max=10))
    assert found.is_whole
    assert sorted(found.made.values()) == [("d1", first), ("d2", first)]
    assert {place.topic for place in found.made} == {ground.topic}
    some = run(ground.store.made([first], "p", to, when, count_max=1))
    assert len(some.made) >= 1
    assert not some.is_whole


def test_what_restores_tell_of_themselves_is_read_and_the_newest_word_counts(
    ground: Ground,
) -> None:
    stream, of = stream_of(ground.topic), uuid.uuid4().hex
    told = [
        a_restore(f"{of}-{nth}", stream, *range(count)) for nth, count in ((1, 2), (2, 3), (1, 4))
    ]
    for said in told:
        ground.restore(said)
    restores = run(ground.store.restores())
    assert restores is not None
    assert restores.into(stream) == told[1:]
