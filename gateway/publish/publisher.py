"""Puts events into Kafka: acks=all, idempotent, and a report for every single event.

Its Kafka client is made where all are, but used as it is, for whole batches of our own, and its
errors end here. Whoever publishes learns for
each event whether it is stored, not stored, or not known; nothing else leaves this file.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Protocol

import structlog
from aiokafka.errors import (
    InvalidTopicError,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)

from gateway.intake.events import Event
from gateway.intake.plain_events import PlainEvents
from gateway.intake.record_batch import RecordBatch
from gateway.publish import produce_encoding
from gateway.publish.accumulator import (
    Accumulator,
    BatchSlice,
    NotStoredError,
    UnknownFateError,
)
from gateway.publish.partitions import partition_of
from gateway.publish.report import Fate, Report
from shared.event.topics import PROBE
from shared.runtime.clock import now_ms
from shared.runtime.kafka.clients import KafkaProducer, new_producer
from shared.runtime.setup_error import SetupError

log = structlog.get_logger()

# Deadlines are told this late at most; a fortieth of the shorter one.
_SWEEP_S = 0.05
# How often we probe Kafka when nobody sends, and how long an answer is news (three missed).
_PROBE_S = 2.0
_PROBE_AGE_S_MAX = 6.0
# Between attempts to reach a Kafka that is not there.
_CONNECT_PAUSE_S = 0.5
# How long a given-up producer may take to close its connections.
_STOP_S = 5.0

# A batch of this size is sent at hardly more cost than a smaller one, so small requests share it.
_SHARED_BYTES = 65_536
# After so many full batches the next Kafka partition has its turn: all are read at one pace.
_TURN_BATCHES = 2
# A healthy Kafka reports a batch within 20 ms here (p99 under load).
_MOVING_S = 0.1
_PROBE_EVENT = Event.of(id="probe", key=None, value=b"{}", headers=())
# The broker looked at the batch and refused it, so it is certainly not in the log.
_REFUSALS = (
    InvalidTopicError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)


class Publisher(Protocol):
    """Puts events into a topic and says what became of each."""

    async def publish(self, topic: str, events: Sequence[Event]) -> Sequence[Report]:
        """Reports that together cover each position of `events` once. It never raises."""

    @property
    def overdue_bytes(self) -> int:
        """Bytes of events that were reported unknown and are held until Kafka answers."""

    @property
    def problem(self) -> str | None:
        """Why events cannot be stored right now; None when they can."""


@dataclass(eq=False)
class KafkaPublisher:
    """The publisher that the gateway runs with."""

    bootstrap_servers: str
    ack_deadline_s: float
    queue_deadline_s: float
    batch_bytes_max: int
    # As of the last sweep, which alone makes events overdue; each request asks for it.
    overdue_bytes: int = field(default=0, init=False)
    _topics: dict[str, "_Topic"] = field(default_factory=dict, init=False)
    _producer: KafkaProducer | None = field(default=None, init=False)
    _has_producer: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _heard_at_s: float = field(default=float("-inf"), init=False)
    _is_broken: bool = field(default=False, init=False)
    _is_probing: bool = field(default=False, init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    async def start(self, *, deadline_s: float) -> None:
        """Connect, or say in one sentence that Kafka is not there."""
        produce_encoding.install()
        try:
            async with asyncio.timeout(deadline_s):
                await self._connect()
        except TimeoutError as error:
            raise SetupError(
                f"Kafka does not answer at {self.bootstrap_servers}: start it, or set"
                " HIFI_GATEWAY_BOOTSTRAP_SERVERS to where it runs."
            ) from error
        self._spawn(self._sweep())
        self._spawn(self._probe())

    async def stop(self) -> None:
        """Settle everything that is still open, and let go of Kafka."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for topic in self._topics.values():
            for accumulator in topic.accumulators:
                accumulator.close("the gateway stops")
        self._has_producer.clear()
        producer, self._producer = self._producer, None
        if producer is not None:
            await _give_up(producer)

    @property
    def problem(self) -> str | None:
        if self._is_broken:
            return "a part of the gateway has died"
        if self._producer is None:
            return "there is no connection to Kafka"
        if monotonic() - self._heard_at_s > _PROBE_AGE_S_MAX:
            return f"Kafka has stored nothing for {_PROBE_AGE_S_MAX:g} s"
        return None

    async def publish(self, topic: str, events: Sequence[Event]) -> Sequence[Report]:
        if self._producer is None:
            return _refused(events, "there is no connection to Kafka")
        try:
            open_topic = self._topics.get(topic) or await self._open(self._producer, topic)
        except NotStoredError as error:
            return _refused(events, str(error))
        slices = open_topic.take(events, now_s=monotonic(), now_ms=now_ms())
        if len(slices) == 1:
            return [await slices[0].report]
        return await asyncio.gather(*(part.report for part in slices))

    async def _open(self, producer: KafkaProducer, topic: str) -> "_Topic":
        """Learn how many partitions a topic has, the first time somebody publishes to it."""
        try:
            async with asyncio.timeout(self.queue_deadline_s):
                partitions = await producer.partitions_for(topic)
        except (KafkaError, TimeoutError) as error:
            raise NotStoredError(f"Kafka knows no topic {topic}") from error
        # Another request may have been faster while we waited.
        return self._topics.setdefault(topic, self._new_topic(topic, len(partitions)))

    def _new_topic(self, topic: str, partition_count: int) -> "_Topic":
        return _Topic(
            [
                Accumulator(
                    partition=partition,
                    new_builder=partial(RecordBatch, self.batch_bytes_max),
                    send=partial(self._produce, topic),
                    gate=self._has_producer.wait,
                )
                for partition in range(partition_count)
            ],
            turn_bytes=_TURN_BATCHES * self.batch_bytes_max,
        )

    async def _produce(self, topic: str, partition: int, builder: RecordBatch) -> int:
        """Hand one batch over and wait for Kafka's report on it, however long that takes."""
        producer = self._producer
        assert producer is not None, "the gate is open only while there is a producer"
        try:
            future = await producer.send_batch(builder, topic, partition=partition)
        except (KafkaError, AssertionError) as error:
            # A producer that died earlier says so here too; aiokafka asserts that a partition is.
            self._replace(producer, error)
            raise NotStoredError(f"it was not handed over: {error!r}") from error
        try:
            metadata = await future
        except KafkaError as error:
            # The sequence numbers of this producer are broken now, whatever the error was.
            self._replace(producer, error)
            if isinstance(error, _REFUSALS):
                raise NotStoredError(f"kafka refused it: {error!r}") from error
            raise UnknownFateError(f"kafka lost track of it: {error!r}") from error
        self._heard_at_s = monotonic()
        offset: int = metadata.offset
        return offset

    async def _connect(self) -> None:
        while True:
            producer = new_producer(
                self.bootstrap_servers,
                enable_idempotence=True,
                max_batch_size=self.batch_bytes_max,
                # Half our own deadline: one lost request can be repeated before it passes.
                request_timeout_ms=round(self.ack_deadline_s * 500),
            )
            try:
                await producer.start()
            except (KafkaError, OSError) as error:
                log.warning("kafka.unreachable", error=repr(error))
                await _give_up(producer)
                await asyncio.sleep(_CONNECT_PAUSE_S)
            except asyncio.CancelledError:
                await _give_up(producer)
                raise
            else:
                self._producer = producer
                self._heard_at_s = monotonic()
                self._has_producer.set()
                return

    def _replace(self, producer: KafkaProducer, error: BaseException) -> None:
        """Get a new producer in place of a broken one; the first to notice does it."""
        if producer is not self._producer or not self._has_producer.is_set():
            return
        log.warning("producer.replaced", error=repr(error))
        self._has_producer.clear()
        self._spawn(self._reconnect(producer))

    async def _reconnect(self, broken: KafkaProducer) -> None:
        await _give_up(broken)
        # Partition counts may have been the reason; they are asked for anew.
        await self._connect()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            now_s = monotonic()
            overdue_bytes = 0
            for topic in self._topics.values():
                for accumulator in topic.accumulators:
                    accumulator.sweep(
                        now_s=now_s,
                        queue_deadline_s=self.queue_deadline_s,
                        ack_deadline_s=self.ack_deadline_s,
                    )
                    overdue_bytes += accumulator.overdue_bytes
            self.overdue_bytes = overdue_bytes

    async def _probe(self) -> None:
        """Keep the news of Kafka fresh: when nobody sends, we send a record of no meaning."""
        while True:
            await asyncio.sleep(_PROBE_S)
            producer = self._producer
            if producer is None:
                continue
            with contextlib.suppress(KafkaError):
                has_answered = await producer.client.force_metadata_update()
                cluster = producer.client.cluster
                if PROBE not in cluster.topics(exclude_internal_topics=False):
                    # Made before there were probes: an answer about metadata has to do.
                    if has_answered and cluster.brokers():
                        self._heard_at_s = monotonic()
                elif monotonic() - self._heard_at_s >= _PROBE_S and not self._is_probing:
                    self._spawn(self._send_probe())
                for name, topic in self._topics.items():
                    partitions = cluster.partitions_for_topic(name) or ()
                    if len(partitions) > len(topic.accumulators):
                        grown = self._new_topic(name, len(partitions)).accumulators
                        topic.accumulators.extend(grown[len(topic.accumulators) :])

    async def _send_probe(self) -> None:
        """One record, by the way of every other; its report is the news."""
        self._is_probing = True
        try:
            await self.publish(PROBE, [_PROBE_EVENT])
        finally:
            self._is_probing = False

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug: deadlines may not be kept any more, so no request should come here.
            log.critical("publisher.broken", exc_info=error)
            self._is_broken = True


class _Topic:
    """The accumulators of one topic, and which of them an event goes to."""

    def __init__(self, accumulators: list[Accumulator], *, turn_bytes: int) -> None:
        self.accumulators = accumulators
        self._turn_bytes = turn_bytes
        self._sticky = accumulators[0]
        self._sticky_from_bytes = 0

    def take(self, events: Sequence[Event], *, now_s: float, now_ms: int) -> list[BatchSlice]:
        """Lay events into batches, in their order for each Kafka partition."""
        slices: list[BatchSlice] = []
        for partition, positions in self._sort(events).items():
            part: Sequence[Event] = events
            left: Sequence[int] = positions
            if len(positions) < len(events):
                part = [events[position] for position in positions]
            while part:
                accumulator = (
                    self._spread(now_s) if partition is None else self.accumulators[partition]
                )
                taken = accumulator.take(part, left, now_s=now_s, now_ms=now_ms)
                slices.append(taken)
                part, left = part[len(taken.events) :], left[len(taken.positions) :]
        return slices

    def _sort(self, events: Sequence[Event]) -> dict[int | None, Sequence[int]]:
        """The positions of events by their Kafka partition; None for those that may go anywhere."""
        count = len(self.accumulators)
        if isinstance(events, PlainEvents):
            only = None if events.key is None else partition_of(events.key, count)
            return {only: range(len(events))}
        if not [event for event in events if event.key is not None]:
            return {None: range(len(events))}
        by_partition: dict[int | None, list[int]] = {}
        for position, event in enumerate(events):
            partition = None if event.key is None else partition_of(event.key, count)
            by_partition.setdefault(partition, []).append(position)
        return dict(by_partition)

    def _spread(self, now_s: float) -> Accumulator:
        """Where events without a key go.

        To one Kafka partition, while it keeps moving and holds little: small requests then share
        batches. Else to the idlest, so that a stuck one does not hold up what could go elsewhere.
        """
        sticky = self._sticky
        since_s = sticky.on_its_way_since_s()
        is_moving = since_s is None or now_s - since_s < _MOVING_S
        if sticky.is_filling and is_moving:
            return sticky
        is_small = sticky.held_bytes < _SHARED_BYTES
        is_its_turn = sticky.assigned_bytes - self._sticky_from_bytes < self._turn_bytes
        if not (is_moving and is_small and is_its_turn):
            self._sticky = sticky = min(
                self.accumulators,
                key=lambda accumulator: (accumulator.held_bytes, accumulator.assigned_bytes),
            )
            self._sticky_from_bytes = sticky.assigned_bytes
        return sticky


def _refused(events: Sequence[Event], reason: str) -> Sequence[Report]:
    return [Report(Fate.NOT_STORED, range(len(events)), reason=reason)]


async def _give_up(producer: KafkaProducer) -> None:
    """Stop a producer without waiting for batches that may never be reported.

    aiokafka's stop() waits for every batch as long as Kafka stays away, and its public API has no
    other way out: so first fail what is open, by the method it uses itself when its sender dies.
    """
    producer._message_accumulator.fail_all(KafkaError("the producer was given up"))  # noqa: SLF001
    with contextlib.suppress(TimeoutError, KafkaError):
        async with asyncio.timeout(_STOP_S):
            await producer.stop()
