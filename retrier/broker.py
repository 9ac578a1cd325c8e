"""Tells the retrier the time, and which events are due.

The broker stamps records (LogAppendTime), so within a Kafka partition they become due in offset
order. The retrier also asks the broker for the time, so that no clock of ours sends one early.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from shared.event.record import KafkaPartition, Position
from shared.event.topics import PROBE
from shared.runtime.kafka.clients import KafkaProducer, kafka_errors, new_producer, start_client
from shared.runtime.kafka.leases.member import clock_s
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.setup_error import KafkaUnavailableError

# A leader answers within milliseconds; one that is away must not delay the others.
_STAMP_TIMEOUT_S = 2.0
# Brokers with synchronized clocks differ by about a millisecond; this allows for much more.
_SKEW_MS = 100
# How long to extrapolate from a stamp: a clock drifts by less than a millisecond in this time.
_STAMP_AGE_S_MAX = 10.0


@dataclass(frozen=True, slots=True)
class BrokerTime:
    """The broker's time at a stamp, advanced by a clock of ours that is never set."""

    stamp_ms: int
    seen_s: float

    def __call__(self) -> int:
        """Return at most the broker's time, as the stamp was already old when we got it."""
        return self.stamp_ms + int((clock_s() - self.seen_s) * 1000)


class Broker:
    """Asks the brokers for the time."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._producer: KafkaProducer | None = None
        self._starting = asyncio.Lock()
        self._time: BrokerTime | None = None

    async def now_ms(self) -> int:
        """Return the present time by the clock that stamps waiting events."""
        with kafka_errors(self._bootstrap_servers):
            return await self._stamp()

    async def clock(self) -> BrokerTime:
        """Return the clock of the last answer; ask again when that is old."""
        if self._time is None or clock_s() - self._time.seen_s > _STAMP_AGE_S_MAX:
            self._time = BrokerTime(await self.now_ms(), clock_s())
        return self._time

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    async def _stamp(self) -> int:
        """Return the earliest of the times that each broker stamps on a record.

        Kafka has no request for the time, but its answer to a record has the record's stamp. A
        waiting event was stamped by its leader at that time; whichever broker that was, its clock
        is now at this time or later.
        """
        producer = await self._writing()
        numbers = await producer.partitions_for(PROBE)
        leader_of = producer.client.cluster.leader_for_partition
        # One record for each broker that leads any Kafka partition of the topic.
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
        # Several tasks may ask at once.
        async with self._starting:
            if self._producer is None:
                # The stamp is the leader's own: no replica need have the record.
                producer = new_producer(self._bootstrap_servers, acks=1)
                self._producer = await start_client(producer, self._bootstrap_servers)
            return self._producer


async def due_ends(
    log: LogClient, delays_s: Mapping[KafkaPartition, float], *, now_ms: int
) -> tuple[Position, Position]:
    """Return where each Kafka partition ends, and where its records stop being old enough.

    A Kafka partition is absent from either if that is unknown now.
    """
    # Fetch the ends first. Where all records are old enough, the due events end at the log's end: a
    # later end would include a record that arrived between the two requests and is not due.
    ends = await log.ends(delays_s)
    due_by_ms = {
        where: max(0, now_ms - round(delay_s * 1000) + 1) for where, delay_s in delays_s.items()
    }
    first = await log.first_at({where: due_by_ms[where] for where in ends})
    return ends, {where: ends[where] if at is None else at for where, at in first.items()}
