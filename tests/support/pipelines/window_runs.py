"""Puts tables into a running Hifi, and reads their rows as they were written."""

import asyncio
import json
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import DeleteGroupsRequest

from shared.config.configuration import RemovedPipeline
from shared.config.pipeline import Pipeline
from shared.config.table import Table
from shared.event.topics import lane_group
from shared.runtime.clock import now_ms
from shared.runtime.kafka.leases.fenced_positions import FencedPositions
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.kafka.config_records import write_config
from tests.support.kafka.kafka_log import read_all


def put_table(kafka: str, name: str, *, written_by: str) -> Table:
    table = Table(name, written_by=written_by)

    async def make() -> None:
        async with topic_admin(kafka) as admin:
            await admin.create_missing([table.spec])
        await write_config(kafka, [table])

    asyncio.run(make())
    return table


def remove(kafka: str, pipeline: Pipeline) -> None:
    """Remove a pipeline like the gateway."""
    gone = RemovedPipeline(
        pipeline.name,
        pipeline.tenant,
        pipeline.source.stream,
        pipeline.generation,
        now_ms(),
        keeps=bool(pipeline.kept_shape),
    )
    asyncio.run(write_config(kafka, [gone]))


def forget_position(kafka: str, pipeline: Pipeline) -> None:
    """Delete a pipeline's group, as Kafka does after a week without writes; it has no members."""
    group = lane_group(pipeline.lane_id)

    async def delete() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
        await admin.start()
        try:
            node = await admin.find_coordinator(group)
            answer = await admin._client.send(node, DeleteGroupsRequest([group]))
            assert list(answer.results) == [(group, 0)]
        finally:
            await admin.close()

    asyncio.run(delete())


def topics(kafka: str) -> set[str]:
    """Return the names of all topics."""

    async def names() -> set[str]:
        async with topic_admin(kafka) as admin:
            return await admin.names()

    return asyncio.run(names())


def forget(kafka: str, topic: str) -> None:
    """Delete a topic, and wait until it is gone."""

    async def delete() -> None:
        async with topic_admin(kafka) as admin:
            await admin.delete([topic])

    asyncio.run(delete())
    wait_until(lambda: topic not in topics(kafka), what=f"{topic} is gone")


def history(kafka: str, table: Table) -> dict[str, list[Any]]:
    """Return every value ever written of each row, in order."""
    found: dict[str, list[Any]] = {}
    for record in asyncio.run(read_all(kafka, table.topic)):
        value = json.loads(record.value) if record.value else None
        found.setdefault(record.key.decode(), []).append(value)
    return found


def is_under_way(kafka: str, pipeline: Pipeline) -> bool:
    """Return whether a job of the pipeline has begun, and is not stored yet."""

    async def read() -> bool:
        positions = FencedPositions(kafka, lane_group(pipeline.lane_id))
        try:
            return any(reach.until > reach.at for reach in (await positions.read()).values())
        finally:
            await positions.close()

    return asyncio.run(read())
