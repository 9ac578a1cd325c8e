"""Stores events in Kafka: acks=all, idempotent, with a report for every event.

A report says whether an event is stored, not stored or unknown. Kafka's errors end here.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Protocol

import structlog
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from gateway.intake.events import Event
from gateway.intake.record_batch import RecordBatch
from gateway.publish.accumulator import Accumulator, NotStoredError
from gateway.publish.batch_producer import BatchProducer
from gateway.publish.open_topic import OpenTopic, Tell
from gateway.publish.produce_request import Handover
from gateway.publish.report import Fate, Report
from shared.event.record import KafkaPartition
from shared.event.topics import PROBE
from shared.runtime.clock import now_ms
from shared.runtime.kafka.clients import check_access, kafka_errors
from shared.runtime.kafka.refusals import missing_right
from shared.runtime.setup_error import SetupError

log = structlog.get_logger()

# Deadlines fire at most this late.
_SWEEP_S = 0.05
# Interval of probes while nobody sends, and how long Kafka's last answer counts (three probes).
_PROBE_S = 2.0
_PROBE_AGE_S_MAX = 6.0

# Seconds to wait for a broker's answer that there is no such topic.
_ASK_S = 0.5
# Full batches in a Kafka partition's turn: few, so that all partitions grow at the same pace.
_TURN_BATCHES = 2
_PROBE_EVENT = Event.of(id="probe", key=None, value=b"{}", headers=())


class Publisher(Protocol):
    """Puts events into a topic and reports on each."""

    def meanwhile(self, work: Callable[[], None]) -> None:
        """Do some work while Kafka handles the next batch, or soon; `work` must not raise."""

    async def publish(self, topic: str, events: Sequence[Event]) -> Sequence[Report]:
        """Return reports that together cover each position of `events` once. It never raises."""

    @property
    def overdue_bytes(self) -> int:
        """Bytes of events that were reported as unknown and are held until Kafka answers."""

    @property
    def problem(self) -> str | None:
        """Why events cannot be stored now; None if they can."""


class PostingPublisher(Publisher, Protocol):
    """A publisher that also takes events from callers that do not wait."""

    def post(self, topic: str, events: Sequence[Event], tell: Tell) -> bool:
        """Do as `publish`, but call `tell` with the reports, now or later; `tell` must not raise.

        Return False if it cannot begin at once. Then it took no event, and `publish` reports why.
        """


@dataclass(eq=False)
class KafkaPublisher:
    """The publisher that the gateway runs with."""

    bootstrap_servers: str
    ack_deadline_s: float
    queue_deadline_s: float
    batch_bytes_max: int
    # Computed by each sweep, as only sweeps make events overdue, and each request reads this.
    overdue_bytes: int = field(default=0, init=False)
    _topics: dict[str, OpenTopic] = field(default_factory=dict, init=False)
    _producer: BatchProducer | None = field(default=None, init=False)
    _heard_at_s: float = field(default=float("-inf"), init=False)
    _is_broken: bool = field(default=False, init=False)
    _is_probing: bool = field(default=False, init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    async def start(self, *, deadline_s: float) -> None:
        """Connect; raise SetupError with one sentence if Kafka does not answer."""
        # Fail at once where waiting would not help.
        await check_access(self.bootstrap_servers)
        # Half of the deadline, so that one lost request can be repeated before it passes.
        timeout_ms = round(self.ack_deadline_s * 500)
        producer = BatchProducer(
            self.bootstrap_servers, timeout_ms=timeout_ms, give_up_s=self.queue_deadline_s
        )
        try:
            async with asyncio.timeout(deadline_s):
                with kafka_errors(self.bootstrap_servers):
                    await producer.start()
        except TimeoutError as error:
            raise SetupError(
                f"Kafka does not answer at {self.bootstrap_servers}: start it, or set"
                " HIFI_GATEWAY_BOOTSTRAP_SERVERS to where it runs."
            ) from error
        self._producer, self._heard_at_s = producer, monotonic()
        self._spawn(self._sweep())
        self._spawn(self._probe(producer))

    async def stop(self) -> None:
        """Report on all open events, and disconnect from Kafka."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for topic in self._topics.values():
            for accumulator in topic.accumulators:
                accumulator.close("the gateway is stopping")
        if self._producer is not None:
            await self._producer.stop()

    @property
    def problem(self) -> str | None:
        if self._is_broken:
            return "a task of the gateway has failed"
        if self._producer is None:
            return "there is no connection to Kafka"
        if monotonic() - self._heard_at_s > _PROBE_AGE_S_MAX:
            return f"Kafka has stored nothing for {_PROBE_AGE_S_MAX:g} s"
        return None

    async def publish(self, topic: str, events: Sequence[Event]) -> Sequence[Report]:
        producer = self._producer
        if producer is None:
            reason = "there is no connection to Kafka"
            return [Report(Fate.NOT_STORED, range(len(events)), reason=reason)]
        try:
            open_topic = self._topics.get(topic) or await self._open(producer, topic)
        except NotStoredError as error:
            return [Report(Fate.NOT_STORED, range(len(events)), reason=str(error))]
        reported: asyncio.Future[Sequence[Report]] = asyncio.get_running_loop().create_future()

        def tell(reports: Sequence[Report]) -> None:
            # A cancelled caller no longer waits.
            if not reported.done():
                reported.set_result(reports)

        open_topic.take(events, tell, now_s=monotonic(), now_ms=now_ms())
        return await reported

    def post(self, topic: str, events: Sequence[Event], tell: Tell) -> bool:
        open_topic = self._topics.get(topic)
        if open_topic is None or self._producer is None:
            return False
        open_topic.take(events, tell, now_s=monotonic(), now_ms=now_ms())
        return True

    def meanwhile(self, work: Callable[[], None]) -> None:
        if self._producer is None:
            work()
        else:
            self._producer.meanwhile(work)

    async def _open(self, producer: BatchProducer, topic: str) -> OpenTopic:
        """Find out how many partitions a topic has, at the first event for it."""
        try:
            async with asyncio.timeout(self.queue_deadline_s):
                partitions = await producer.partitions_of(topic)
        except TopicAuthorizationFailedError as error:
            log.warning("kafka.refused", error=missing_right(self.bootstrap_servers, error))
            raise NotStoredError("Kafka does not allow the gateway to write there") from error
        except (KafkaError, TimeoutError) as error:
            if await producer.is_missing(topic, within_s=_ASK_S):
                raise NotStoredError(f"Kafka knows no topic {topic}") from error
            raise NotStoredError(f"Kafka does not return the partitions of {topic}") from error
        # Another request may have opened it in the meantime.
        return self._topics.setdefault(topic, self._new_topic(producer, topic, len(partitions)))

    def _new_topic(self, producer: BatchProducer, topic: str, partition_count: int) -> OpenTopic:
        return OpenTopic(
            [
                Accumulator(
                    partition=partition,
                    new_builder=partial(RecordBatch, self.batch_bytes_max),
                    send=partial(self._produce, topic),
                    gate=partial(producer.ready, KafkaPartition(topic, partition)),
                )
                for partition in range(partition_count)
            ],
            turn_bytes=_TURN_BATCHES * self.batch_bytes_max,
        )

    async def _produce(
        self, topic: str, partition: int, batch: RecordBatch, handover: Handover
    ) -> int:
        """Send one batch, and wait for Kafka's report on it."""
        assert self._producer is not None, "a topic is opened with the producer"
        try:
            offset = await self._producer.send(KafkaPartition(topic, partition), batch, handover)
        except NotStoredError as error:
            if says := missing_right(self.bootstrap_servers, error.__cause__):
                log.warning("kafka.refused", topic=topic, error=says)
            raise
        self._heard_at_s = monotonic()
        return offset

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

    async def _probe(self, producer: BatchProducer) -> None:
        """Check Kafka all the time: while nobody sends events, send a probe record."""
        while True:
            await asyncio.sleep(_PROBE_S)
            with contextlib.suppress(KafkaError):
                has_answered = await producer.ask_leaders()
                cluster = producer.cluster
                if PROBE not in cluster.topics(exclude_internal_topics=False):
                    # Older installations have no topic for probes: a metadata answer must do.
                    if has_answered and cluster.brokers():
                        self._heard_at_s = monotonic()
                elif monotonic() - self._heard_at_s >= _PROBE_S and not self._is_probing:
                    self._spawn(self._send_probe())
                self._recount(producer)

    def _recount(self, producer: BatchProducer) -> None:
        """Use new partitions of topics; drop topics that are gone or have fewer partitions."""
        partitions_of = producer.cluster.partitions_for_topic
        for name, topic in list(self._topics.items()):
            count, known = len(partitions_of(name) or ()), len(topic.accumulators)
            if count > known:
                topic.accumulators += self._new_topic(producer, name, count).accumulators[known:]
            elif count < known and all(one.is_idle for one in topic.accumulators):
                # A new client does not know topics without traffic; the next event reopens it.
                del self._topics[name]

    async def _send_probe(self) -> None:
        """Send one record in the same way as events; its report shows that Kafka works."""
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
            # A bug: deadlines may not be kept any more, so this gateway should get no requests.
            log.critical("publisher.broken", exc_info=error)
            self._is_broken = True
