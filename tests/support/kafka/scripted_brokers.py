"""Brokers scripted by a test: each batch waits until the test decides its fate."""

import asyncio
import struct
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError

from gateway.intake.events import Event
from gateway.publish import batch_producer
from gateway.publish.produce_request import BatchOutcome, ProduceAnswer, SendBatches
from gateway.publish.publisher import KafkaPublisher
from gateway.publish.report import Fate, Report

_NUMBERED = struct.Struct(">qhi")


class ScriptedCluster:
    """The leaders of topics; other topics do not exist."""

    def __init__(self) -> None:
        self.leaders: dict[str, list[int]] = {"ours": [0], "theirs": [1]}

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        leaders = self.leaders.get(partition.topic, [])
        return leaders[partition.partition] if partition.partition < len(leaders) else None

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(len(self.leaders[topic]))) if topic in self.leaders else None

    def topics(self, *, exclude_internal_topics: bool) -> set[str]:  # noqa: ARG002
        return set(self.leaders)

    def brokers(self) -> list[int]:
        return [0, 1]


class SentBatch(NamedTuple):
    """A batch as it came; a test decides its outcome."""

    raw: bytes
    answered: "asyncio.Future[BatchOutcome]"

    @property
    def numbered(self) -> tuple[int, int, int]:
        """Return the producer's id and epoch, and the number of the first record."""
        producer_id, epoch, number = _NUMBERED.unpack_from(self.raw, 43)
        return producer_id, epoch, number

    def store(self) -> None:
        self.answered.set_result(BatchOutcome(0, 5))

    def fail(self, error: KafkaError) -> None:
        """Refuse the batch; without a Kafka code, do not answer."""
        if errno := getattr(error, "errno", None):
            self.answered.set_result(BatchOutcome(errno, -1))
        else:
            self.answered.set_exception(error)


class ScriptedClient:
    """The connections of a producer."""

    def __init__(self) -> None:
        self.cluster = ScriptedCluster()
        # Batches under way, by topic.
        self.under_way: dict[str, SentBatch] = {}
        self.requests: list[set[str]] = []
        self.ids = iter(range(7, 100))
        self.may_number = asyncio.Event()
        self.may_number.set()
        self.is_reachable = True
        # Whether brokers answer nothing about topics that are not known yet.
        self.is_silent = False
        self.is_stopped = False

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        self.is_stopped = True

    def force_metadata_update(self) -> "asyncio.Future[bool]":
        answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        answered.get_loop().call_soon(answered.set_result, not self.is_silent)
        return answered

    async def wait_for_topic(self, topic: str) -> set[int]:
        found = self.cluster.partitions_for_topic(topic)
        if found is None:
            if self.is_silent:
                await asyncio.Event().wait()
            raise UnknownTopicOrPartitionError
        return found

    async def ready(self, _: int) -> bool:
        return self.is_reachable

    def get_random_node(self) -> int:
        return 0

    async def send(self, _node: int, request: Any) -> Any:
        assert not self.is_stopped
        if not isinstance(request, SendBatches):
            await self.may_number.wait()
            return SimpleNamespace(error_code=0, producer_id=next(self.ids), producer_epoch=0)
        written = [parcel for parcel in request.parcels if not parcel.handover.is_over]
        # The client encodes while it writes, and from then on marks these events as maybe stored.
        request.encode()
        self.requests.append({parcel.place.topic for parcel in written})
        sent = {}
        for place, pieces, _ in written:
            batch = SentBatch(b"".join(pieces), asyncio.get_running_loop().create_future())
            self.under_way[place.topic] = sent[place] = batch
        return ProduceAnswer({place: await batch.answered for place, batch in sent.items()})


class Scene:
    """A publisher whose brokers are scripted."""

    def __init__(self) -> None:
        self.client = ScriptedClient()
        self.cluster = self.client.cluster
        self.publisher = KafkaPublisher(
            "nowhere", ack_deadline_s=5, queue_deadline_s=0.1, batch_bytes_max=10_000
        )

    def publish(self, topic: str, *, count: int = 1) -> "asyncio.Task[Report]":
        event = Event.of(id="e", key=None, value=b"{}", headers=())
        return asyncio.create_task(self._publish(topic, [event] * count))

    async def _publish(self, topic: str, events: Sequence[Event]) -> Report:
        (report,) = await self.publisher.publish(topic, events)
        return report

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(5):
            while not is_so():  # noqa: ASYNC110 - the condition sets no event
                await asyncio.sleep(0.001)

    async def under_way(self, topic: str) -> SentBatch:
        """Return the next batch that arrives for a topic."""
        await self.until(lambda: topic in self.client.under_way)
        return self.client.under_way.pop(topic)

    async def settled(self, publishing: "asyncio.Task[Report]") -> Fate:
        async with asyncio.timeout(5):
            return (await publishing).fate


SceneTest: TypeAlias = Callable[[Scene], Coroutine[Any, Any, None]]
PlayScene: TypeAlias = Callable[[SceneTest], None]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> PlayScene:
    return partial(play_scene, monkeypatch)


def play_scene(monkeypatch: pytest.MonkeyPatch, test: SceneTest) -> None:
    """Run a test in a loop, with a publisher that is stopped at its end."""

    async def play() -> None:
        s = Scene()
        monkeypatch.setattr(batch_producer, "new_client", lambda *_, **__: s.client)
        monkeypatch.setattr(batch_producer, "_PAUSE_S", 0.001)
        await s.publisher.start(deadline_s=5)
        try:
            await test(s)
        finally:
            await s.publisher.stop()
        assert s.client.is_stopped

    asyncio.run(play())
