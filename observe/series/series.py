"""The history: events accepted by streams, and events taken by destinations."""

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

# Each 8.7 KB: as many as one Hifi may have.
_STREAMS_MAX = 20_000
# Each 40 KB; pipelines are among them.
_DESTINATIONS_MAX = 10_000
# Receipts of a step come within another.
SETTLES = 2
# How late a step may be written.
_LATE = 2
# Different pictures that are looked at within a step: two lists of 200, each some 30 KB.
_SHOWN_MAX = 400


class Moment(NamedTuple):
    """One step of a shown range; figures are None if no observer looked."""

    at_ms: int
    accepted: StreamStep | None
    taken: DestinationStep | None


@dataclass(frozen=True, slots=True)
class Past:
    """A range of several destinations together, and of the streams that they take."""

    shown: Range
    moments: tuple[Moment, ...]

    @property
    def is_empty(self) -> bool:
        return not any(each.accepted or each.taken for each in self.moments)


class PastSource(Protocol):
    """Where pages have the past from."""

    def past(
        self, streams: Sequence[str], takers: Sequence[str], level: int, *, now_ms: int
    ) -> Past: ...


class Series:
    """Owned by the process that observes, until it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rings: tuple[Rings[StreamStep], Rings[DestinationStep]] | None = None
        self._shown: dict[tuple[object, ...], Past] = {}

    def open(self) -> None:
        """Open the files before anything is entered; after an error the caller tries again."""
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
        """Enter a step that is over; False if there was no room for all of it."""
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
        """The past up to the newest known step; for several, the sums and the highest lag."""
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
    """The steps of all columns, added one by one."""
    beside: Callable[[Step, Step], Step] = lambda one, other: one.beside(other)  # noqa: E731
    steps: list[Step | None] = []
    for at in range(shown.steps):
        there = [step for column in columns if (step := column[at]) is not None]
        steps.append(reduce(beside, there) if there else None)
    return steps
