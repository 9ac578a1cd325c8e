"""Describes the outcomes of a pipeline's events in a job, and makes receipts of them. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from msgspec import structs

from pipelines.lanes.portions import PipelinePortion
from shared.event.record import KafkaPartition, Position, RecordOut
from shared.event.topics import RECEIPTS
from shared.proof.intervals import Offsets
from shared.proof.log_buckets import LogBuckets
from shared.proof.receipt import (
    PASSED,
    CoveredOffsets,
    Receipt,
    ReceiptOutcome,
    receipt_of_none,
    sheets_of,
)

# The maximum number of spans of one receipt, so that a record has room for them: 50 bytes each.
_COVERED_MAX = 2_000
# The reason: Kafka had deleted the events that were to be read next.
_LOST = "lost"


@dataclass(frozen=True, slots=True)
class Results:
    """The outcomes of the events of a portion."""

    passed: int = 0
    # Events that went nowhere: by outcome, their count in each minute.
    not_passed: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    # Keyed by the dead letters' reason, and the events' Kafka partition.
    dead: Mapping[tuple[str, KafkaPartition], Offsets] = field(default_factory=dict)
    # The earliest times among them; 0 if there are none.
    event_time_ms_min: int = 0
    accepted_at_ms_min: int = 0
    # Approximate event times, and times of acceptance, each with a count.
    event_times: Mapping[int, int] = field(default_factory=dict)
    accepted_ats: Mapping[int, int] = field(default_factory=dict)
    # Additional records of a sink.
    records: Sequence[RecordOut] = ()
    # The broker's time up to which each Kafka partition was read.
    stored_ms: Position = field(default_factory=dict)
    # Results to store with the position: Spark's partial results of windows, else rows.
    found: Sequence[Mapping[str, Any]] = ()

    @property
    def counts(self) -> dict[str, int]:
        """How many events had each outcome."""
        others = {what: sum(minutes.values()) for what, minutes in self.not_passed.items()}
        dead = sum(map(len, self.dead.values()))
        return {PASSED: self.passed, **others, ReceiptOutcome.DEAD.value: dead}


def receipts(
    portion: PipelinePortion, made: Results, *, batch_id: str, started_at_ms: int, ended_at_ms: int
) -> list[RecordOut]:
    """Make sheets of receipts. All events but dead ones count as delivered, even filtered ones."""

    def lines() -> Iterator[bytes]:
        # Only one receipt carries the counts of all events.
        is_told = False
        for outcome, reason, spans in _told(portion, made):
            covered = (CoveredOffsets(*where, *span) for where, span in spans)
            while some := tuple(islice(covered, _COVERED_MAX)):
                receipt = Receipt(
                    destination_id=portion.lane_id,
                    outcome=outcome,
                    reason=reason,
                    batch_id=batch_id,
                    event_count=sum(each.end - each.first for each in some),
                    covered=some,
                    minutes={},
                    event_time_ms_min=made.event_time_ms_min,
                    accepted_at_ms_min=made.accepted_at_ms_min,
                    attempt=1,
                    started_at_ms=started_at_ms,
                    ended_at_ms=ended_at_ms,
                )
                if outcome is ReceiptOutcome.DELIVERED and not is_told:
                    is_told, receipt = True, _with_counts(receipt, made)
                yield receipt.to_json()

    key = portion.lane_id.encode()
    return [RecordOut(RECEIPTS, key, sheet) for sheet in sheets_of(lines())]


def owed_from(lane_id: str, position: Position, *, now_ms: int) -> list[RecordOut]:
    """Return receipts without events: they say that the lane owes outcomes from this position on.

    Without them, a lane with no receipt yet for a Kafka partition would owe its whole log.
    """
    covered = (CoveredOffsets(*where, at, at) for where, at in position.items())
    receipt = receipt_of_none(lane_id, covered, reason=_LOST, at_ms=now_ms)
    return [
        RecordOut(RECEIPTS, lane_id.encode(), sheet) for sheet in sheets_of([receipt.to_json()])
    ]


def _with_counts(receipt: Receipt, made: Results) -> Receipt:
    """Add the counts of a job's events: their ages, and those that were not passed on."""

    def ages(times: Mapping[int, int], until_ms: int) -> list[int]:
        return LogBuckets.of_counts(times, until_ms=until_ms).to_list()

    return structs.replace(
        receipt,
        out_from_event=ages(made.event_times, receipt.ended_at_ms),
        out_from_accepted=ages(made.accepted_ats, receipt.ended_at_ms),
        in_from_accepted=ages(made.accepted_ats, receipt.started_at_ms),
        not_passed={what: dict(minutes) for what, minutes in made.not_passed.items() if minutes},
    )


_Spans = Iterable[tuple[KafkaPartition, tuple[int, int]]]


def _told(portion: PipelinePortion, made: Results) -> Iterator[tuple[ReceiptOutcome, str, _Spans]]:
    yield ReceiptOutcome.DELIVERED, "", _not_dead(portion, made)
    for (reason, where), offsets in made.dead.items():
        yield ReceiptOutcome.DEAD, reason, ((where, span) for span in offsets)


def _not_dead(portion: PipelinePortion, made: Results) -> _Spans:
    for where, span in portion.ranges.items():
        dead = Offsets().union(*(them for (_, at), them in made.dead.items() if at == where))
        for alive in Offsets.of([span]).minus(dead):
            yield where, alive
