"""The gateway's producer, on a real Kafka that refuses, is silent, or has had 2^31 events."""

import asyncio
import uuid

import pytest

from deploy.local.cluster import Cluster
from gateway.intake.events import Event
from gateway.intake.record_encoding import pack_headers
from gateway.publish.batch_producer import _Numbering
from gateway.publish.publisher import KafkaPublisher
from gateway.publish.report import Fate
from shared.event.record import KafkaPartition
from shared.event.topics import fixed_specs, stream_spec, stream_topic
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.kafka.broker_faults import frozen
from tests.support.kafka.kafka_log import read_all

pytestmark = pytest.mark.integration


def test_a_batch_that_kafka_refuses_is_not_stored_and_the_next_one_is(
    kafka: Cluster,
) -> None:
    servers = kafka.bootstrap_servers
    name = f"tiny-{uuid.uuid4().hex}"

    async def refuse() -> None:
        spec = stream_spec(name, partition_count=1)
        small = type(spec)(spec.name, 1, {**spec.settings, "max.message.bytes": "1000"})
        async with topic_admin(servers) as admin:
            await admin.create_missing([small])
        publisher = KafkaPublisher(
            servers, ack_deadline_s=10, queue_deadline_s=5, batch_bytes_max=100_000
        )
        await publisher.start(deadline_s=30)
        try:
            producer = publisher._producer
            assert producer is not None
            producer_id, topic = producer._producer_id, stream_topic(name)
            large = Event.of(id="large", key=None, value=b"x" * 5_000, headers=())
            (report,) = await publisher.publish(topic, [large])
            assert report.fate is Fate.NOT_STORED
            assert "MessageSizeTooLarge" in report.reason
            small_event = Event.of(id="small", key=None, value=b"{}", headers=())
            (report,) = await publisher.publish(topic, [small_event])
            assert report.fate is Fate.STORED
            numbering = producer._numberings[KafkaPartition(topic, 0)]
            # Kafka accepts the next epoch although it was never asked for one.
            assert (numbering.producer_id, numbering.epoch) == (producer_id, 1)
            assert numbering.next_number == 1
            assert publisher.problem is None
        finally:
            await publisher.stop()

    asyncio.run(refuse())


def test_a_partition_whose_numbers_run_out_goes_on_at_0(kafka: Cluster) -> None:
    servers, name = kafka.bootstrap_servers, f"long-{uuid.uuid4().hex}"
    place = KafkaPartition(stream_topic(name), 0)

    async def wear_out() -> None:
        async with topic_admin(servers) as admin:
            await admin.create_missing([stream_spec(name, partition_count=1)])
        publisher = KafkaPublisher(
            servers, ack_deadline_s=10, queue_deadline_s=5, batch_bytes_max=10_000
        )
        await publisher.start(deadline_s=30)
        try:
            producer = publisher._producer
            assert producer is not None
            assert producer._producer_id is not None
            # Kafka accepts any number as a producer's first one.
            producer._numberings[place] = _Numbering(producer._producer_id, 0, 2**31 - 3)
            offsets = []
            for n in range(6):
                event = Event.of(id=f"e{n}", key=None, value=b"{}", headers=())
                (report,) = await publisher.publish(place.topic, [event] * 2)
                offsets.append((report.fate, report.first_offset))
            assert offsets == [(Fate.STORED, 2 * n) for n in range(6)]
            assert producer._numberings[place].next_number == 9
        finally:
            await publisher.stop()

    asyncio.run(wear_out())


def test_what_a_frozen_broker_has_not_taken_in_time_does_not_come_later(kafka: Cluster) -> None:
    servers, name = kafka.bootstrap_servers, f"frozen-{uuid.uuid4().hex}"
    topic, count = stream_topic(name), 12

    async def freeze() -> None:
        async with topic_admin(servers) as admin:
            await admin.create_missing([stream_spec(name, partition_count=count)])
        publisher = KafkaPublisher(
            servers, ack_deadline_s=2, queue_deadline_s=1, batch_bytes_max=1_000_000
        )
        await publisher.start(deadline_s=30)
        try:
            # More than fits into the buffers between the gateway and a broker that reads nothing.
            large = [_event(f"large{n}", n, 900_000) for n in range(count)]
            assert await _fates(publisher, topic, [_event("warm", 0, 10)]) == {Fate.STORED}
            producer = publisher._producer
            assert producer is not None
            with frozen(kafka, kafka.broker_ids[0]):
                assert Fate.UNKNOWN in await _fates(publisher, topic, large)
                # A batch that was on the wire may still arrive until its connection ends.
                while producer._busy:  # noqa: ASYNC110 - it sets no event
                    await asyncio.sleep(0.02)
            after = [_event(f"after{n}", n, 10) for n in range(count)]
            assert await _fates(publisher, topic, after) == {Fate.STORED}
        finally:
            await publisher.stop()
        sizes = [len(each.value or b"") for each in await read_all(servers, topic)]
        assert sizes == [10] * (1 + count)

    asyncio.run(freeze())


def _event(event_id: str, partition: int, byte_count: int) -> Event:
    return Event(event_id, None, b"x" * byte_count, pack_headers(()), partition=partition)


async def _fates(publisher: KafkaPublisher, topic: str, events: list[Event]) -> set[Fate]:
    return {report.fate for report in await publisher.publish(topic, events)}


def test_an_idle_gateway_probes_kafka_by_storing_something(kafka: Cluster) -> None:
    async def idle() -> float:
        async with topic_admin(kafka.bootstrap_servers) as admin:
            await admin.create_missing(fixed_specs(["30s"]))
        publisher = KafkaPublisher(
            kafka.bootstrap_servers, ack_deadline_s=10, queue_deadline_s=5, batch_bytes_max=10_000
        )
        await publisher.start(deadline_s=30)
        try:
            begun_s = publisher._heard_at_s
            async with asyncio.timeout(20):
                while publisher._heard_at_s <= begun_s:  # noqa: ASYNC110 - it sets no event
                    await asyncio.sleep(0.02)
            return publisher._heard_at_s - begun_s
        finally:
            await publisher.stop()

    assert asyncio.run(idle()) < 6
