"""Tells Kafka where strands are, how far they may go, and what of it is sent again."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from delivery.lanes.marks import Mark, mark_record
from delivery.lanes.strands.repeats import Repeated, repeats_record, unsaid
from delivery.lanes.units import Span, Strand
from shared.event.record import RecordOut
from shared.runtime.clock import now_ms


@dataclass(frozen=True, slots=True)
class Teller:
    """Writes the marks of one process before anything is sent."""

    store: Callable[[Sequence[RecordOut]], Awaitable[None]]
    # Where a strand is, if it is ours.
    mark: Callable[[Strand], Mark | None]
    # What the log says already.
    marks: dict[Strand, Mark]
    repeats: dict[Strand, Repeated]

    async def begin(self, spans: Mapping[Strand, Span]) -> None:
        """Say it of what is about to be sent: what may be a repeat first."""
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
        self.repeats.update((it, Repeated(ranges, at_ms)) for it, ranges in again.items())

    async def tell(self, strands: Iterable[Strand]) -> None:
        """Say where they are, and how far they may go, if the log does not say so yet."""
        await self._store(strands, [])

    async def _store(self, strands: Iterable[Strand], before: Sequence[RecordOut]) -> None:
        found = {each: mark for each in strands if (mark := self.mark(each)) is not None}
        news = {each: mark for each, mark in found.items() if self.marks.get(each) != mark}
        await self.store([*before, *(mark_record(*each) for each in news.items())])
        self.marks.update(news)
