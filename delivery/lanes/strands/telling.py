"""Writes to Kafka: strands' positions, how far they may go, and the ranges that are sent again."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from delivery.lanes.marks import Mark, mark_record
from delivery.lanes.strands.repeats import RepeatedRanges, repeats_record, unsaid
from delivery.lanes.units import Span, Strand
from shared.event.record import RecordOut
from shared.runtime.clock import now_ms


@dataclass(frozen=True, slots=True)
class Teller:
    """Writes the marks of one process before anything is sent."""

    store: Callable[[Sequence[RecordOut]], Awaitable[None]]
    # Returns a strand's mark if the strand is ours.
    mark: Callable[[Strand], Mark | None]
    # The records that the log has already.
    marks: dict[Strand, Mark]
    repeats: dict[Strand, RepeatedRanges]

    async def begin(self, spans: Mapping[Strand, Span]) -> None:
        """Write the records of spans before they are sent: possible repeats first."""
        again = unsaid(
            self.repeats,
            {
                each: (span.begin, span.maybe_sent)
                for each, span in spans.items()
                if span.begin < span.maybe_sent
            },
        )
        await self._store(spans, [repeats_record(*each) for each in again.items()])
        at_ms = now_ms()
        self.repeats.update(
            (strand, RepeatedRanges(ranges, at_ms)) for strand, ranges in again.items()
        )

    async def tell(self, strands: Iterable[Strand]) -> None:
        """Write strands' positions and how far they may go, unless the log already has both."""
        await self._store(strands, [])

    async def _store(self, strands: Iterable[Strand], before: Sequence[RecordOut]) -> None:
        marks = {each: mark for each in strands if (mark := self.mark(each)) is not None}
        news = {each: mark for each, mark in marks.items() if self.marks.get(each) != mark}
        await self.store([*before, *(mark_record(*each) for each in news.items())])
        self.marks.update(news)
