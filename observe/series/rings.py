"""Adds each step to the steps of every range, and returns these for the charts."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

from observe.series.ring_file import RingFile
from observe.series.steps import RANGES, STEP_MS, Step, wider
from shared.proof.log_buckets import LogBuckets

_COARSER = range(1, len(RANGES))


@dataclass(frozen=True, slots=True)
class _Open(Generic[Step]):
    """An unfinished step of a coarser range.

    Immutable, as another thread builds pages meanwhile: each addition gives a new object.
    """

    number: int
    # The newest step of the first range that it includes.
    newest: int
    so_far: Step
    # Only lags since this process began.
    lags: LogBuckets

    @property
    def whole(self) -> Step:
        return self.so_far.with_lags(self.lags)

    def with_step(self, fine: int, step: Step, lags: LogBuckets) -> "_Open[Step]":
        both = LogBuckets(self.lags.counts.copy())
        both.merge(lags)
        return _Open(self.number, fine, self.so_far.plus(step), both)


def number_at(level: int, fine: int) -> int:
    """Return the step of a range that contains a step of the first range."""
    return fine * STEP_MS // RANGES[level].step_ms


class Rings(Generic[Step]):
    """The steps of many names; each step is written once it is over."""

    def __init__(self, path: Path, kind: type[Step], *, names_max: int) -> None:
        self._kind: type[Step] = kind
        self._file = RingFile(path, width=len(kind._fields), names_max=names_max)
        self._open: list[dict[str, _Open[Step]]] = [{} for _ in RANGES]
        for name in self._file.rings:
            self._go_on(name)

    @property
    def newest(self) -> int:
        """The newest step of the first range; 0 if there is none."""
        return self._file.newest

    def close(self) -> None:
        self._file.close()

    def _go_on(self, name: str) -> None:
        """Restore the unfinished steps of an earlier process from finer, finished ones."""
        fine = self.newest
        for level in _COARSER:
            number, finer = number_at(level, fine), number_at(level - 1, fine)
            of_finer = RANGES[level].step_ms // RANGES[level - 1].step_ms
            # Includes the finer unfinished step, with its content so far.
            count = finer - number * of_finer + 1
            read = self._file.read(name, level - 1, finer, count)
            going_on = self._open[level - 1].get(name)
            written = read[:-1] if going_on else read
            parts = [self._kind(*figures) for figures in written if figures is not None]
            if going_on:
                parts.append(going_on.so_far)
            if parts:
                so_far = parts[0]
                for part in parts[1:]:
                    so_far = so_far.plus(part)
                self._open[level][name] = _Open(number, fine, so_far, LogBuckets())

    def end_step(self, number: int, steps: Mapping[str, tuple[Step, LogBuckets]]) -> bool:
        """Enter a finished step of the first range; return False if there was no room for all."""
        gone = (name for name in tuple(self._file.rings) if name not in steps)
        there = [name for name in steps if self._file.enter(name, gone)]
        for name in there:
            step, lags = steps[name]
            self._file.write(name, 0, number, step.with_lags(lags))
            coarse = wider(lags)
            for level in _COARSER:
                self._fold(name, level, number, step, coarse)
        # Finish the steps of names that are gone.
        for level in _COARSER:
            for ended in self._open[level].keys() - steps.keys():
                self._write(ended, level, self._open[level][ended])
                del self._open[level][ended]
        self._file.end_step(number)
        return len(there) == len(steps)

    def _fold(self, name: str, level: int, fine: int, step: Step, lags: LogBuckets) -> None:
        number = number_at(level, fine)
        going_on = self._open[level].get(name)
        if going_on is None or going_on.number != number:
            if going_on is not None:
                self._write(name, level, going_on)
            self._open[level][name] = _Open(number, fine, step, lags)
        elif going_on.newest < fine:  # Otherwise it is a second try, after a partial write.
            self._open[level][name] = going_on.with_step(fine, step, lags)

    def _write(self, name: str, level: int, ended: _Open[Step]) -> None:
        if name in self._file.rings:
            self._file.write(name, level, ended.number, ended.whole)

    def read(self, name: str, level: int, fine: int) -> list[Step | None]:
        """Return a range up to a step of the first range, oldest first, with the open step."""
        newest = number_at(level, fine)
        steps = [
            None if figures is None else self._kind(*figures)
            for figures in self._file.read(name, level, newest, RANGES[level].steps)
        ]
        going_on = self._open[level].get(name)
        if going_on is not None and 0 <= (back := newest - going_on.number) < len(steps):
            steps[-1 - back] = going_on.whole
        return steps
