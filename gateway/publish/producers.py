"""Keeps a producer at hand for each Kafka partition whose numbers are whole.

An idempotent producer numbers the events of each Kafka partition. An error leaves a gap there, for
which Kafka refuses all that follows, and only there: so that partition waits for a new producer,
while the others go on with theirs until the new one is connected. The old one is let go when Kafka
has reported on all that it was handed.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import structlog
from aiokafka import TopicPartition
from aiokafka.errors import ClusterAuthorizationFailedError, KafkaError

from shared.runtime.kafka.clients import KafkaProducer

log = structlog.get_logger()

# Between attempts to reach a Kafka that is not there.
_CONNECT_PAUSE_S = 0.5
# A topic that refuses each batch may ask for a new producer no more often than this; its events
# wait so long, which is less than they may.
_REPLACE_PAUSE_S = 1.0
# How long a given-up producer may take to close its connections.
_STOP_S = 5.0
# How often we ask who leads a Kafka partition that nobody leads.
_LEADER_PAUSE_S = 0.2
# Kafka numbers up to 2^31 - 1 and goes on at 0; aiokafka goes on at -2^31, which Kafka refuses. A
# batch takes less than 2^20 numbers: it has a million bytes, and a record has more than one.
_NUMBERS_MAX = 2**31 - 2**20


@dataclass(slots=True, eq=False)
class NumberingProducer:
    """A producer, and what it can still be used for."""

    kafka: KafkaProducer
    # How many numbers of each Kafka partition are taken; after an error there, all of them.
    numbers: defaultdict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))
    is_dead: bool = False
    # Batches that it was handed, and partitions that ask it who leads them.
    user_count: int = 0

    def can_take(self, partition: TopicPartition) -> bool:
        return not self.is_dead and self.numbers.get(partition, 0) < _NUMBERS_MAX

    def has_leader(self, partition: TopicPartition) -> bool:
        return self.kafka.client.cluster.leader_for_partition(partition) not in {None, -1}


@dataclass(eq=False)
class Producers:
    """The producer in use, and those that still wait for reports."""

    new: Callable[[], KafkaProducer]
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    current: NumberingProducer | None = field(default=None, init=False)
    _old: set[NumberingProducer] = field(default_factory=set, init=False)
    _closing: set[asyncio.Future[None]] = field(default_factory=set, init=False)
    # Set, and followed by another, whenever there is a new producer.
    _renewed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _is_renewing: bool = field(default=False, init=False)
    _renewed_at_s: float = field(default=float("-inf"), init=False)

    async def connect(self) -> None:
        """Put a connected producer in place of the one there is."""
        while True:
            kafka = self.new()
            try:
                await kafka.start()
            except (KafkaError, OSError) as error:
                await _give_up(kafka)
                if self.current is None and isinstance(error, ClusterAuthorizationFailedError):
                    # It will not change its mind while somebody waits for the first connection.
                    raise
                log.warning("kafka.unreachable", error=repr(error))
                await asyncio.sleep(_CONNECT_PAUSE_S)
            except asyncio.CancelledError:
                await _give_up(kafka)
                raise
            else:
                break
        old, self.current = self.current, NumberingProducer(kafka)
        self._renewed_at_s = monotonic()
        self._renewed.set()
        self._renewed = asyncio.Event()
        if old is not None:
            self._old.add(old)
            self._let_go(old)

    async def stop(self) -> None:
        """Give up on everything."""
        left = [*self._old] if self.current is None else [*self._old, self.current]
        self._old.clear()
        self.current = None
        await asyncio.gather(*(_give_up(producer.kafka) for producer in left), *self._closing)

    async def ready(self, partition: TopicPartition) -> None:
        """Wait until a batch for a Kafka partition can be handed over, to a leader that is there.

        The client would take it before, and fail it later as one that Kafka may have.
        """
        while True:
            producer = self.current
            if producer is None or not producer.can_take(partition):
                await self._renewed.wait()
            elif producer.has_leader(partition):
                return
            else:
                await self._learn(producer, partition)

    @contextmanager
    def used(self, partition: TopicPartition, count: int) -> Iterator[NumberingProducer]:
        """The producer for a batch of so many events, kept until its report is here."""
        producer = self.current
        assert producer is not None, "a batch is handed over only when there is a producer"
        with self.kept(producer):
            yield producer
            producer.numbers[partition] += count
            if not producer.can_take(partition):
                self._renew("its numbers are used up")

    def spoil(
        self, producer: NumberingProducer, partition: TopicPartition, error: BaseException
    ) -> None:
        """After an error no batch of that Kafka partition goes to that producer."""
        producer.numbers[partition] = _NUMBERS_MAX
        if producer is self.current:
            self._renew(repr(error))

    def bury(self, producer: NumberingProducer, error: BaseException) -> None:
        """It takes nothing any more, from nobody."""
        producer.is_dead = True
        if producer is self.current:
            self._renew(repr(error))

    def _renew(self, reason: str) -> None:
        if not self._is_renewing:
            log.warning("producer.replaced", error=reason)
            self._is_renewing = True
            self.spawn(self._reconnect())

    async def _reconnect(self) -> None:
        try:
            await asyncio.sleep(self._renewed_at_s + _REPLACE_PAUSE_S - monotonic())
            await self.connect()
        finally:
            self._is_renewing = False

    async def _learn(self, producer: NumberingProducer, partition: TopicPartition) -> None:
        """Ask who leads a Kafka partition. It may be nobody, for a while or for ever."""
        with self.kept(producer):
            with contextlib.suppress(KafkaError):
                await producer.kafka.partitions_for(partition.topic)
            if not producer.has_leader(partition):
                await asyncio.sleep(_LEADER_PAUSE_S)
                await producer.kafka.client.force_metadata_update()

    @contextmanager
    def kept(self, producer: NumberingProducer) -> Iterator[None]:
        """Not closed meanwhile: who asks a closed one waits for ever."""
        producer.user_count += 1
        try:
            yield
        finally:
            producer.user_count -= 1
            if producer in self._old:
                self._let_go(producer)

    def _let_go(self, producer: NumberingProducer) -> None:
        """Close one that is no longer in use, once nobody waits for it."""
        if not producer.user_count:
            self._old.discard(producer)
            closing = asyncio.ensure_future(_give_up(producer.kafka))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


async def _give_up(kafka: KafkaProducer) -> None:
    """Stop a producer without waiting for batches that may never be reported.

    aiokafka's stop() waits for every batch as long as Kafka stays away, and its public API has no
    other way out: so first fail what is open, by the method it uses itself when its sender dies.
    """
    kafka._message_accumulator.fail_all(KafkaError("the producer was given up"))  # noqa: SLF001
    with contextlib.suppress(TimeoutError, KafkaError):
        async with asyncio.timeout(_STOP_S):
            await kafka.stop()
