"""A producer's connections to the brokers of `kafka_model`: slow, lossy, and sometimes late."""

import asyncio
import re
import struct
from types import SimpleNamespace
from typing import Any

from aiokafka.errors import KafkaConnectionError, NodeNotReadyError, RequestTimedOutError

from gateway.publish.produce_request import BatchOutcome, ProduceAnswer, SendBatches
from shared.event.record import KafkaPartition
from tests.support.kafka.kafka_model import Broker, ModelCluster
from tests.support.kafka.kafka_replica import SentBatch

_SHORT, _INT, _LONG = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">ii")
_BEFORE_TOPICS = 2 + 2 + 4
_NUMBERED, _NUMBERED_AT = struct.Struct(">qhi"), 43
_EVENT_ID = re.compile(rb'"<(\w+)>"')


def event_value(event_id: str) -> bytes:
    """Return a value that identifies an event in a request's bytes."""
    return f'"<{event_id}>"'.encode()


def read_request(raw: bytes) -> dict[KafkaPartition, SentBatch]:
    """Return the batches of a produce request, as a broker reads them."""
    found, at = {}, _BEFORE_TOPICS
    (topic_count,) = _INT.unpack_from(raw, at)
    at += 4
    for _ in range(topic_count):
        (length,) = _SHORT.unpack_from(raw, at)
        topic = raw[at + 2 : at + 2 + length].decode()
        at += 2 + length
        (count,) = _INT.unpack_from(raw, at)
        at += 4
        for _ in range(count):
            number, size = _LONG.unpack_from(raw, at)
            batch = raw[at + 8 : at + 8 + size]
            at += 8 + size
            producer_id, epoch, first = _NUMBERED.unpack_from(batch, _NUMBERED_AT)
            ids = tuple(each.decode() for each in _EVENT_ID.findall(batch))
            found[KafkaPartition(topic, number)] = SentBatch(producer_id, epoch, first, ids)
    assert at == len(raw), "a request has bytes after its end"
    return found


class KnownCluster:
    """The leaders of Kafka partitions that the client last heard of."""

    def __init__(self, model: ModelCluster) -> None:
        self._model = model
        self.leaders: dict[KafkaPartition, int] = {}

    def leader_for_partition(self, place: KafkaPartition) -> int | None:
        return self.leaders.get(KafkaPartition(*place))

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return {each.partition for each in self._model.partitions if each.topic == topic} or None

    def topics(self, *, exclude_internal_topics: bool) -> set[str]:  # noqa: ARG002
        return {each.topic for each in self._model.partitions}

    def brokers(self) -> list[int]:
        return list(self._model.brokers)


class ModelClient:
    """The part of an aiokafka client that BatchProducer needs."""

    def __init__(self, model: ModelCluster, timeout_s: float) -> None:
        self.model = model
        self.cluster = KnownCluster(model)
        # When an event was last written, by its id.
        self.written_at_s: dict[str, float] = {}
        self._timeout_s = timeout_s
        self._rng = model.rng
        self._refreshing: asyncio.Task[bool] | None = None
        self._connected: dict[int, asyncio.Future[None]] = {}

    async def start(self) -> None:
        await self._refresh()

    async def stop(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()

    def force_metadata_update(self) -> "asyncio.Task[bool]":
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh())
        return self._refreshing

    async def wait_for_topic(self, topic: str) -> set[int]:
        found = self.cluster.partitions_for_topic(topic)
        assert found is not None
        return found

    def get_random_node(self) -> int:
        return self._rng.choice(list(self.model.brokers))

    async def ready(self, number: int) -> bool:
        """Return whether a broker is connected, perhaps late; a frozen one keeps connections."""
        broker = self.model.brokers[number]
        if self._connected.get(number) is broker.died and not broker.died.done():
            return True
        await self._lag()
        try:
            async with asyncio.timeout(self._timeout_s):
                await broker.awake.wait()
        except TimeoutError:
            return False
        if not broker.is_alive:
            return False
        self._connected[number] = broker.died
        return True

    async def send(self, number: int, request: Any) -> Any:
        if not await self.ready(number):
            raise NodeNotReadyError
        if not isinstance(request, SendBatches):
            await self._lag()
            return SimpleNamespace(error_code=0, producer_id=next(self.model.producer_ids))
        batches = read_request(b"".join(request.encode().parts))
        for sent in batches.values():
            self.written_at_s |= dict.fromkeys(sent.ids, self.model.now_s())
        carrying = asyncio.create_task(self._carry(self.model.brokers[number], batches))
        carrying.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(carrying)
        except TimeoutError as error:
            # A batch on its way may arrive later, over the connection that is closed now.
            self._connected.pop(number, None)
            raise RequestTimedOutError from error
        except KafkaConnectionError:
            self._connected.pop(number, None)
            raise

    async def _carry(
        self, broker: Broker, batches: dict[KafkaPartition, SentBatch]
    ) -> ProduceAnswer:
        died, begun_s = broker.died, self.model.now_s()
        await self._lag()
        if self._rng.random() < 0.01:
            # The network holds it for longer than anybody waits.
            await asyncio.sleep(self._rng.uniform(0, 3 * self._timeout_s))
        await broker.awake.wait()
        # A broker that wakes up serves its connections in any order.
        await self._lag()
        if died.done():
            raise KafkaConnectionError
        if self.model.now_s() - begun_s > self._timeout_s:
            if self._rng.random() < 0.3:
                raise KafkaConnectionError
            self.model.seen["stragglers"] += 1
        answers = [
            asyncio.ensure_future(self.model.produce(broker.id, place, sent, self._timeout_s))
            for place, sent in batches.items()
        ]
        if answers:
            whole: asyncio.Future[Any] = asyncio.ensure_future(asyncio.wait(answers))
            await asyncio.wait([whole, died], return_when=asyncio.FIRST_COMPLETED)
            if died.done():
                for each in answers:
                    each.cancel()
                raise KafkaConnectionError
        outcomes: list[BatchOutcome] = [each.result() for each in answers]
        await self._lag()
        if self._rng.random() < 0.01:
            self.model.seen["lost answers"] += 1
            raise KafkaConnectionError
        return ProduceAnswer(zip(batches, outcomes, strict=True))

    async def _refresh(self) -> bool:
        await self._lag()
        well = [broker for broker in self.model.brokers.values() if broker.is_well]
        if not well:
            return False
        told_by = self._rng.choice(well).id
        for place, partition in self.model.partitions.items():
            leader = partition.replicas[told_by].knows.leader
            self.cluster.leaders[place] = -1 if leader is None else leader
        return True

    async def _lag(self) -> None:
        # Sometimes a message takes as long as a retransmission.
        await asyncio.sleep(self._rng.choice((0.0, 0.001, 0.005, 0.02, self._rng.uniform(0, 0.4))))
