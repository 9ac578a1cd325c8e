"""Decides what time it is for the retrier, asks Kafka what has become due, and reads it.

The only file of the retrier that knows the Kafka client. Spark calls a data source from ordinary
functions in worker processes, so each process keeps one loop, one consumer and one producer for as
long as it lives.
"""

import asyncio
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from shared.event.record import RecordIn
from shared.event.topics import PROBE
from shared.runtime.kafka.records import partitions_of, record_in

# A broker that does not answer for so long is down: the task fails, and Spark tries again.
_FETCH_TIMEOUT_S = 30.0
# One fetch's worth of records is handed on at a time.
_RECORDS_MAX = 5_000
# A leader that is there answers within milliseconds; one that is away must not hold up the others.
_STAMP_TIMEOUT_S = 2.0
# Brokers under one time service differ by a millisecond or so; this allows for a bad day.
_SKEW_MS = 100
# How long a task may count on from a stamp: quartz drifts by less than a millisecond in it.
_STAMP_AGE_S_MAX = 10.0

T = TypeVar("T")


class BrokerAwayError(Exception):
    """Kafka did not answer: nothing is known to be due."""


@dataclass(frozen=True, slots=True)
class BrokerTime:
    """The broker's clock as of a stamp, counted on by what no step of our own clock can touch."""

    stamp_ms: int
    seen_s: float

    def __call__(self) -> int:
        """At most the broker's time: the stamp was older when we saw it."""
        return self.stamp_ms + int((time.monotonic() - self.seen_s) * 1000)


class Broker:
    """A consumer that belongs to no group: Spark's checkpoint is the only position."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._runner = asyncio.Runner()
        self._consumer: AIOKafkaConsumer | None = None
        self._producer: AIOKafkaProducer | None = None
        self._time: BrokerTime | None = None

    def now_ms(self) -> int:
        """The time by the clock that stamps what waits, as of this very question."""
        return self._ask(self._stamp())

    def clock(self) -> BrokerTime:
        """The same for a task's while; asked for anew when it has become old."""
        if self._time is None or time.monotonic() - self._time.seen_s > _STAMP_AGE_S_MAX:
            self._time = BrokerTime(self.now_ms(), time.monotonic())
        return self._time

    def starts(self, topics: Sequence[str]) -> Mapping[tuple[str, int], int]:
        """The first offset that each Kafka partition still has."""
        return self._ask(self._starts(topics))

    def due_ends(self, due_by_ms: Mapping[str, int]) -> Mapping[tuple[str, int], int]:
        """Where each topic's records stop being older than the given time."""
        return self._ask(self._due_ends(due_by_ms))

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[list[RecordIn]]:
        """The records from `start` up to, but not including, `end`."""
        where = TopicPartition(topic, partition)
        at = start
        while at < end:
            at, records = self._runner.run(self._fetch(where, at, end))
            if records:
                yield records

    def close(self) -> None:
        """Let go of the connections; a worker process just ends, and they with it."""
        if self._consumer is not None:
            self._runner.run(self._consumer.stop())
        if self._producer is not None:
            self._runner.run(self._producer.stop())
        self._runner.close()

    def _ask(self, question: Coroutine[None, None, T]) -> T:
        try:
            return self._runner.run(question)
        except (KafkaError, TimeoutError) as error:
            raise BrokerAwayError(repr(error)) from error

    async def _stamp(self) -> int:
        """The earliest of the times that the brokers stamp on a record each.

        Kafka has no question for the time, but its answer to a record says when it was taken. A
        waiting event was stamped by the leader it had then; whichever broker that was, by its
        clock it is at least as late as by the slowest.
        """
        producer = await self._writing()
        numbers = await producer.partitions_for(PROBE)
        reports = [await producer.send(PROBE, b"", partition=number) for number in numbers]
        done, _ = await asyncio.wait(reports, timeout=_STAMP_TIMEOUT_S)
        stamps = [report.result().timestamp for report in done if report.exception() is None]
        if not stamps:
            raise BrokerAwayError(f"no broker has stamped a record within {_STAMP_TIMEOUT_S:g} s")
        skew_ms = _SKEW_MS if len(producer.client.cluster.brokers()) > 1 else 0
        earliest: int = min(stamps)
        return earliest - skew_ms

    async def _writing(self) -> AIOKafkaProducer:
        if self._producer is None:
            # The stamp is the leader's own: no replica need have the record.
            producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap_servers, acks=1)
            try:
                await producer.start()
            except BaseException:
                await producer.stop()
                raise
            self._producer = producer
        return self._producer

    async def _connected(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap_servers,
                enable_auto_commit=False,
                # An offset that is gone is a loss: fail and say so.
                auto_offset_reset="none",
                max_poll_records=_RECORDS_MAX,
                # A re-drive that broke off has written nothing.
                isolation_level="read_committed",
            )
            try:
                await consumer.start()
            except BaseException:
                await consumer.stop()
                raise
            self._consumer = consumer
        return self._consumer

    async def _starts(self, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        consumer = await self._connected()
        starts: dict[tuple[str, int], int] = await consumer.beginning_offsets(
            await partitions_of(consumer, *topics)
        )
        return starts

    async def _due_ends(self, due_by_ms: Mapping[str, int]) -> dict[tuple[str, int], int]:
        consumer = await self._connected()
        partitions = await partitions_of(consumer, *due_by_ms)
        # The ends come first: a record that arrives between the two questions is not due, and
        # would be taken for due if "no record that young" were answered by a later end.
        ends = await consumer.end_offsets(partitions)
        young = await consumer.offsets_for_times(
            {where: due_by_ms[where.topic] + 1 for where in partitions}
        )
        return {
            where: ends[where] if young[where] is None else young[where].offset
            for where in partitions
        }

    async def _fetch(self, where: TopicPartition, at: int, end: int) -> tuple[int, list[RecordIn]]:
        consumer = await self._connected()
        if where not in consumer.assignment():
            consumer.assign([where])
        consumer.seek(where, at)
        async with asyncio.timeout(_FETCH_TIMEOUT_S):
            while not (found := (await consumer.getmany(where, timeout_ms=1000)).get(where)):
                if await consumer.position(where) >= end:
                    return end, []
        records = [record_in(record) for record in found if record.offset < end]
        return min(await consumer.position(where), end), records


_brokers: dict[str, Broker] = {}


def broker(bootstrap_servers: str) -> Broker:
    """The broker of the process, made when it is first needed."""
    if bootstrap_servers not in _brokers:
        _brokers[bootstrap_servers] = Broker(bootstrap_servers)
    return _brokers[bootstrap_servers]
