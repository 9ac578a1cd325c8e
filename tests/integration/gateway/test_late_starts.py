"""The beginning of a stream from which Kafka has deleted records, according to Kafka itself."""

import asyncio
import uuid
from typing import Any

import pytest

from gateway.control.stores.changes import KafkaControlStore
from shared.config.configuration import Stream
from shared.event.record import RecordOut
from shared.event.topic_safety import Copies
from shared.event.topics import stream_topic
from shared.runtime.clock import now_ms
from shared.runtime.kafka.config_topic import ConfigFeed
from tests.support.kafka.kafka_log import read_all, write_rows
from tests.support.kafka.topics_anew import ends_of, forget

pytestmark = pytest.mark.integration


def test_where_a_stream_begins_of_which_kafka_has_deleted_some(kafka: Any) -> None:
    async def run() -> None:
        servers, stream = kafka.bootstrap_servers, Stream(f"late-{uuid.uuid4().hex}", 3)
        store = KafkaControlStore(servers, ConfigFeed(servers), Copies(1, 1))
        await store.make_topic(stream)
        topic = stream_topic(stream.name)
        await write_rows(servers, [RecordOut(topic, b"%d" % nth, b"{}") for nth in range(60)])
        assert await store.begins_ms(stream.name) == []
        some, none, _ = sorted((await ends_of(servers, stream.name)).items())
        await forget(servers, dict([(some[0], some[1] - 1), none]))
        emptied_ms = now_ms()
        left, gone = sorted(await store.begins_ms(stream.name))
        (last,) = (
            record.timestamp
            for record in await read_all(servers, topic)
            if record.partition == some[0].partition
        )
        assert left == last
        assert emptied_ms <= gone <= now_ms()

    asyncio.run(run())
