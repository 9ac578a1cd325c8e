"""The history of events accepted by streams and taken by destinations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import NamedTuple, Protocol

from observe.series.rings import Rings, number_at
from observe.series.steps import (
    RANGES,
    STEP_MS,
    DestinationStep,
    EndedStep,
    Range,
    Step,
    StreamStep,
)
from shared.proof.log_buckets import LogBuckets

# 8.7 KB each; one Hifi may have this many.
_STREAMS_MAX = 20_000
# 40 KB each, pipelines included.
_DESTINATIONS_MAX = 10_000
# The number of steps after which the receipts of a step are complete.
SETTLES = 2
# The number of steps by which a step may be written late.
_LATE = 2
# Pasts to keep for the charts of one step: two lists of 200, some 30 KB each.
_SHOWN_MAX = 400


class Moment(NamedTuple):
    """One step of a shown range; figures are None if no observer was running."""

    at_ms: int
    accepted: StreamStep | None
    taken: DestinationStep | None


@dataclass(frozen=True, slots=True)
class Past:
    """A range of several destinations together, and of the streams that they read."""

    shown: Range
    moments: tuple[Moment, ...]

    @property
    def is_empty(self) -> bool:
        return not any(each.accepted or each.taken for each in self.moments)


class PastSource(Protocol):
    """The source of the past for pages."""

    def past(
        self, streams: Sequence[str], takers: Sequence[str], level: int, *, now_ms: int
    ) -> Past: ...


class Series:
    """The history in files, which the observe process owns."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rings: tuple[Rings[StreamStep], Rings[DestinationStep]] | None = None
        self._shown: dict[tuple[object, ...], Past] = {}

    def open(self) -> None:
        """Open the files, before the first step is entered; the caller may retry after an error."""
        streams = Rings(self._folder / "streams", StreamStep, names_max=_STREAMS_MAX)
        try:
            takers = Rings(
                self._folder / "destinations", DestinationStep, names_max=_DESTINATIONS_MAX
            )
        except OSError:
            streams.close()
            raise
        self._rings = streams, takers

    def close(self) -> None:
        for rings in self._rings or ():
            rings.close()
        self._rings = None

    @property
    def is_open(self) -> bool:
        return self._rings is not None

    @property
    def newest(self) -> int:
        return self._rings[1].newest if self._rings else 0

    def end_step(self, number: int, ended: EndedStep) -> bool:
        """Enter a finished step; return False if there was no room for all of it."""
        assert self._rings is not None
        streams, takers = self._rings
        covered_s, none = STEP_MS / 1000, LogBuckets()
        accepted = {
            name: (StreamStep(covered_s, count), none) for name, count in ended.accepted.items()
        }
        has_room = streams.end_step(number, accepted)
        return takers.end_step(number, ended.taken) and has_room

    def past(
        self, streams: Sequence[str], takers: Sequence[str], level: int, *, now_ms: int
    ) -> Past:
        """Return the past up to the newest known step; for several, sums and the highest lag."""
        fine = now_ms // STEP_MS - SETTLES
        if 0 <= fine - self.newest <= _LATE:
            fine = self.newest
        key = (tuple(streams), tuple(takers), level, fine, self.newest)
        if key not in self._shown:
            while len(self._shown) >= _SHOWN_MAX:
                del self._shown[next(iter(self._shown))]
            self._shown[key] = self._past(streams, takers, level, fine)
        return self._shown[key]

    def _past(self, streams: Sequence[str], takers: Sequence[str], level: int, fine: int) -> Past:
        shown = RANGES[level]
        came: list[list[StreamStep | None]] = []
        went: list[list[DestinationStep | None]] = []
        if self._rings is not None:
            came = [self._rings[0].read(name, level, fine) for name in streams]
            went = [self._rings[1].read(name, level, fine) for name in takers]
        accepted, taken = _added(came, shown), _added(went, shown)
        begin = number_at(level, fine) - shown.steps + 1
        moments = tuple(
            Moment((begin + at) * shown.step_ms, accepted[at], taken[at])
            for at in range(shown.steps)
        )
        return Past(shown, moments)


def _added(columns: Sequence[Sequence[Step | None]], shown: Range) -> list[Step | None]:
    """Join the columns, step by step."""
    beside: Callable[[Step, Step], Step] = lambda one, other: one.beside(other)  # noqa: E731
    steps: list[Step | None] = []
    for at in range(shown.steps):
        there = [step for column in columns if (step := column[at]) is not None]
        steps.append(reduce(beside, there) if there else None)
    return steps
