"""Deletes and recreates topics, and deletes the beginnings of logs, as people do."""

import asyncio
import time

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from shared.event.record import KafkaPartition, Position
from shared.event.topics import TopicSpec, stream_topic
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.kafka.topic_admin import topic_admin

_PATIENCE_S = 60.0


async def make_anew(servers: str, spec: TopicSpec) -> None:
    """Delete and recreate a topic: its records are gone, and offsets begin at 0."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        await admin.delete_topics([spec.name])
        until_s = time.monotonic() + _PATIENCE_S
        while spec.name in await admin.list_topics():
            assert time.monotonic() < until_s, f"{spec.name} still exists"
            await asyncio.sleep(0.05)
    finally:
        await admin.close()
    async with topic_admin(servers) as making:
        await making.create_missing([spec])


async def forget(servers: str, upto: Position) -> None:
    """Delete all records before these offsets, as if they had grown too old."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        await admin.delete_records(
            {TopicPartition(*it): RecordsToDelete(at) for it, at in upto.items()}
        )
    finally:
        await admin.close()


async def ends_of(servers: str, stream: str) -> dict[KafkaPartition, int]:
    async with LogClient(servers) as log:
        await log.ask_leaders([stream_topic(stream)])
        return await log.ends(log.partitions(stream_topic(stream)))
