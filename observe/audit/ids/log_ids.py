"""Compares the ids in the ledger with those at the same offsets of the log, as Arrow columns.

Nothing else would notice that a gateway acknowledges one event at the offset of another: such
offsets are claimed, delivered and balanced like all others.
"""

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute

from shared.event.record import KafkaPartition

# Its type stubs do not cover all kinds of arrays.
pc: Any = pyarrow.compute


class LogIds:
    """The ids of some stretches of the log, by Kafka partition, in order."""

    def __init__(self) -> None:
        self._parts: dict[KafkaPartition, list[tuple[Any, Any]]] = defaultdict(list)

    def take(self, where: KafkaPartition, offsets: Sequence[int], ids: Sequence[bytes]) -> None:
        """Add the next records of a Kafka partition."""
        if offsets:
            columns = pa.array(offsets, pa.int64()), pa.array(ids, pa.binary())
            self._parts[where].append(columns)

    def of(self, where: KafkaPartition, first: int, end: int) -> tuple[Any, Any]:
        """Return offsets and ids of the records in [first, end)."""
        parts = self._parts.get(where, [])
        if len(parts) > 1:
            parts[:] = [tuple(map(pa.concat_arrays, zip(*parts, strict=True)))]
        if not parts:
            return pa.array([], pa.int64()), pa.array([], pa.binary())
        offsets, ids = parts[0]
        low, high = (
            bisect_left(offsets, at, key=lambda offset: offset.as_py()) for at in (first, end)
        )
        return offsets.slice(low, high - low), ids.slice(low, high - low)


class RowIds:
    """The ledger's ids of one Kafka partition, with their offsets; the newest come last."""

    def __init__(self) -> None:
        self._offsets = array("q")
        self._lines: list[bytes] = []

    def add(self, spans: Iterable[tuple[int, int]], lines: bytes) -> None:
        """Add ids, one in each line, for all offsets of the spans."""
        for first, end in spans:
            self._offsets.extend(range(first, end))
        self._lines.append(lines)

    def beside(self, log: LogIds, where: KafkaPartition) -> tuple[int, dict[int, str]]:
        """Return how many of the offsets the log has, and the ids that differ there, by offset."""
        offsets: Any = pa.array(self._offsets, pa.int64())
        text: Any = pa.array([b"\n".join(self._lines)], pa.large_binary())
        ids = pc.list_flatten(pc.split_pattern(text, "\n"))
        there, theirs = log.of(where, min(self._offsets), max(self._offsets) + 1)
        places = pc.index_in(offsets, value_set=there)
        is_there = pc.is_valid(places)
        is_same = pc.fill_null(pc.equal(ids, theirs.cast(pa.large_binary()).take(places)), False)
        odd = offsets.filter(pc.and_(is_there, pc.invert(is_same)))
        return pc.sum(is_there).as_py() or 0, dict(self._last(offsets, ids, odd, there, theirs))

    @staticmethod
    def _last(
        offsets: Any, ids: Any, odd: Any, there: Any, theirs: Any
    ) -> Iterator[tuple[int, str]]:
        """Yield the wrong ids; if an offset was claimed twice, only the newest claim counts."""
        if not len(odd):
            return
        are_odd = pc.is_in(offsets, value_set=odd)
        pairs = (offsets.filter(are_odd).to_pylist(), ids.filter(are_odd).to_pylist())
        claimed: dict[int, bytes] = dict(zip(*pairs, strict=True))
        is_asked = pc.is_in(there, value_set=odd)
        pairs = (there.filter(is_asked).to_pylist(), theirs.filter(is_asked).to_pylist())
        for offset, event_id in zip(*pairs, strict=True):
            if claimed[offset] != event_id:
                yield offset, claimed[offset].decode()
