"""Tells the retrier what time it is, asks Kafka what has become due, and reads it.

Spark calls a data source from ordinary functions in worker processes, so each process keeps one
loop, one consumer and one producer for as long as it lives.
"""

import asyncio
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeVar

from shared.event.record import KafkaPartition, Position, Ranges, RecordIn
from shared.event.topics import PROBE
from shared.runtime.kafka.clients import KafkaProducer, kafka_errors, new_producer, start_client
from shared.runtime.kafka.reader import KafkaReader, RangeRead, start_reader
from shared.runtime.setup_error import KafkaUnavailableError

# One fetch's worth of records is handed on at a time.
_RECORDS_MAX = 5_000
# A leader that is there answers within milliseconds; one that is away must not hold up the others.
_STAMP_TIMEOUT_S = 2.0
# Brokers under one time service differ by a millisecond or so; this allows for a bad day.
_SKEW_MS = 100
# How long a task may count on from a stamp: quartz drifts by less than a millisecond in it.
_STAMP_AGE_S_MAX = 10.0

T = TypeVar("T")


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
        self._producer: KafkaProducer | None = None
        self._time: BrokerTime | None = None

    def now_ms(self) -> int:
        """The time by the clock that stamps what waits, as of this very question."""
        return self._ask(self._stamp())

    def clock(self) -> BrokerTime:
        """The same for a task's while; asked for anew when it has become old."""
        if self._time is None or time.monotonic() - self._time.seen_s > _STAMP_AGE_S_MAX:
            self._time = BrokerTime(self.now_ms(), time.monotonic())
        return self._time

    def starts(self, topics: Sequence[str]) -> Position:
        """The first offset that each Kafka partition still has."""
        return self._ask(self._reader.starts(topics))

    def due_ends(self, due_by_ms: Mapping[str, int]) -> Position:
        """Where each topic's records stop being older than the given time."""
        return self._ask(_due_ends(self._reader, due_by_ms))

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[list[RecordIn]]:
        """The records from `start` up to, but not including, `end`."""
        due = self._ask(_range(self._reader, {KafkaPartition(topic, partition): (start, end)}))
        while due.unread:
            if records := self._ask(anext(due)):
                yield records

    @cached_property
    def _reader(self) -> KafkaReader:
        # An offset that is gone is a loss: fail and say so.
        return self._ask(start_reader(self._bootstrap_servers, auto_offset_reset="none"))

    def _ask(self, question: Coroutine[None, None, T]) -> T:
        with kafka_errors(self._bootstrap_servers):
            return self._runner.run(question)

    async def _stamp(self) -> int:
        """The earliest of the times that the brokers stamp on a record each.

        Kafka has no question for the time, but its answer to a record says when it was taken. A
        waiting event was stamped by the leader it had then; whichever broker that was, by its
        clock it is at least as late as by the slowest.
        """
        producer = await self._writing()
        numbers = await producer.partitions_for(PROBE)
        leader_of = producer.client.cluster.leader_for_partition
        # One record for each broker that leads any.
        asked = {leader_of(KafkaPartition(PROBE, number)): number for number in numbers}
        reports = [await producer.send(PROBE, b"", partition=n) for n in asked.values()]
        done, _ = await asyncio.wait(reports, timeout=_STAMP_TIMEOUT_S)
        stamps = [report.result().timestamp for report in done if report.exception() is None]
        if not stamps:
            raise KafkaUnavailableError(
                f"No broker at {self._bootstrap_servers} has stamped a record within"
                f" {_STAMP_TIMEOUT_S:g} s."
            )
        skew_ms = _SKEW_MS if len(producer.client.cluster.brokers()) > 1 else 0
        earliest: int = min(stamps)
        return earliest - skew_ms

    async def _writing(self) -> KafkaProducer:
        if self._producer is None:
            # The stamp is the leader's own: no replica need have the record.
            producer = new_producer(self._bootstrap_servers, acks=1)
            self._producer = await start_client(producer, self._bootstrap_servers)
        return self._producer


async def _range(reader: KafkaReader, ranges: Ranges) -> RangeRead:
    return reader.range(ranges, records_max=_RECORDS_MAX)


async def _due_ends(reader: KafkaReader, due_by_ms: Mapping[str, int]) -> Position:
    # The ends come first: a record that arrives between the two questions is not due, and
    # would be taken for due if "no record that young" were answered by a later end.
    ends = await reader.ends(due_by_ms)
    times_ms = {partition: due_by_ms[partition.topic] + 1 for partition in ends}
    return {**ends, **await reader.offsets_at(times_ms)}


# The broker of the process, made when it is first needed.
broker = cache(Broker)
