"""Records the results of requests, and merges the records of several processes exactly.

Times are kept in HdrHistograms of three digits. So a merged percentile is that of all samples,
unlike a percentile of percentiles. A process reports only the results since its last report, so
nothing is counted twice.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from hdrh.histogram import HdrHistogram

# An hour in µs: longer than any deadline in these tests.
_LONGEST_US = 3_600_000_000
_DIGITS = 3
TIMES = ("due", "service", "late")
PERCENTILES = (0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 100.0)

Range = tuple[int, int]


def new_histogram() -> Any:
    return HdrHistogram(1, _LONGEST_US, _DIGITS)


class Times:
    """Durations of one kind."""

    def __init__(self) -> None:
        self._values = new_histogram()

    def note(self, seconds: float) -> None:
        # The histogram silently drops values outside its range.
        self._values.record_value(min(max(1, round(seconds * 1e6)), _LONGEST_US))

    @property
    def count(self) -> int:
        return int(self._values.get_total_count())

    def ms(self, percentile: float) -> float:
        """Return a percentile in ms; 0 if nothing was recorded."""
        return float(self._values.get_value_at_percentile(percentile)) / 1000 if self.count else 0.0

    def table(self) -> dict[str, float]:
        """Return the shown percentiles, in ms."""
        return {f"p{percentile:g}": round(self.ms(percentile), 3) for percentile in PERCENTILES}

    def encoded(self) -> str:
        """Return all values in HdrHistogram's exchange format (V2, base64)."""
        return str(self._values.encode().decode())

    def take(self) -> str:
        """Return all values as text, and reset them; empty if there are none."""
        if not self.count:
            return ""
        text = self.encoded()
        self._values = new_histogram()
        return text

    def add(self, text: str) -> None:
        if text:
            self._values.decode_and_add(text)


class Recorder:
    """The results of one process's requests, or of all processes' requests."""

    def __init__(self) -> None:
        self.times = {name: Times() for name in TIMES}
        # Counts of requests: offered, sent, unsent, failed; and of events: acked.
        self.counts: Counter[str] = Counter()
        # Counts by status, or by the name of the error.
        self.answers: Counter[str] = Counter()
        # By second since the beginning: requests offered and succeeded, events acknowledged.
        self.seconds: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        # By worker: the numbers of the acknowledged events, including the warm-up.
        self.acked: dict[int, list[Range]] = defaultdict(list)
        # By worker: its processor time, and for how long it was measured.
        self.used_s: dict[int, tuple[float, float]] = {}
        # When the first process began, in µs since 1970.
        self.begun_us = 0

    def note_offered(self, due_s: float) -> None:
        self.counts["offered"] += 1
        self.seconds[int(due_s)][0] += 1

    def note_unsent(self) -> None:
        self.counts["unsent"] += 1

    def note_answer(
        self, what: str, *, is_good: bool, due_s: float, sent_s: float, ended_s: float, events: int
    ) -> None:
        """Record an answer to `events` acknowledged events; times are seconds since the start."""
        self.times["due"].note(ended_s - due_s)
        self.times["service"].note(ended_s - sent_s)
        self.times["late"].note(sent_s - due_s)
        self.counts["sent"] += 1
        self.counts["failed"] += not is_good
        self.counts["acked"] += events
        self.answers[what] += 1
        second = self.seconds[int(ended_s)]
        second[1] += is_good
        second[2] += events

    def note_acked(self, worker: int, numbers: Iterable[Range]) -> None:
        self.acked[worker].extend(numbers)

    def note_begun(self, at_us: int) -> None:
        self.begun_us = min(self.begun_us or at_us, at_us)

    def note_used(self, worker: int, cpu_s: float, wall_s: float) -> None:
        self.used_s[worker] = (cpu_s, wall_s)

    @property
    def cpu_share(self) -> float:
        """The busiest process's share of a core: a busy process is late even if others are idle."""
        return max(
            (cpu_s / wall_s for cpu_s, wall_s in self.used_s.values() if wall_s), default=0.0
        )

    def take(self) -> dict[str, Any]:
        """Return the results since the last call, for `merge` in another process."""
        taken = {
            "times": {name: times.take() for name, times in self.times.items()},
            "counts": dict(self.counts),
            "answers": dict(self.answers),
            "seconds": [[second, *counts] for second, counts in self.seconds.items()],
            "acked": [[worker, merged(ranges)] for worker, ranges in self.acked.items()],
            "begun_us": self.begun_us,
            "used_s": [[worker, *used] for worker, used in self.used_s.items()],
        }
        for part in (self.counts, self.answers, self.seconds, self.acked):
            part.clear()
        return taken

    def merge(self, taken: dict[str, Any]) -> None:
        for name, text in taken["times"].items():
            self.times[name].add(text)
        self.counts.update(taken["counts"])
        self.answers.update(taken["answers"])
        if taken["begun_us"]:
            self.note_begun(taken["begun_us"])
        for second, *counts in taken["seconds"]:
            self.seconds[second] = [
                one + other for one, other in zip(self.seconds[second], counts, strict=True)
            ]
        for worker, ranges in taken["acked"]:
            self.acked[worker].extend((first, end) for first, end in ranges)
        for worker, cpu_s, wall_s in taken["used_s"]:
            self.used_s[worker] = (cpu_s, wall_s)


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Merge ranges into as few as possible, in order; the end of a range is exclusive."""
    joined: list[Range] = []
    for first, end in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((first, end))
    return joined


def slope(points: Iterable[tuple[float, float]]) -> float:
    """Return the slope of a least-squares line; 0 for fewer than two points."""
    xs, ys = zip(*given, strict=True) if (given := list(points)) else ((), ())
    mean_x, mean_y = (math.fsum(values) / max(1, len(values)) for values in (xs, ys))
    below = math.fsum((x - mean_x) ** 2 for x in xs)
    return (
        math.fsum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / below
        if below
        else 0.0
    )
