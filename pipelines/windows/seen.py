"""Keeps the keys that a pipeline has seen recently, so that it takes each event once. Pure.

The keys of a job are stored as one record, which is deleted when the last of them is forgotten. All
times are the broker's, so no other clock can make Hifi forget a key too early or too late.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pipelines.windows.change import (
    HEAD,
    Head,
    KeptChange,
    Record,
    TooMuchKeptError,
    head_of,
)
from shared.config.steps.window import KEYS_KEPT_MAX, OnceOf

# The maximum number of keys of one record, some 50 bytes each.
_KEYS_OF_A_RECORD = 10_000
_COSTS = 300


class SeenEvent(NamedTuple):
    """An event that is checked for an earlier one with the same key."""

    stored_ms: int
    partition: int
    offset: int
    # A hash of its key.
    key: str


def seen_of(rows: Iterable[Mapping[str, Any]]) -> list[SeenEvent]:
    """The events among rows that have a key; dead ones do not count as seen."""
    return [
        SeenEvent(row["stored_ms"], row["partition"], row["offset"], row["seen"])
        for row in rows
        if row["nth"] == 0 and row["seen"] is not None and row["outcome"] != "dead"
    ]


@dataclass(slots=True)
class KeptKeys:
    """The keys of one pipeline, and when each was first seen."""

    of: OnceOf
    head: Head
    _first_ms: dict[str, int] = field(default_factory=dict)
    _records: dict[int, dict[str, int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._first_ms)

    @property
    def size(self) -> int:
        return sum(map(len, self._records.values())) * _COSTS

    @property
    def closes_at_ms(self) -> int | None:
        """The time up to which all events must be read for the oldest record to expire."""
        oldest = next(iter(self._records.values()), None)
        return None if oldest is None else max(oldest.values()) + self.of.within_ms

    def read(self, key: bytes, value: bytes | None) -> None:
        """Apply one more stored record."""
        if key == HEAD:
            self.head = head_of(value)
        elif value is None:
            self._forget(int(key))
        else:
            self._enter(int(key), json.loads(value))

    def changed_by(
        self, found: Iterable[SeenEvent], frontier_ms: int, *, room: int = 2**62
    ) -> KeptChange:
        """Return the change that these events make: the repeats among them, and the new keys."""
        frontier_ms = max(frontier_ms, self.head.frontier_ms)
        new: dict[str, int] = {}
        repeats = set()
        for event in sorted(found):
            first_ms = new.get(event.key, self._first_ms.get(event.key))
            if first_ms is not None and event.stored_ms - first_ms < self.of.within_ms:
                repeats.add((event.partition, event.offset))
            else:
                new[event.key] = event.stored_ms
        is_full = len(self._first_ms) + len(new) > KEYS_KEPT_MAX or len(new) * _COSTS > max(room, 0)
        if new and is_full:
            raise TooMuchKeptError(f"{len(self._first_ms):,} keys are known, which is the maximum")
        listed, at = list(new.items()), max(self._records, default=0) + 1
        opened = {
            at + index: dict(listed[begin : begin + _KEYS_OF_A_RECORD])
            for index, begin in enumerate(range(0, len(listed), _KEYS_OF_A_RECORD))
        }
        until_ms = frontier_ms - self.of.within_ms
        gone = [at for at, keys in self._records.items() if max(keys.values()) <= until_ms]
        records: list[Record] = [
            replace(self.head, frontier_ms=frontier_ms).record,
            *((b"%012d" % at, None) for at in gone),
            *((b"%012d" % at, json.dumps(keys).encode()) for at, keys in opened.items()),
        ]
        return KeptChange(
            frontier_ms, records, opened=opened, gone=frozenset(gone), repeats=frozenset(repeats)
        )

    def apply(self, change: KeptChange) -> None:
        """Apply a change that is stored."""
        self.head = replace(self.head, frontier_ms=change.frontier_ms)
        for at in change.gone:
            self._forget(at)
        for at, keys in change.opened.items():
            self._enter(at, keys)

    def _enter(self, at: int, keys: dict[str, int]) -> None:
        self._records[at] = keys
        self._first_ms.update(keys)

    def _forget(self, at: int) -> None:
        for key, first_ms in self._records.pop(at, {}).items():
            # A later record may have the key again.
            if self._first_ms.get(key) == first_ms:
                del self._first_ms[key]
