"""`hifi doctor` finds a hot Kafka partition in a real Kafka, and the keys that make it hot."""

import asyncio
import uuid
from typing import Any

import pytest

from deploy.cli.spread import examine_streams
from shared.config.configuration import Configuration, Stream
from shared.event.record import RecordOut
from shared.event.topics import stream_spec, stream_topic
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.kafka.kafka_log import write_rows

pytestmark = pytest.mark.integration


def test_a_hot_partition_is_named_with_its_keys_and_a_stream_that_is_well_is_not(
    kafka: Any,
) -> None:
    servers, suffix = kafka.bootstrap_servers, uuid.uuid4().hex
    hot, well, unmade = (Stream(f"{name}-{suffix}") for name in ("hot", "well", "unmade"))

    async def run() -> list[Any]:
        async with topic_admin(servers) as admin:
            await admin.create_missing([stream_spec(hot.name), stream_spec(well.name)])
        rows = [
            RecordOut(stream_topic(stream.name), b"u7" if is_hot else b"k%d" % n, b"{}")
            for stream in (hot, well)
            for n in range(1_500)
            for is_hot in (stream is hot and n % 5 > 0,)
        ]
        await write_rows(servers, rows)
        streams = {each.name: each for each in (hot, well, unmade)}
        return await examine_streams(servers, Configuration(streams=streams))

    (found,) = asyncio.run(run())
    assert found.subject == f"spread of {hot.name}"
    assert found.grade == "note"
    assert "newest events are 'u7' (9" in found.says
