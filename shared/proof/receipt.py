"""A receipt: one line per HTTP batch, enough to prove the outcome of each event.

A receipt names its events by the intervals of their log coordinates, so that the union of all
receipts, laid over the stream topic, shows which events are delivered, waiting, dead, or
unaccounted. A record of the receipts' topic holds a sheet of many receipts, because each record has
a cost of its own in Spark and Kafka.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import msgspec
from msgspec import Struct

from shared.event.envelope import Envelope
from shared.event.record import KafkaPartition, Origin
from shared.event.times import minute_of
from shared.proof.last_answer import FailedTry
from shared.proof.log_buckets import LogBuckets

# Some 150 receipts of 800 bytes, enough to make the cost of the record negligible. A reader that
# wants one receipt has its whole sheet in memory.
SHEET_BYTES_MAX = 131_072


# Stands for the delivered events from which a pipeline has made results.
PASSED = "passed"


class ReceiptOutcome(Enum):
    DELIVERED = "delivered"
    WAITING = "waiting"
    DEAD = "dead"


class CoveredOffsets(NamedTuple):
    """Consecutive offsets [first, end) of one Kafka partition of a stream topic."""

    topic: str
    partition: int
    first: int
    end: int


class Receipt(Struct, frozen=True, omit_defaults=True):
    """The outcome of the events of one HTTP batch. Members with default values are not written."""

    destination_id: str
    outcome: ReceiptOutcome
    reason: str
    batch_id: str
    event_count: int
    covered: tuple[CoveredOffsets, ...]
    # Events per minute of their own time: {minute start in ms: count}.
    minutes: dict[int, int]
    # The earliest times among the events, from which lag follows.
    event_time_ms_min: int
    accepted_at_ms_min: int
    attempt: int
    started_at_ms: int
    ended_at_ms: int
    # Whether the retrier wrote it; otherwise delivery did.
    is_retry: bool = False
    # How often its events had been sent again from dead letters: receipts written after that
    # outrank earlier ones.
    redrive_count: int = 0
    # The first record that its task read. Once the lane has passed it, the records of the receipt's
    # waiting and dead events are surely stored (`unconfirmed.py`). If None, they already are.
    read_at: Origin | None = None
    # How late each event was, as `LogBuckets.to_list` writes it, in three lists: from the event's
    # own time to the end, from its acceptance to the end, and from its acceptance to the start.
    out_from_event: list[int] = []
    out_from_accepted: list[int] = []
    in_from_accepted: list[int] = []
    # For a pipeline: how many events it rightly did not pass on, by their outcomes (filtered, and
    # so on) and by minute, as the audit has them.
    not_passed: dict[str, dict[int, int]] = {}
    # The results of this round's failed requests, in order; usually none.
    failed_tries: tuple[FailedTry, ...] = ()

    def to_json(self) -> bytes:
        return _ENCODER.encode(self)

    def beside(self, origin: Origin) -> Iterator[tuple[int, int]]:
        """The offsets [first, end) that were sent in one batch with an event, including its own."""
        if self.batch_id:
            for topic, partition, first, end in self.covered:
                if (topic, partition) == origin.log and first <= origin.offset < end:
                    yield first, end


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Receipt)


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a receipt about its events: their places in the log, and their times."""

    covered: tuple[CoveredOffsets, ...]
    event_times_ms: Sequence[int]
    accepted_ats_ms: Sequence[int]
    # Whether they came out of a retry tier.
    is_retry: bool = False


def facts_of(envelopes: Sequence[Envelope]) -> Facts:
    """The facts of events that were opened one by one."""
    return Facts(
        covered=cover(envelope.origin for envelope in envelopes),
        event_times_ms=[envelope.event_time_ms for envelope in envelopes],
        accepted_ats_ms=[envelope.accepted_at_ms for envelope in envelopes],
        is_retry=envelopes[0].history is not None,
    )


def make_receipt(
    facts: Facts,
    *,
    destination_id: str,
    outcome: ReceiptOutcome,
    reason: str,
    batch_id: str,
    attempt: int,
    started_at_ms: int,
    ended_at_ms: int,
    redrive_count: int = 0,
    read_at: Origin | None = None,
    failed_tries: tuple[FailedTry, ...] = (),
) -> Receipt:
    """Make the receipt of the outcome of one or more events."""
    # Many events share their times: do costly work once for each time.
    event_times = Counter(facts.event_times_ms)
    accepted_ats = Counter(facts.accepted_ats_ms)
    return Receipt(
        destination_id=destination_id,
        outcome=outcome,
        reason=reason,
        batch_id=batch_id,
        event_count=len(facts.event_times_ms),
        covered=facts.covered,
        minutes=_minutes(event_times),
        event_time_ms_min=min(event_times),
        accepted_at_ms_min=min(accepted_ats),
        attempt=attempt,
        started_at_ms=started_at_ms,
        ended_at_ms=ended_at_ms,
        is_retry=facts.is_retry,
        redrive_count=redrive_count,
        read_at=read_at,
        out_from_event=LogBuckets.of_counts(event_times, until_ms=ended_at_ms).to_list(),
        out_from_accepted=LogBuckets.of_counts(accepted_ats, until_ms=ended_at_ms).to_list(),
        in_from_accepted=LogBuckets.of_counts(accepted_ats, until_ms=started_at_ms).to_list(),
        failed_tries=failed_tries,
    )


def receipt_of_none(
    destination_id: str, covered: Iterable[CoveredOffsets], *, reason: str, at_ms: int
) -> Receipt:
    """Make a receipt without events: no outcome is owed for these offsets."""
    return Receipt(
        destination_id=destination_id,
        outcome=ReceiptOutcome.DELIVERED,
        reason=reason,
        batch_id="",
        event_count=0,
        covered=tuple(covered),
        minutes={},
        event_time_ms_min=at_ms,
        accepted_at_ms_min=at_ms,
        attempt=1,
        started_at_ms=at_ms,
        ended_at_ms=at_ms,
    )


def sheets_of(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Pack receipts into records, in the given order."""
    sheet: list[bytes] = []
    sheet_bytes = 0
    for line in lines:
        if sheet and sheet_bytes + len(line) > SHEET_BYTES_MAX:
            yield b"\n".join(sheet)
            sheet, sheet_bytes = [], 0
        sheet.append(line)
        sheet_bytes += len(line) + 1
    if sheet:
        yield b"\n".join(sheet)


def receipts_of(sheet: bytes) -> list[Receipt | None]:
    """The receipts of a record, with None for any that cannot be read; the others are not lost."""
    try:
        return list(_DECODER.decode_lines(sheet))
    except ValueError:
        return [_readable(line) for line in sheet.split(b"\n")]


def _readable(line: bytes) -> Receipt | None:
    try:
        return _DECODER.decode(line)
    except ValueError:
        return None


def cover(origins: Iterable[tuple[str, int, int]]) -> tuple[CoveredOffsets, ...]:
    """Fold coordinates (topic, partition, offset) into as few intervals as possible."""
    covered: list[CoveredOffsets] = []
    topic, partition, first, end = "", 0, 0, 0
    for origin in sorted(origins):
        if origin[:2] != (topic, partition) or origin[2] > end:
            if end > first:
                covered.append(CoveredOffsets(topic, partition, first, end))
            topic, partition, first = origin
        end = origin[2] + 1
    if end > first:
        covered.append(CoveredOffsets(topic, partition, first, end))
    return tuple(covered)


def without_event(
    where: KafkaPartition, offsets: Iterable[int], span: tuple[int, int]
) -> Iterator[CoveredOffsets]:
    """Yield the parts of a span [first, end) without any of these ascending offsets."""
    at, end = span
    for offset in offsets:
        if offset >= end:
            break
        if offset > at:
            yield CoveredOffsets(*where, at, offset)
        at = offset + 1
    if end > at:
        yield CoveredOffsets(*where, at, end)


def _minutes(times_ms: Mapping[int, int]) -> dict[int, int]:
    """Events per minute, from the count at each time."""
    first = minute_of(min(times_ms))
    if first == minute_of(max(times_ms)):
        return {first: sum(times_ms.values())}
    minutes: dict[int, int] = {}
    for time_ms, count in times_ms.items():
        minute = minute_of(time_ms)
        minutes[minute] = minutes.get(minute, 0) + count
    return minutes
