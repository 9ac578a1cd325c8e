"""Says what a job has made of the events of a pipeline, and writes it down as receipts. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from msgspec import structs

from pipelines.lanes.shares import PipelineShare
from shared.event.record import KafkaPartition, Position, RecordOut
from shared.event.topics import RECEIPTS
from shared.proof.intervals import Offsets
from shared.proof.log_buckets import LogBuckets
from shared.proof.receipt import (
    PASSED,
    Covered,
    Receipt,
    ReceiptOutcome,
    receipt_of_none,
    sheets_of,
)

# Of one receipt, so that a record of them has room for it: 50 bytes each.
_COVERED_MAX = 2_000
# Kafka had deleted what was to be read next.
_LOST = "lost"


@dataclass(frozen=True, slots=True)
class Made:
    """What became of the events of a share."""

    passed: int = 0
    # Of what went nowhere, by outcome, how many events of each minute.
    not_passed: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    # By why they rest, and where they were.
    dead: Mapping[tuple[str, KafkaPartition], Offsets] = field(default_factory=dict)
    # The earliest times among them; 0 of none.
    event_time_ms_min: int = 0
    accepted_at_ms_min: int = 0
    # About when they happened, and came to us: so many at such a time.
    event_times: Mapping[int, int] = field(default_factory=dict)
    accepted_ats: Mapping[int, int] = field(default_factory=dict)
    # What a sink has to tell besides.
    records: Sequence[RecordOut] = ()
    # Up to which time of the broker's each Kafka partition was read.
    stored_ms: Position = field(default_factory=dict)
    # What is to be stored with the position: of windows what Spark has computed, of others rows.
    found: Sequence[Mapping[str, Any]] = ()

    @property
    def counts(self) -> dict[str, int]:
        """How many events had which outcome."""
        others = {what: sum(minutes.values()) for what, minutes in self.not_passed.items()}
        dead = sum(map(len, self.dead.values()))
        return {PASSED: self.passed, **others, ReceiptOutcome.DEAD.value: dead}


def receipts(
    share: PipelineShare, made: Made, *, batch_id: str, started_at_ms: int, ended_at_ms: int
) -> list[RecordOut]:
    """As sheets. What is not dead is delivered, passed on or not, as by one that filters."""

    def lines() -> Iterator[bytes]:
        # What is counted of all of them is told once.
        is_told = False
        for outcome, reason, spans in _told(share, made):
            covered = (Covered(*where, *span) for where, span in spans)
            while some := tuple(islice(covered, _COVERED_MAX)):
                receipt = Receipt(
                    destination_id=share.lane_id,
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

    key = share.lane_id.encode()
    return [RecordOut(RECEIPTS, key, sheet) for sheet in sheets_of(lines())]


def owed_from(lane_id: str, position: Position, *, now_ms: int) -> list[RecordOut]:
    """A receipt of no event: from there on a lane owes an outcome, whatever the log still holds.

    Without it, one that has told nothing yet of a Kafka partition would owe what is left there.
    """
    covered = (Covered(*where, at, at) for where, at in position.items())
    receipt = receipt_of_none(lane_id, covered, reason=_LOST, at_ms=now_ms)
    return [RecordOut(RECEIPTS, lane_id.encode(), it) for it in sheets_of([receipt.to_json()])]


def _with_counts(receipt: Receipt, made: Made) -> Receipt:
    """With what is counted of the events of a job: how late they are, what was not passed on."""

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


def _told(share: PipelineShare, made: Made) -> Iterator[tuple[ReceiptOutcome, str, _Spans]]:
    yield ReceiptOutcome.DELIVERED, "", _not_dead(share, made)
    for (reason, where), offsets in made.dead.items():
        yield ReceiptOutcome.DEAD, reason, ((where, span) for span in offsets)


def _not_dead(share: PipelineShare, made: Made) -> _Spans:
    for where, span in share.ranges.items():
        dead = Offsets().union(*(them for (_, at), them in made.dead.items() if at == where))
        for alive in Offsets.of([span]).minus(dead):
            yield where, alive
