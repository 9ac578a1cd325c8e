"""Decides how a change of configuration is made to last: topics first, then the config topic."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from gateway.problems import Problem
from shared.config.configuration import Stream
from shared.event.topics import stream_spec, stream_topic
from shared.runtime.kafka.config_topic import write_records
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.setup_error import KafkaUnavailableError

ConfigRecord = tuple[bytes, bytes | None]

# Kafka answers an administrator within a second; after this somebody should look at it.
_DEADLINE_S = 10.0


class ControlStore(Protocol):
    """Where streams, keys and tenants are kept."""

    async def write(self, records: Sequence[ConfigRecord]) -> None:
        """Store config records; Problem when they are not stored."""

    async def make_topic(self, stream: Stream) -> None:
        """Make the stream's topic, or let it grow; Problem when it is not there afterwards."""


class KafkaControlStore:
    """The store that the gateway runs with."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    async def write(self, records: Sequence[ConfigRecord]) -> None:
        try:
            async with asyncio.timeout(_DEADLINE_S):
                await write_records(self._bootstrap_servers, records)
        except (KafkaUnavailableError, TimeoutError) as error:
            raise _unavailable(error) from error

    async def make_topic(self, stream: Stream) -> None:
        name = stream_topic(stream.name)
        try:
            async with (
                asyncio.timeout(_DEADLINE_S),
                topic_admin(self._bootstrap_servers) as admin,
            ):
                spec = stream_spec(stream.name, partition_count=stream.partition_count)
                if await admin.create_missing([spec]):
                    return
                state = (await admin.states([name]))[name]
                if state.partition_count > stream.partition_count:
                    raise Problem(
                        "bad_object",
                        f"The stream's topic has {state.partition_count} partitions and Kafka"
                        " cannot take any away.",
                        pointer="/partition_count",
                    )
                if state.partition_count < stream.partition_count:
                    await admin.grow(name, stream.partition_count)
        except (KafkaUnavailableError, TimeoutError) as error:
            raise _unavailable(error) from error


def _unavailable(error: BaseException) -> Problem:
    return Problem(
        "kafka_unavailable",
        f"It is not known whether the change was stored: {str(error) or 'Kafka is too slow'}"
        " Read the object, and write it again.",
        headers=((b"retry-after", b"2"),),
    )
