"""Keeps sets of log offsets as merged intervals, exact at any size."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

import msgspec


class Offsets(msgspec.Struct, array_like=True):
    """A set of offsets of one Kafka partition. Adding one twice changes nothing."""

    # Half-open, sorted, never touching: starts[i] <= x < ends[i].
    _starts: list[int] = []
    _ends: list[int] = []

    @classmethod
    def of(cls, intervals: Iterable[tuple[int, int]]) -> "Offsets":
        """The union of half-open intervals."""
        offsets = cls()
        for start, end in intervals:
            offsets.add(start, end)
        return offsets

    def add(self, start: int, end: int) -> None:
        """Add every offset from `start` up to, but not including, `end`."""
        if start >= end:
            return
        if start > self.end:
            # The usual case: intervals come in order.
            self._starts.append(start)
            self._ends.append(end)
            return
        # The first interval that reaches `start`, and the first that begins beyond `end`.
        low = bisect_right(self._ends, start - 1)
        high = bisect_right(self._starts, end)
        if low < high:
            start = min(start, self._starts[low])
            end = max(end, self._ends[high - 1])
        self._starts[low:high] = [start]
        self._ends[low:high] = [end]

    def discard(self, start: int, end: int) -> None:
        """Remove every offset from `start` up to, but not including, `end`."""
        if start >= end:
            return
        low = bisect_right(self._ends, start)
        high = bisect_left(self._starts, end)
        if low >= high:
            return
        around = ((self._starts[low], start), (end, self._ends[high - 1]))
        kept = [(first, last) for first, last in around if first < last]
        self._starts[low:high] = [first for first, _ in kept]
        self._ends[low:high] = [last for _, last in kept]

    def minus(self, other: "Offsets") -> "Offsets":
        """The offsets of this set that are not in the other."""
        left = Offsets()
        for start, end in self:
            at = start
            for gap_start, gap_end in other.within(start, end):
                left.add(at, gap_start)
                at = gap_end
            left.add(at, end)
        return left

    def both(self, other: "Offsets") -> "Offsets":
        """The offsets that are in both sets."""
        return Offsets.of(span for start, end in self for span in other.within(start, end))

    def union(self, *others: "Offsets") -> "Offsets":
        filled = [offsets for offsets in (self, *others) if offsets]
        if len(filled) == 1:
            return filled[0].cut(filled[0].start, filled[0].end)
        return Offsets.of(sorted(span for offsets in filled for span in offsets))

    def within(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The part of this set in the given interval."""
        if start >= end:
            return
        for at in range(bisect_right(self._ends, start), len(self._starts)):
            if self._starts[at] >= end:
                return
            yield max(start, self._starts[at]), min(end, self._ends[at])

    def cut(self, start: int, end: int) -> "Offsets":
        """The part of this set in the given interval, as a set."""
        low = bisect_right(self._ends, start)
        high = bisect_left(self._starts, end)
        if low >= high or start >= end:
            return Offsets()
        starts, ends = self._starts[low:high], self._ends[low:high]
        starts[0], ends[-1] = max(starts[0], start), min(ends[-1], end)
        return Offsets(starts, ends)

    def from_offset(self, start: int) -> "Offsets":
        """The part of this set from `start` on."""
        return self.cut(start, self.end)

    def reach(self, start: int) -> int:
        """One past the last offset of the unbroken run from `start`."""
        at = bisect_right(self._ends, start)
        if at < len(self._starts) and self._starts[at] <= start:
            return self._ends[at]
        return start

    @property
    def start(self) -> int:
        """The lowest offset; 0 for the empty set."""
        return self._starts[0] if self._starts else 0

    @property
    def end(self) -> int:
        """One past the highest offset; 0 for the empty set."""
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._starts)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __contains__(self, offset: int) -> bool:
        return any(True for _ in self.within(offset, offset + 1))
