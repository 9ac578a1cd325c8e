"""Kafka partitions on three brokers in virtual time, as seen by a producer.

Leaders append and wait for the replicas in sync; followers fetch, fall behind, leave and return; a
controller elects; brokers pause, die, restart and learn late who leads. When a former leader
follows, it truncates the records that it lost. Brokers tell batches apart by producer id, epoch and
sequence number, like `ProducerAppendInfo`. Modelled on Apache Kafka 4's ReplicaManager.
"""

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from gateway.publish.produce_request import BatchOutcome
from shared.event.record import KafkaPartition
from tests.support.kafka.kafka_replica import Leadership, Replica, SentBatch, StoredBatch

BROKERS = (0, 1, 2)
MIN_IN_SYNC = 2
TICK_S = 0.04
# How often a broker has an unexpected error, before an append and after it.
_STRANGE = 0.002

NONE, SERVER_ERROR = 0, -1
UNKNOWN_TOPIC, NOT_LEADER, TIMED_OUT, TOO_FEW, TOO_FEW_AFTER_APPEND = 3, 6, 7, 19, 20


@dataclass(eq=False)
class Partition:
    """A Kafka partition: the controller's decision, and a replica on each broker."""

    decided: Leadership
    in_sync: set[int]
    replicas: dict[int, Replica]


@dataclass(eq=False)
class Broker:
    """A process that may be frozen or dead."""

    id: int
    is_alive: bool = True
    awake: asyncio.Event = field(default_factory=asyncio.Event)
    # Done when the broker dies, which wakes everybody who waits for an answer.
    died: "asyncio.Future[None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    # Until then the broker knows no topics.
    knows_topics_at_s: float = 0.0

    @property
    def is_well(self) -> bool:
        return self.is_alive and self.awake.is_set()


class _Waiting(NamedTuple):
    """A produce request that was appended, and waits for the replicas in sync."""

    place: KafkaPartition
    broker: int
    leader_epoch: int
    offset: int
    end: int
    until_s: float
    answered: "asyncio.Future[BatchOutcome]"


class ModelCluster:
    """Three brokers and a controller that is always there."""

    def __init__(self, rng: Random, partition_count: int, *, topic: str = "ours") -> None:
        self.rng = rng
        self.seen: Counter[str] = Counter()
        self.brokers = {number: Broker(number) for number in BROKERS}
        self.partitions: dict[KafkaPartition, Partition] = {}
        for number in range(partition_count):
            decided = Leadership(number % len(BROKERS), 1)
            self.partitions[KafkaPartition(topic, number)] = Partition(
                decided, set(BROKERS), {n: Replica(decided) for n in BROKERS}
            )
        for broker in self.brokers.values():
            broker.awake.set()
        # How long a replica may lag, and how long a broker may be silent, before it is removed.
        self.lag_max_s = rng.uniform(0.5, 3)
        self.session_s = rng.uniform(0.5, 4)
        self._silent_since_s: dict[int, float] = {}
        self._waiting: list[_Waiting] = []
        self.producer_ids = itertools.count(7)
        self._loop = asyncio.get_running_loop()

    def now_s(self) -> float:
        return self._loop.time()

    async def run(self) -> None:
        """Let time pass: fetches, high watermarks, elections, answers."""
        while True:
            await asyncio.sleep(TICK_S)
            self._watch_brokers()
            for partition in self.partitions.values():
                self._replicate(partition)
            self._answer()

    # -- what happens to brokers --

    async def pause(self, number: int, for_s: float) -> None:
        broker = self.brokers[number]
        if broker.is_well:
            self.seen["pauses"] += 1
            broker.awake.clear()
            await asyncio.sleep(for_s)
            broker.awake.set()

    async def kill(self, number: int, for_s: float) -> None:
        """Kill a broker like `kill -9`: it keeps its log."""
        broker = self.brokers[number]
        if broker.is_alive:
            self.seen["kills"] += 1
            await self._be_away(broker, for_s)

    async def stop_in_order(self, number: int, for_s: float) -> None:
        """Hand over a broker's leaderships first; then let it leave the replicas in sync."""
        broker = self.brokers[number]
        if broker.is_well:
            self.seen["orderly stops"] += 1
            for place, partition in self.partitions.items():
                others = partition.in_sync - {number}
                if others and partition.decided.leader == number:
                    self._elect(place, partition, self._choose(others))
                if others:
                    partition.in_sync.discard(number)
            await asyncio.sleep(self.rng.uniform(0, 0.8))
            if broker.is_alive:
                await self._be_away(broker, for_s)

    def move_leader(self) -> None:
        """Elect another leader: the old one stays, and learns of it like the others."""
        place, partition = self.rng.choice(list(self.partitions.items()))
        others = {n for n in partition.in_sync if self.brokers[n].is_alive}
        others.discard(partition.decided.leader or 0)
        if others:
            self._elect(place, partition, self._choose(others))

    def heal(self) -> None:
        for broker in self.brokers.values():
            broker.awake.set()

    async def _be_away(self, broker: Broker, for_s: float) -> None:
        broker.is_alive = False
        broker.awake.set()
        broker.died.set_result(None)
        for place in self.partitions:
            self._drop_waiting(place, broker.id)
        await asyncio.sleep(for_s)
        broker.died = self._loop.create_future()
        broker.is_alive = True
        broker.knows_topics_at_s = self.now_s() + self.rng.uniform(0, 0.5)
        for place, partition in self.partitions.items():
            self._tell(place, broker.id, partition.decided)

    def _choose(self, candidates: set[int]) -> int:
        return self.rng.choice(sorted(candidates))

    # -- the controller --

    def _watch_brokers(self) -> None:
        now_s = self.now_s()
        for number, broker in self.brokers.items():
            if broker.is_well:
                self._silent_since_s.pop(number, None)
            elif now_s - self._silent_since_s.setdefault(number, now_s) >= self.session_s:
                self._fence(number)
        for place, partition in self.partitions.items():
            able = {n for n in partition.in_sync if n not in self._fenced(now_s)}
            if partition.decided.leader is None and able:
                self._elect(place, partition, self._choose(able))

    def _fenced(self, now_s: float) -> set[int]:
        return {n for n, at_s in self._silent_since_s.items() if now_s - at_s >= self.session_s}

    def _fence(self, number: int) -> None:
        for place, partition in self.partitions.items():
            if number in partition.in_sync and len(partition.in_sync) > 1:
                partition.in_sync.discard(number)
            if partition.decided.leader == number:
                able = partition.in_sync - self._fenced(self.now_s())
                self._elect(place, partition, self._choose(able) if able else None)

    def _elect(self, place: KafkaPartition, partition: Partition, leader: int | None) -> None:
        self.seen["elections"] += 1
        partition.decided = Leadership(leader, partition.decided.epoch + 1)
        for number in BROKERS:
            # Some brokers learn of it late.
            late_s = self.rng.choice((0.0, 0.01, 0.1, self.rng.uniform(0, 1)))
            self._loop.call_later(late_s, self._learn, place, number, partition.decided)

    def _learn(self, place: KafkaPartition, number: int, decided: Leadership) -> None:
        broker = self.brokers[number]
        if not broker.is_alive:
            return
        if not broker.awake.is_set():
            self._loop.call_later(TICK_S, self._learn, place, number, decided)
            return
        self._tell(place, number, decided)

    def _tell(self, place: KafkaPartition, number: int, decided: Leadership) -> None:
        replica = self.partitions[place].replicas[number]
        if decided.epoch <= replica.knows.epoch:
            return
        replica.knows = decided
        replica.fetched, replica.level_at_s = {}, {}
        # Requests that wait for a former leader end at once.
        self._drop_waiting(place, number)
        if decided.leader == number:
            replica.level_at_s = dict.fromkeys(BROKERS, self.now_s())
            replica.in_sync = set(BROKERS)

    # -- replication --

    def _replicate(self, partition: Partition) -> None:
        now_s = self.now_s()
        for number, replica in partition.replicas.items():
            leader_id = replica.knows.leader
            if leader_id is None or leader_id == number or not self.brokers[number].is_well:
                continue
            leader = partition.replicas[leader_id]
            # A leader serves only replicas that know the same leadership, and only while it knows
            # it itself.
            if not self.brokers[leader_id].is_well or leader.knows != replica.knows:
                continue
            if self.rng.random() < 0.2:
                continue
            self.seen["truncated"] += replica.truncate(leader)
            # The follower fetches from this offset: the leader learns of its copies a turn later.
            leader.fetched[number] = replica.end
            if replica.end == leader.end:
                leader.level_at_s[number] = now_s
            replica.fetch(leader)
        for number, replica in partition.replicas.items():
            if replica.knows.leader == number and self.brokers[number].is_well:
                self._keep_in_sync(partition, number, replica, now_s)

    def _keep_in_sync(
        self, partition: Partition, number: int, leader: Replica, now_s: float
    ) -> None:
        if partition.decided == leader.knows:
            # The controller accepts this only from the leader that it has chosen.
            for other in set(BROKERS) - {number}:
                behind_s = now_s - leader.level_at_s.get(other, -math.inf)
                fetched = leader.fetched.get(other, 0)
                if other in partition.in_sync and behind_s > self.lag_max_s:
                    partition.in_sync.discard(other)
                elif other not in partition.in_sync and other not in self._fenced(now_s):
                    is_level = fetched >= max(leader.high_watermark, self._epoch_start(leader))
                    if is_level and other in leader.fetched and behind_s <= self.lag_max_s:
                        partition.in_sync.add(other)
            leader.in_sync = set(partition.in_sync)
        # A leader that does not know of its successor waits for the replicas that it last knew.
        others = leader.in_sync - {number}
        reached = min([leader.end, *[leader.fetched.get(n, 0) for n in others]])
        leader.high_watermark = max(leader.high_watermark, reached)

    @staticmethod
    def _epoch_start(leader: Replica) -> int:
        for stored in leader.batches:
            if stored.leader_epoch == leader.knows.epoch:
                return stored.offset
        return leader.end

    # -- produce --

    async def produce(
        self, number: int, place: KafkaPartition, sent: SentBatch, timeout_s: float
    ) -> BatchOutcome:
        """Return a broker's answer, once it is awake; it may die meanwhile."""
        replica = self.partitions[place].replicas[number]
        judged = self._judge(number, place, replica, sent)
        if isinstance(judged, int):
            self.seen[f"refused {judged}"] += 1
            return BatchOutcome(judged, -1)
        if judged is None:
            judged = StoredBatch(replica.end, replica.knows.epoch, sent)
            replica.batches.append(judged)
        else:
            self.seen["repeats"] += 1
        if self.rng.random() < _STRANGE:
            return BatchOutcome(SERVER_ERROR, -1)
        answered: asyncio.Future[BatchOutcome] = self._loop.create_future()
        until_s = self.now_s() + timeout_s
        self._waiting.append(
            _Waiting(
                place, number, replica.knows.epoch, judged.offset, judged.end, until_s, answered
            )
        )
        return await answered

    def _judge(
        self, number: int, place: KafkaPartition, replica: Replica, sent: SentBatch
    ) -> int | StoredBatch | None:
        """Judge like `Replica.judge`, after a broker's own checks."""
        if self.now_s() < self.brokers[number].knows_topics_at_s:
            return UNKNOWN_TOPIC
        if replica.knows.leader != number:
            return NOT_LEADER
        if len(self.partitions[place].in_sync) < MIN_IN_SYNC:
            return TOO_FEW
        if self.rng.random() < _STRANGE:
            return SERVER_ERROR
        return replica.judge(sent)

    def _answer(self) -> None:
        now_s = self.now_s()
        still = []
        for wait in self._waiting:
            partition = self.partitions[wait.place]
            replica = partition.replicas[wait.broker]
            if not self.brokers[wait.broker].is_well:
                still.append(wait)
            elif replica.high_watermark >= wait.end:
                is_enough = len(partition.in_sync) >= MIN_IN_SYNC
                code = NONE if is_enough else TOO_FEW_AFTER_APPEND
                self._settle(wait, code)
            elif now_s >= wait.until_s:
                self._settle(wait, TIMED_OUT)
            else:
                still.append(wait)
        self._waiting = still

    def _drop_waiting(self, place: KafkaPartition, number: int) -> None:
        mine: list[_Waiting] = []
        others: list[_Waiting] = []
        for wait in self._waiting:
            (mine if (wait.place, wait.broker) == (place, number) else others).append(wait)
        self._waiting = others
        for wait in mine:
            if not self.brokers[number].is_alive:
                wait.answered.cancel()
            else:
                self.seen["resigned after the append"] += 1
                self._settle(wait, self.rng.choice((NOT_LEADER, UNKNOWN_TOPIC)))

    def _settle(self, wait: _Waiting, code: int) -> None:
        if not wait.answered.done():
            wait.answered.set_result(BatchOutcome(code, wait.offset))

    # -- afterwards --

    def log(self, place: KafkaPartition) -> Iterator[tuple[int, str]]:
        """Return the offset and id of each record that the leader has."""
        partition = self.partitions[place]
        assert partition.decided.leader is not None, (
            "the Kafka partition has no leader: the model is not healed"
        )
        for stored in partition.replicas[partition.decided.leader].batches:
            yield from enumerate(stored.sent.ids, stored.offset)

    def is_level(self) -> bool:
        """Return whether all replicas have the same records, and each knows the leader."""
        return (
            all(
                replica.knows == partition.decided
                and replica.batches == partition.replicas[BROKERS[0]].batches
                for partition in self.partitions.values()
                for replica in partition.replicas.values()
            )
            and not self._waiting
        )
