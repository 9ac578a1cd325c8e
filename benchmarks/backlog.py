"""Writes the audit's input for a stream's minutes, as gateway and delivery would.

Log and ledger come from the gateway's own publisher and ledger, so that rows, Kafka batches and
compression are real. The receipts are for batches of 500, all of them delivered.
"""

import asyncio
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from aiokafka.errors import KafkaError

from gateway.intake.events import Event
from gateway.publish.ledger import AckLedger, Request
from gateway.publish.publisher import KafkaPublisher
from gateway.publish.report import Report
from shared.event.envelope import event_headers
from shared.event.record import KafkaPartition
from shared.event.topics import destination_id, stream_topic
from shared.proof.receipt import CoveredOffsets, Facts, ReceiptOutcome, make_receipt
from shared.retry.routing import route_receipt
from shared.runtime.kafka.clients import KafkaProducer, new_producer
from shared.runtime.kafka.lane_positions import LaneGroups

MINUTE_MS = 60_000
# The sizes of a request and of a delivered batch; the latter is a destination's default.
_REQUEST_EVENTS, _BATCH_EVENTS = 100, 500
_REQUESTS_AT_ONCE = 40
# An event arrives at most this long after its own time; its delivery takes this long.
_LATE_MS, _DELIVERED_MS = 2_000, 300
_PATIENCE_S = 60.0
# The audit reads no event's value.
_VALUE = b'{"says":"the audit never reads this"}'


@dataclass(slots=True)
class _Part:
    """Events of one Kafka partition that have no receipt yet."""

    first: int = 0
    times_ms: list[int] = field(default_factory=list)
    accepted_ats_ms: list[int] = field(default_factory=list)
    # Reports that wait for an earlier report, by their first offset.
    reports: dict[int, tuple[list[int], int]] = field(default_factory=dict)


class Backlog:
    """Writes one stream minute by minute, and its lane's positions."""

    def __init__(self, kafka: str, stream: str) -> None:
        self._kafka = kafka
        self._topic = stream_topic(stream)
        self._destination = destination_id(stream, "sink")
        self._parts: dict[int, _Part] = {}
        self._dice = random.Random(stream)  # noqa: S311 - the same rows each time

    @property
    def ends(self) -> dict[int, int]:
        """The end of each Kafka partition of the stream, once all its events have receipts."""
        return {number: part.first for number, part in self._parts.items()}

    async def write(self, minute_ms: int, count: int) -> None:
        """Write `count` events, whose own times are spread evenly over a minute."""
        publisher = KafkaPublisher(
            self._kafka, ack_deadline_s=60, queue_deadline_s=60, batch_bytes_max=524_288
        )
        await publisher.start(deadline_s=60)
        ledger = AckLedger(publisher)
        receipts = new_producer(self._kafka, acks=1, linger_ms=20, compression_type="lz4")
        await receipts.start()
        try:
            starts = range(0, count, _REQUEST_EVENTS)
            for begin in range(0, len(starts), _REQUESTS_AT_ONCE):
                together = starts[begin : begin + _REQUESTS_AT_ONCE]
                times = [minute_ms + at * MINUTE_MS // count for at in together]
                await asyncio.gather(*(self._post(publisher, ledger, at_ms) for at_ms in times))
                # At 20,000 events a second, the gateway's ledger flushes about as often.
                if together[0] % 20_000 < _REQUEST_EVENTS * _REQUESTS_AT_ONCE:
                    await ledger.flush()
                await self._tell(receipts, at_least=_BATCH_EVENTS)
            await ledger.flush()
            await self._tell(receipts, at_least=1)
            await receipts.flush()
        finally:
            await receipts.stop()
            await publisher.stop()
        await self._tell_position()

    async def _tell_position(self) -> None:
        """Commit the end as the lane's position. Kafka creates the topic at the first commit."""
        position = {KafkaPartition(self._topic, number): end for number, end in self.ends.items()}
        async with asyncio.timeout(_PATIENCE_S), LaneGroups(self._kafka) as groups:
            while True:
                try:
                    await groups.commit(self._destination, position)
                except KafkaError:
                    await asyncio.sleep(0.2)
                else:
                    return

    async def _post(self, publisher: KafkaPublisher, ledger: AckLedger, time_ms: int) -> None:
        accepted_at_ms = time_ms + self._dice.randrange(_LATE_MS)
        events = [self._event(time_ms, accepted_at_ms) for _ in range(_REQUEST_EVENTS)]
        reports = await publisher.publish(self._topic, events)
        request = Request(str(uuid.uuid4()), accepted_at_ms, len(events))
        ledger.note(self._topic, events, reports, request=request, now_ms=accepted_at_ms + 5)
        for report in reports:
            self._enter(events, report, accepted_at_ms)

    def _event(self, time_ms: int, accepted_at_ms: int) -> Event:
        event_id = str(uuid.UUID(int=self._dice.getrandbits(128)))
        headers = event_headers(
            event_id=event_id, event_time_ms=time_ms, accepted_at_ms=accepted_at_ms
        )
        made = Event.of(id=event_id, key=None, value=_VALUE, headers=headers)
        return Event(made.id, None, made.value, made.packed_headers, time_ms)

    def _enter(self, events: Sequence[Event], report: Report, accepted_at_ms: int) -> None:
        assert report.partition is not None
        assert report.first_offset is not None
        part = self._parts.setdefault(report.partition, _Part())
        times_ms = [events[at].time_ms for at in report.positions]
        part.reports[report.first_offset] = (times_ms, accepted_at_ms)
        # Reports arrive in any order; enter only those that directly follow the last entered one.
        while (entry := part.reports.pop(part.first + len(part.times_ms), None)) is not None:
            part.times_ms += entry[0]
            part.accepted_ats_ms += [entry[1]] * len(entry[0])

    async def _tell(self, receipts: KafkaProducer, *, at_least: int) -> None:
        """Write receipts for the events so far, in whole batches."""
        for number, part in self._parts.items():
            while len(part.times_ms) >= at_least:
                times_ms = part.times_ms[:_BATCH_EVENTS]
                accepted_ats_ms = part.accepted_ats_ms[:_BATCH_EVENTS]
                ended_at_ms = max(accepted_ats_ms) + _DELIVERED_MS
                end = part.first + len(times_ms)
                receipt = make_receipt(
                    Facts(
                        (CoveredOffsets(self._topic, number, part.first, end),),
                        times_ms,
                        accepted_ats_ms,
                    ),
                    destination_id=self._destination,
                    outcome=ReceiptOutcome.DELIVERED,
                    reason="status_200",
                    batch_id=f"msg_{uuid.UUID(int=self._dice.getrandbits(128)).hex}",
                    attempt=1,
                    started_at_ms=ended_at_ms - _DELIVERED_MS // 2,
                    ended_at_ms=ended_at_ms,
                )
                row = route_receipt(receipt)
                await receipts.send(row.topic, row.value, row.key, headers=list(row.headers))
                part.first = end
                part.times_ms = part.times_ms[_BATCH_EVENTS:]
                part.accepted_ats_ms = part.accepted_ats_ms[_BATCH_EVENTS:]
