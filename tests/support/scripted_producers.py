"""A publisher's producers as a test scripts them: each batch waits until it is said what it met."""

import asyncio
import struct
from collections.abc import Callable
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import UnknownTopicOrPartitionError
from aiokafka.producer.transaction_manager import TransactionManager
from aiokafka.structs import RecordMetadata

from gateway.intake.events import Event
from gateway.intake.record_batch import RecordBatch
from gateway.publish.publisher import KafkaPublisher
from gateway.publish.report import Fate, Report

# Where a batch keeps the number of its first record.
_BASE_SEQUENCE = struct.Struct(">i"), 53


class ScriptedCluster:
    """Who leads what; a topic that it does not name is not there."""

    def __init__(self) -> None:
        self.leaders: dict[str, list[int]] = {"ours": [0], "theirs": [0]}

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        leaders = self.leaders.get(partition.topic, [])
        return leaders[partition.partition] if partition.partition < len(leaders) else None

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(len(self.leaders[topic]))) if topic in self.leaders else None

    def topics(self, *, exclude_internal_topics: bool) -> set[str]:  # noqa: ARG002
        return set(self.leaders)

    def brokers(self) -> list[int]:
        return [0]


class ScriptedProducer:
    """Takes batches; each waits until a test says what became of it."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.client = self
        self.cluster = cluster
        self.under_way: dict[str, asyncio.Future[RecordMetadata]] = {}
        self.refusals: dict[str, Exception] = {}
        self.is_stopped = False
        self._message_accumulator = self
        self._numbers = TransactionManager(None, 0)

    async def start(self) -> None:
        self._numbers.set_pid_and_epoch(7, 0)

    async def stop(self) -> None:
        self.is_stopped = True

    def fail_all(self, error: Exception) -> None:
        for future in self.under_way.values():
            if not future.done():
                future.set_exception(error)

    async def force_metadata_update(self) -> bool:
        await asyncio.sleep(0)
        return True

    async def partitions_for(self, topic: str) -> set[int]:
        found = self.cluster.partitions_for_topic(topic)
        if found is None:
            raise UnknownTopicOrPartitionError
        return found

    async def send_batch(self, builder: RecordBatch, topic: str, *, partition: int) -> Any:
        assert not self.is_stopped
        if topic in self.refusals:
            raise self.refusals[topic]
        place = TopicPartition(topic, partition)
        # As aiokafka's own accumulator does when it takes a batch.
        number = self._numbers.sequence_number(place)
        self._numbers.increment_sequence_number(place, builder.record_count())
        builder._set_producer_state(7, 0, number)
        head, _ = builder._build()
        packer, at = _BASE_SEQUENCE
        assert packer.unpack_from(head, at)[0] == number >= 0
        self.under_way[topic] = asyncio.get_running_loop().create_future()
        return asyncio.shield(self.under_way[topic])

    def store(self, topic: str) -> None:
        place = TopicPartition(topic, 0)
        self.under_way.pop(topic).set_result(RecordMetadata(topic, 0, place, 5, -1, 0, 0))

    def fail(self, topic: str, error: Exception) -> None:
        self.under_way.pop(topic).set_exception(error)


class Scene:
    """A publisher whose producers are scripted."""

    def __init__(self) -> None:
        self.made: list[ScriptedProducer] = []
        self.cluster = ScriptedCluster()
        self.publisher = KafkaPublisher(
            "nowhere", ack_deadline_s=5, queue_deadline_s=0.1, batch_bytes_max=10_000
        )

    def new_producer(self, *_: Any, **__: Any) -> ScriptedProducer:
        self.made.append(ScriptedProducer(self.cluster))
        return self.made[-1]

    def publish(self, topic: str) -> "asyncio.Task[Any]":
        event = Event.of(id="e", key=None, value=b"{}", headers=())
        return asyncio.create_task(self._publish(topic, event))

    async def _publish(self, topic: str, event: Event) -> Report:
        (report,) = await self.publisher.publish(topic, [event])
        return report

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(5):
            while not is_so():  # noqa: ASYNC110 - what we wait for has no event of its own
                await asyncio.sleep(0.001)

    async def under_way(self, nth: int, topic: str) -> ScriptedProducer:
        await self.until(lambda: len(self.made) > nth and topic in self.made[nth].under_way)
        return self.made[nth]

    async def settled(self, publishing: "asyncio.Task[Any]") -> Fate:
        async with asyncio.timeout(5):
            report: Report = await publishing
            return report.fate
