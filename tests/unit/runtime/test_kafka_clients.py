"""Clients rarely ask which broker leads what, and stop whatever they are doing."""

import asyncio
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.consumer.fetcher import Fetcher

from shared.runtime.kafka.clients import new_client, new_consumer, new_producer

SERVERS = "127.0.0.1:9"


class Asking:
    """A client with its quiet times, and a note of when it asked and for which topics."""

    def __init__(self, client: AIOKafkaClient) -> None:
        self.client, self.asked = client, list[Collection[str]]()
        client._get_conn = self._note
        client.cluster.brokers = lambda: [SimpleNamespace(nodeId=1)]

    async def _note(self, _: int) -> None:
        self.asked.append(set(self.client._topics))

    async def ask_for(self, seconds: float) -> None:
        """Ask as aiokafka's sender does while it has a record for a partition without a leader."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        while loop.time() < end_s:
            await self.client.force_metadata_update()


@pytest.mark.parametrize(
    ("make", "client_of"),
    [
        (new_client, lambda client: client),
        (new_consumer, lambda consumer: consumer._client),
        (new_producer, lambda producer: producer.client),
    ],
)
def test_a_client_asks_ten_times_a_second_at_most_and_at_once_for_what_is_new(
    make: Callable[[str], Any], client_of: Callable[[Any], AIOKafkaClient]
) -> None:
    async def scenario() -> None:
        made = make(SERVERS)
        asking = Asking(client_of(made))
        asking.client._topics = {"a"}
        keeping = asyncio.create_task(asking.client._md_synchronizer())
        await asking.ask_for(0.55)
        assert 2 <= len(asking.asked) <= 7
        asking.client._topics = {"a", "b"}
        await asking.client.force_metadata_update()
        assert asking.asked[-1] == {"a", "b"}
        keeping.cancel()
        # A client's own request does not wait for another.
        asking.asked.clear()
        async with asyncio.timeout(2):
            for _ in range(100):
                await asking.client._metadata_update(ClusterMetadata(), None)
        assert len(asking.asked) == 100
        await made.stop()

    asyncio.run(scenario())


def test_a_consumer_that_pauses_after_an_error_stops_and_closes_its_connections() -> None:
    async def scenario() -> None:
        consumer = new_consumer(SERVERS)
        fetcher = consumer._fetcher = Fetcher.__new__(Fetcher)
        fetcher._fetch_waiters = set()
        pausing = [asyncio.create_task(asyncio.sleep(60)) for _ in range(3)]
        fetcher._fetch_task, *others = pausing
        fetcher._pending_tasks = set(others)
        closed = asyncio.Event()

        async def close() -> None:
            closed.set()

        consumer._client.close = close
        # Otherwise a fetch is over before it has begun.
        await asyncio.sleep(0)
        await consumer.stop()
        assert all(task.cancelled() for task in pausing)
        assert closed.is_set()

    asyncio.run(scenario())


def test_a_client_goes_on_asking_after_an_error_that_nobody_expects() -> None:
    async def scenario() -> None:
        client = new_client(SERVERS)
        errors = [KeyError("what nobody expects")]

        async def find(_: int) -> None:
            if errors:
                raise errors.pop()

        client._get_conn = find
        client.cluster.brokers = lambda: [SimpleNamespace(nodeId=1)]
        keeping = asyncio.create_task(client._md_synchronizer())
        async with asyncio.timeout(5):
            assert not await client.force_metadata_update()
            assert not errors
            assert not await client.force_metadata_update()
        assert not keeping.done()
        keeping.cancel()
        await client.stop()

    asyncio.run(scenario())
