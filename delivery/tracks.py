"""Chooses which of a destination's events leave together next.

A destination refuses a batch because of at least one event in it, usually only one. A part of the
batch is sent again: if the part is taken, the fault is in the rest; if the part is refused, nothing
is known about the rest (Hwang's generalized binary splitting). All this only chooses the events to
send: an event counts as refused only after it was refused alone.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from delivery.batches import Batch, TriedBatch, fits
from delivery.courier import RequestResult
from shared.config.destination import Destination


@dataclass(slots=True)
class DueBatch:
    """A batch that waits for its next attempt."""

    batch: Batch
    local_attempt_count: int = 0
    # The attempt to repeat in place, and the earliest time for that (time.monotonic).
    failed: RequestResult | None = None
    ready_at_s: float = 0.0
    # Whether it is part of a batch that was refused, or would have been.
    is_half: bool = False

    @property
    def is_suspect(self) -> bool:
        return self.batch.is_suspect

    def may_join(self) -> bool:
        """Say whether it may leave with other batches that are not suspect."""
        return self.failed is None and not self.is_suspect


def halves(batch: Batch) -> list[DueBatch]:
    return [DueBatch(half, is_half=True) for half in batch.split_at(batch.event_count // 2)]


def suspect(batch: Batch) -> DueBatch:
    """Mark a batch as suspect: at least one of its events is refused."""
    return DueBatch(replace(batch, is_suspect=True), is_half=True)


@dataclass(slots=True, eq=False)
class OpenTrack:
    """Batches that leave one after another: a destination's, or those of some of its keys."""

    waiting: deque[DueBatch]
    # Whether each leaves only after the one before has ended (an order other than "none").
    is_serial: bool
    running_count: int = 0

    @classmethod
    def of(cls, batches: Iterable[Batch], *, is_serial: bool) -> "OpenTrack":
        waiting = deque(DueBatch(batch, is_half=batch.is_suspect) for batch in batches)
        return cls(waiting, is_serial)

    def take(
        self, count_max: int, destination: Destination, *, is_probe: bool = False
    ) -> tuple[DueBatch, Batch | None]:
        """Return the next request, of at most `count_max` events, and a suspect batch's rest."""
        due = self.waiting.popleft()
        count = due.batch.event_count
        # One refused event among many is to be expected, and says nothing about the others.
        if due.is_suspect and 1 < count <= 2 * count_max:
            first, rest = due.batch.split_at(min(count_max, count // 2))
            return DueBatch(first, is_half=True), rest
        if count > count_max:
            first, others = due.batch.split_at(count_max)
            is_half = due.is_half or not is_probe
            self.waiting.appendleft(replace(due, batch=others, is_half=is_half))
            return replace(due, batch=first, is_half=is_half), None
        if count_max < destination.request_count_max and due.may_join():
            due = self._joined(due, count_max, destination)
        return due, None

    def put_back(self, due: Sequence[DueBatch]) -> None:
        """Put batches back after an attempt: first in line, in order; those that wait go last."""
        if self.is_serial or not any(each.failed for each in due):
            self.waiting.extendleft(reversed(due))
        else:
            self.waiting.extend(due)

    def _joined(self, due: DueBatch, count_max: int, destination: Destination) -> DueBatch:
        """Join a batch with those after it, up to `count_max` events."""
        while (room := count_max - due.batch.event_count) and self.waiting:
            more = self.waiting[0]
            if not more.may_join():
                break
            some: Batch = more.batch
            others: Batch | None = None
            if some.event_count > room:
                some, others = some.split_at(room)
            both = TriedBatch([*due.batch.tried(), *some.tried()])
            if not fits(both, destination):
                break
            self.waiting.popleft()
            if others is not None:
                self.waiting.appendleft(replace(more, batch=others))
            due = DueBatch(both, is_half=True)
        return due
