"""Observe's view of a real broker: topics short of replicas, and clocks that agree or differ."""

import asyncio

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from deploy.local.cluster import Cluster
from observe.lag.kafka_health import gateway_skew_ms, own_skew_ms, topics_under_min_isr
from shared.event.record import RecordOut
from shared.event.topics import ACKED, OUTCOME_PARTITIONS, fixed_specs, stream_topic
from shared.proof.acked import AckedRow, AckedSlice
from shared.runtime.clock import now_ms
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.kafka.kafka_log import write_rows

pytestmark = pytest.mark.integration


def test_a_topic_that_takes_no_writes_is_named(kafka: Cluster) -> None:
    servers = kafka.bootstrap_servers
    thin = NewTopic(stream_topic("thin"), 1, 1, topic_configs={"min.insync.replicas": "2"})
    other = NewTopic("thin-and-not-ours", 1, 1, topic_configs={"min.insync.replicas": "2"})

    async def run() -> None:
        client = AIOKafkaAdminClient(bootstrap_servers=servers)
        await client.start()
        try:
            before = await topics_under_min_isr(servers)
            await client.create_topics([thin, other])
            found = await topics_under_min_isr(servers)
            await client.delete_topics([thin.name, other.name])
        finally:
            await client.close()
        assert set(found) - set(before) == {thin.name}

    asyncio.run(run())


def test_clocks_are_compared_with_the_brokers(kafka: Cluster) -> None:
    servers = kafka.bootstrap_servers

    async def run() -> None:
        async with topic_admin(servers) as admin:
            await admin.create_missing(fixed_specs(["30s"]))
        # With one machine and one clock, the clocks differ by the time of a write at most.
        assert abs(await own_skew_ms(servers)) < 1_000
        await _write_rows(servers, accepted_at_ms=now_ms())
        assert await gateway_skew_ms(servers) == 0
        await _write_rows(servers, accepted_at_ms=now_ms() + 60_000)
        ahead_ms = await gateway_skew_ms(servers)
        assert ahead_ms is not None
        assert 50_000 < ahead_ms <= 60_000

    asyncio.run(run())


async def _write_rows(servers: str, *, accepted_at_ms: int) -> None:
    """Write each partition's newest row: an audit's history may be older than any gateway's."""
    row = AckedRow(stream_topic("skewed"), 0, (AckedSlice(0, ((1, 0),), accepted_at_ms),), ("e-1",))
    rows = [RecordOut(ACKED, None, row.to_bytes())] * OUTCOME_PARTITIONS
    await write_rows(servers, rows, partition_of=lambda nth, _: nth)
