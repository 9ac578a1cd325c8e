"""Looks after real-time jobs: prolongs them while they follow, and closes their marks."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from delivery.lanes.book import Book
from delivery.lanes.following.terms import Term, number_of, term_record
from delivery.lanes.marks import OPEN, Mark, mark_record
from delivery.lanes.marks_log import MarksLog
from delivery.lanes.outlet import Outlet
from delivery.lanes.turns import Turns
from delivery.lanes.units import Job, JobKind, Lane, Span, Strand, StrandEnd
from shared.event.record import RecordOut
from shared.runtime.kafka.clients import AWAY
from shared.runtime.kafka.state_topic import StateFeed


@dataclass
class Following:
    """The jobs of one process that follow their logs."""

    book: Book
    turns: Turns
    marks: MarksLog
    outlet: Outlet
    lane_of: Callable[[str], Lane | None]
    states: StateFeed
    # The orders for the destinations of each job when it began, by job number.
    _begun: dict[int, Mapping[str, object]] = field(default_factory=dict)
    _telling: set[asyncio.Task[None]] = field(default_factory=set)

    def began(self, job: Job) -> None:
        if number := number_of(job.units):
            names = {strand.destination for unit in job.units for strand in unit.strands}
            self._begun[number] = {name: self._orders_of(name) for name in names}

    def ended(self, job: Job) -> None:
        self._begun.pop(number_of(job.units), None)

    def prolong(self, *, now_s: float, ours_until_ms: int) -> None:
        """Prolong the jobs that would start again unchanged."""
        words: list[RecordOut] = []
        for turn in self.turns.due(now_s=now_s):
            number = number_of(turn.job.units)
            begun = self._begun.get(number, {})
            turn.is_last = any(self._orders_of(name) != was for name, was in begun.items())
            if begun and not turn.is_last and self._has_all(turn.job):
                follow_s = self.turns.prolong(turn)
                words.append(term_record(number, Term(follow_s, ours_until_ms)))
        if words:
            telling = asyncio.create_task(self._tell(words))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)

    def _has_all(self, job: Job) -> bool:
        """Say whether the whole job is under way: strands that left and came back are replanned."""
        return all(
            self.book.is_with(Strand(name, unit.where), span)
            for unit in job.units
            for name, span in unit.spans.items()
        )

    async def _tell(self, words: Iterable[RecordOut]) -> None:
        # A job that does not get its term ends, and starts again.
        with suppress(*AWAY):
            await self.outlet.store(list(words))

    def _orders_of(self, name: str) -> object:
        """Return what a task's orders depend on, with news of other machines that send as well."""
        lane, known = self.lane_of(name), self.states.flows.get(name)
        # An executor learns of other machines only from its orders, and assumes silent ones gone.
        heard_ms = known.published_at_ms if known and known.flow.neighbours.active else 0
        return lane and (lane.destination, lane.kind, known and known.store, heard_ms)

    async def close_marks(self, reports: Iterable[StrandEnd], spans: Mapping[Strand, Span]) -> None:
        """Close the marks of strands that stop following: they sent no more than they report."""
        marks = self.marks.marks
        closed: dict[Strand, Mark] = {}
        for report in reports:
            strand, at = report.strand, report.at
            span = spans[strand]
            if (
                report.error
                or span.end is not None
                or strand not in marks
                or strand not in self.book
            ):
                continue
            if self.book.is_with(strand, span):
                # The mark that the worker has written.
                marks[strand] = Mark(at, OPEN, life=span.life)
                mark = Mark(at, at, life=span.life)
            else:
                # The strand became free earlier, and may have moved on since.
                mark = self.book.mark(strand)
            lane = self.lane_of(strand.destination)
            is_following = lane is not None and lane.kind is JobKind.FOLLOWING
            if not is_following and mark.until < OPEN <= marks[strand].until:
                closed[strand] = mark
        # If this fails and the process ends, the next events are sent as possible repeats.
        with suppress(*AWAY):
            await self.outlet.store([mark_record(*each) for each in closed.items()])
            marks.update(closed)
