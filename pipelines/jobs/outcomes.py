"""Says what a job has made of the events of a pipeline, and writes it down as receipts. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from pipelines.book import PipelineShare
from shared.event.record import KafkaPartition, RecordOut
from shared.event.topics import RECEIPTS
from shared.proof.intervals import Offsets
from shared.proof.receipt import Covered, Receipt, ReceiptOutcome, sheets_of

# Of one receipt, so that a record of them has room for it: 50 bytes each.
_COVERED_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Made:
    """What became of the events of a share."""

    passed: int = 0
    filtered: int = 0
    # By why they rest, and where they were.
    dead: Mapping[tuple[str, KafkaPartition], Offsets] = field(default_factory=dict)
    # The earliest times among them; 0 of none.
    event_time_ms_min: int = 0
    accepted_at_ms_min: int = 0

    @property
    def dead_count(self) -> int:
        return sum(map(len, self.dead.values()))


def receipts(
    share: PipelineShare, made: Made, *, batch_id: str, started_at_ms: int, ended_at_ms: int
) -> list[RecordOut]:
    """As sheets. What is not dead is delivered, passed on or not, as by one that filters."""

    def lines() -> Iterator[bytes]:
        for outcome, reason, spans in _told(share, made):
            covered = (Covered(*where, *span) for where, span in spans)
            while some := tuple(islice(covered, _COVERED_MAX)):
                yield Receipt(
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
                ).to_json()

    key = share.lane_id.encode()
    return [RecordOut(RECEIPTS, key, sheet) for sheet in sheets_of(lines())]


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
