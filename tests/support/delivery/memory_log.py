"""Kafka partitions in memory: the fake of a `LogClient` and of the broker behind it."""

import asyncio
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from aiokafka.errors import (
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)

from shared.event.record import KafkaPartition, Position, RecordIn
from shared.runtime.kafka.log_client import FetchAnswer, LogClient
from shared.runtime.kafka.lookup.topic_ids import TopicIdsAnswer, TopicIdsRequest
from tests.support.delivery.fetched_rows import decoded

NODE = 1


class MemoryLog(LogClient):
    """One broker that leads all Kafka partitions but those in `leaderless`."""

    def __init__(self) -> None:
        self.logs: dict[KafkaPartition, list[Any]] = {}
        self.begins: defaultdict[KafkaPartition, int] = defaultdict(int)
        self.fetches: list[Position] = []
        # The allowed sizes of the answers; everything is in memory anyway.
        self.sizes: list[int] = []
        self.leader = NODE
        self.leaderless: set[KafkaPartition] = set()
        self._news = asyncio.Event()
        # The id of the topic behind each name; Kafka gives no id of a missing one.
        self.topic_ids: dict[str, str] = {}

    def make(self, topic: str, partition_count: int) -> None:
        self.logs.update({KafkaPartition(topic, n): [] for n in range(partition_count)})

    def write(self, records: Iterable[RecordIn]) -> None:
        for record in records:
            self.logs[KafkaPartition(*record.origin[:2])].append(decoded(record))
        self._news.set()
        self._news = asyncio.Event()

    def forget(self, where: KafkaPartition, upto: int) -> None:
        """Delete the records before `upto`, as retention does."""
        self.begins[where] = upto
        self.logs[where] = [each for each in self.logs[where] if each.offset >= upto]

    async def ask(self, request: Any) -> Any:
        assert isinstance(request, TopicIdsRequest), request
        return TopicIdsAnswer(self.topic_ids)

    async def follow(self, topics: Collection[str]) -> None:
        """Return True: all leaders are known here."""

    async def ask_leaders(self, topics: Collection[str]) -> bool:  # noqa: ARG002 - there is one
        return True

    @property
    def told_count(self) -> int:
        return hash((frozenset(self.logs), frozenset(self.leaderless)))

    def leaders(self, places: Collection[KafkaPartition]) -> dict[KafkaPartition, int]:
        return {
            where: self.leader for where in places if where in self.logs.keys() - self.leaderless
        }

    def partitions(self, topic: str) -> list[KafkaPartition]:
        return sorted(where for where in self.logs if where.topic == topic)

    async def ends(self, places: Collection[KafkaPartition]) -> dict[KafkaPartition, int]:
        return {where: self._end(where) for where in self.leaders(places)}

    async def starts(self, places: Collection[KafkaPartition]) -> dict[KafkaPartition, int]:
        return {where: self.begins[where] for where in self.leaders(places)}

    async def offsets_at(
        self, places: Collection[KafkaPartition], at_ms: int
    ) -> dict[KafkaPartition, int]:
        return {
            where: next(
                (each.offset for each in self.logs[where] if each.timestamp >= at_ms),
                self._end(where),
            )
            for where in self.leaders(places)
        }

    async def first_at(
        self, times_ms: Mapping[KafkaPartition, int]
    ) -> dict[KafkaPartition, int | None]:
        return {
            where: next((it.offset for it in self.logs[where] if it.timestamp >= at_ms), None)
            for where, at_ms in times_ms.items()
            if where in self.leaders([where])
        }

    async def fetch(
        self,
        node: int,
        position: Position,
        *,
        wait_ms: int,
        bytes_max: int = 0,
        connection: int = 0,  # noqa: ARG002 - here none waits for another
    ) -> dict[KafkaPartition, FetchAnswer]:
        if node != self.leader:
            return {where: FetchAnswer(error=NotLeaderForPartitionError()) for where in position}
        self.fetches.append(dict(position))
        self.sizes.append(bytes_max)
        answers = {where: self._answer(where, at) for where, at in position.items()}
        if not any(each.records or each.error for each in answers.values()):
            try:
                async with asyncio.timeout(wait_ms / 1_000):
                    await self._news.wait()
            except TimeoutError:
                return answers
            answers = {where: self._answer(where, at) for where, at in position.items()}
        return answers

    def _answer(self, where: KafkaPartition, at: int) -> FetchAnswer:
        if where not in self.logs:
            return FetchAnswer(error=UnknownTopicOrPartitionError())
        if where in self.leaderless:
            return FetchAnswer(error=NotLeaderForPartitionError())
        if not self.begins[where] <= at <= self._end(where):
            return FetchAnswer(error=OffsetOutOfRangeError())
        log = self.logs[where]
        records = log[bisect_left(log, at, key=lambda each: each.offset) :]
        return FetchAnswer(records, records[-1].offset + 1 if records else at)

    def _end(self, where: KafkaPartition) -> int:
        log = self.logs[where]
        return log[-1].offset + 1 if log else self.begins[where]
