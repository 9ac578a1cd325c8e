"""Ids from a real Kafka: only of committed records, across Kafka batches and deletions."""

import asyncio
import time
import uuid

import pytest
from aiokafka import AIOKafkaProducer

from deploy.local.cluster import Cluster
from observe.audit.ids.log_reader import read_ids
from shared.event.envelope import event_headers
from shared.event.record import KafkaPartition, RecordOut
from shared.event.topics import TopicSpec
from shared.proof.intervals import Offsets
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.kafka.kafka_log import write_rows
from tests.support.kafka.topics_anew import forget

pytestmark = pytest.mark.integration


def test_committed_ids_are_read_and_what_was_deleted_is_passed_by(kafka: Cluster) -> None:
    servers, topic = kafka.bootstrap_servers, f"hifi.stream.{uuid.uuid4().hex}"
    where = KafkaPartition(topic, 0)

    async def write(first: int, end: int) -> None:
        rows = [
            RecordOut(
                topic,
                None,
                b"x" * 100,
                event_headers(event_id=f"e{n}", event_time_ms=1, accepted_at_ms=1),
            )
            for n in range(first, end)
        ]
        await write_rows(servers, rows, partition_of=lambda _, __: 0)

    async def take_back() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=topic)
        await producer.start()
        try:
            await producer.begin_transaction()
            # Two records, and the marker behind them.
            for _ in range(2):
                await producer.send_and_wait(topic, b"taken back", partition=0)
            await producer.abort_transaction()
        finally:
            await producer.stop()

    async def prepare() -> None:
        async with topic_admin(servers) as admin:
            await admin.create_missing([TopicSpec(topic, 1, {})])
        await write(0, 1_000)
        await take_back()
        await write(1_003, 2_000)
        await forget(servers, {where: 10})

    asyncio.run(prepare())
    found = read_ids(servers, {where: Offsets.of([(0, 20), (990, 1_010), (1_995, 2_000)])})
    offsets, ids = (column.to_pylist() for column in found.of(where, 0, 2_000))
    assert ids == [b"e%d" % offset for offset in offsets]
    assert offsets == [*range(10, 1_000), *range(1_003, 2_000)]


def test_a_stream_that_was_deleted_holds_up_nobody(kafka: Cluster) -> None:
    servers = kafka.bootstrap_servers
    kept, gone = (KafkaPartition(f"hifi.stream.{uuid.uuid4().hex}", 0) for _ in range(2))

    async def prepare() -> None:
        async with topic_admin(servers) as admin:
            await admin.create_missing([TopicSpec(where.topic, 1, {}) for where in (kept, gone)])
            rows = [
                RecordOut(
                    where.topic,
                    None,
                    b"x",
                    event_headers(event_id=where.topic, event_time_ms=1, accepted_at_ms=1),
                )
                for where in (kept, gone)
            ]
            await write_rows(servers, rows, partition_of=lambda _, __: 0)
            await admin.delete([gone.topic])

    asyncio.run(prepare())
    begun_s = time.monotonic()
    found = read_ids(servers, {where: Offsets.of([(0, 1)]) for where in (kept, gone)})
    assert found.of(kept, 0, 1)[1].to_pylist() == [kept.topic.encode()]
    assert not found.of(gone, 0, 1)[1].to_pylist()
    # The reader would wait 30 s for a leader before it fails.
    assert time.monotonic() - begun_s < 20
