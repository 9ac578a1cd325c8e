"""Looks after those in real time: what their jobs are told while they follow, and when they end."""

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
    # By the job's number: how its destinations were to be sent to when it began.
    _begun: dict[int, Mapping[str, object]] = field(default_factory=dict)
    _telling: set[asyncio.Task[None]] = field(default_factory=set)

    def began(self, job: Job) -> None:
        if number := number_of(job.units):
            names = {strand.destination for unit in job.units for strand in unit.strands}
            self._begun[number] = {name: self._orders_of(name) for name in names}

    def ended(self, job: Job) -> None:
        self._begun.pop(number_of(job.units), None)

    def prolong(self, *, now_s: float, ours_until_ms: int) -> None:
        """Let those go on that would be begun anew just as they are."""
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
        """Whether it is still all under way: what was given up and came back is planned anew."""
        return all(
            self.book.is_with(Strand(name, unit.where), span)
            for unit in job.units
            for name, span in unit.spans.items()
        )

    async def _tell(self, words: Iterable[RecordOut]) -> None:
        # Who does not hear of it ends, and is begun anew.
        with suppress(*AWAY):
            await self.outlet.store(list(words))

    def _orders_of(self, name: str) -> object:
        """What a task must know by its orders. If others send there, too, what they know counts."""
        lane, known = self.lane_of(name), self.states.flows.get(name)
        # An executor hears of others by its orders alone, and takes who says nothing for gone.
        heard_ms = known.published_at_ms if known and known.flow.neighbours.active else 0
        return lane and (lane.destination, lane.kind, known and known.store, heard_ms)

    async def close_marks(self, reports: Iterable[StrandEnd], spans: Mapping[Strand, Span]) -> None:
        """What is not to follow its log any more has sent no more than it says."""
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
                # As its worker has written it.
                marks[strand] = Mark(at, OPEN, life=span.life)
                mark = Mark(at, at, life=span.life)
            else:
                # It was free before, and may have gone on since.
                mark = self.book.mark(strand)
            lane = self.lane_of(strand.destination)
            is_following = lane is not None and lane.kind is JobKind.FOLLOWING
            if not is_following and mark.until < OPEN <= marks[strand].until:
                closed[strand] = mark
        # Else what comes next is sent as what may be a repeat, if this process ends before.
        with suppress(*AWAY):
            await self.outlet.store([mark_record(*each) for each in closed.items()])
            marks.update(closed)
