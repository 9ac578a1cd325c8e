"""Keeps the open windows of a pipeline, and computes how a job's events change them. Pure.

The state is exactly that of its stored records, so any reader of those can continue from them. A
change is computed first, and is applied once it is stored with its rows.
"""

import hashlib
import heapq
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

from pipelines.functions.states import Fold, ToFold
from pipelines.windows.aggregates import (
    AGGREGATES,
    Part,
    folded_part,
    is_to_fold,
    merged,
    top_text,
)
from pipelines.windows.change import (
    HEAD,
    Head,
    KeptChange,
    TooManyChangedError,
    TooMuchKeptError,
    WindowRow,
    head_of,
)
from shared.config.steps.computed import ComputedColumn, computed
from shared.config.steps.window import (
    WINDOW_END,
    WINDOW_START,
    WINDOWS_KEPT_MAX,
    WindowOf,
)
from shared.event.times import rfc3339

# The maximum number of windows that are written at once. The others follow a moment later.
CLOSED_MAX = 5_000
CHANGED_MAX, CHANGED_BYTES_MAX = 5_000, 16 * 1_048_576
# The largest state of one window, as a record in Kafka.
WINDOW_BYTES_MAX = 524_288
# The memory that one window takes besides its bytes.
_COSTS = 450
# The maximum length of a group's name; a longer name is cut, and a hash is added.
_GROUP_CHARS_MAX = 300
# The name of the only group where events are not grouped: its row needs one.
_ALL = "all"
_NULL, _EMPTY = "%-", "%"

Key: TypeAlias = tuple[int, str]


class Partial(NamedTuple):
    """The values that Spark has computed from the events of one window."""

    start_ms: int
    end_ms: int
    # The values that the window is grouped by, as a JSON object.
    by: str
    # The time of its newest event, and the time of the last acceptance.
    last_ms: int
    accepted_ms: int
    parts: Sequence[Part]


class OpenWindow(NamedTuple):
    """The state of an open window."""

    start_ms: int
    end_ms: int
    by: str
    # How many times it was written.
    version: int
    last_ms: int
    accepted_ms: int
    parts: Sequence[Part]

    @property
    def key(self) -> Key:
        return self.start_ms, self.by

    @property
    def once_more(self) -> "OpenWindow":
        """The window in its next version, as it is written."""
        return self._replace(version=self.version + 1)


@dataclass(slots=True)
class OpenWindows:
    """The open windows of one pipeline."""

    of: WindowOf
    head: Head
    size: int = 0
    _windows: dict[Key, bytes] = field(default_factory=dict)
    # When each window ends, as last known; and for sessions, when those of a group begin.
    _ends: list[tuple[int, Key]] = field(default_factory=list)
    _starts: dict[str, list[int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._windows)

    @property
    def computes(self) -> list[tuple[str, ComputedColumn]]:
        return [(name, computed(text)) for name, text in self.of.compute.items()]

    @property
    def closes_at_ms(self) -> int | None:
        """The time up to which all events must be read for the next window to end."""
        return self._ends[0][0] + self.of.late_ms if self._ends else None

    def read(self, key: bytes, value: bytes | None) -> None:
        """Apply one more stored record."""
        if key == HEAD:
            self.head = head_of(value)
            return
        start, _, by = key.decode().partition(" ")
        if value is None:
            self._forget((int(start), by))
        else:
            self._enter((int(start), by), value)

    def changed_by(
        self,
        found: Iterable[Partial],
        frontier_ms: int,
        *,
        room: int = 2**62,
        row_bytes_max: int = WINDOW_BYTES_MAX,
        fold: Fold | None = None,
    ) -> KeptChange:
        """Return the change that these events make, with all read to `frontier_ms` (broker's time).

        `fold` merges the states of reducers, if there are any.
        """
        frontier_ms = max(frontier_ms, self.head.frontier_ms)
        changed: dict[Key, OpenWindow] = {}
        gone: set[Key] = set()
        for partial in found:
            self._take_in(partial, changed, gone)
        if len(changed) > CHANGED_MAX:
            raise TooManyChangedError(f"{len(changed):,} windows change at once")
        self._fold(changed, fold)
        written = [each if self.of.is_final else each.once_more for each in changed.values()]
        opened = {window.key: _packed(window) for window in written}
        # Also check the windows that are written later: by then, no event could be blamed.
        sizes = [len(self._row(window).value) for window in written]
        self._check_room(opened, room)
        if max(sizes, default=0) > row_bytes_max:
            raise TooMuchKeptError(
                f"a row would have {max(sizes):,} bytes; at most {row_bytes_max:,} are allowed"
            )
        if sum(sizes) + sum(map(len, opened.values())) > CHANGED_BYTES_MAX:
            raise TooManyChangedError("the windows that change at once are too large")
        over, has_more = self._over(frontier_ms, opened, gone)
        rows = over if self.of.is_final else written
        closed = {window.key for window in over}
        records: list[tuple[bytes, bytes | None]] = [
            replace(self.head, frontier_ms=frontier_ms).record,
            *((_name(key), None) for key in sorted(gone | (closed & self._windows.keys()))),
            *((_name(key), value) for key, value in opened.items() if key not in closed),
        ]
        return KeptChange(
            frontier_ms,
            records,
            [self._row(window) for window in sorted(rows)],
            {key: value for key, value in opened.items() if key not in closed},
            frozenset(gone | closed),
            has_more,
        )

    def apply(self, change: KeptChange) -> None:
        """Apply a change that is stored."""
        self.head = replace(self.head, frontier_ms=change.frontier_ms)
        for key in change.gone:
            self._forget(key)
        for key, value in change.opened.items():
            self._enter(key, value)
        while self._ends and self._is_stale(*self._ends[0]):
            heapq.heappop(self._ends)

    def _take_in(self, partial: Partial, changed: dict[Key, OpenWindow], gone: set[Key]) -> None:
        """Merge into the existing window, or into one for all sessions that it joins."""
        new = OpenWindow(
            partial.start_ms, partial.end_ms, partial.by, 0, *partial[3:5], partial.parts
        )
        for key in self._joined(new, changed, gone):
            known = changed.pop(key, None) or _unpacked(key, self._windows[key])
            new = self._both(known, new)
            if key in self._windows and key != new.key:
                gone.add(key)
        gone.discard(new.key)
        changed[new.key] = new

    def _joined(
        self, new: OpenWindow, changed: Mapping[Key, OpenWindow], gone: set[Key]
    ) -> list[Key]:
        if not self.of.gap_ms:
            is_known = new.key in changed or new.key in self._windows
            return [new.key] if is_known else []
        starts = {start for start in self._starts.get(new.by, ()) if (start, new.by) not in gone}
        starts |= {start for start, by in changed if by == new.by} if changed else set()
        joined = []
        for start in sorted(starts):
            known = changed.get((start, new.by))
            end = known.end_ms if known else _end_of(self._windows[start, new.by])
            # As in Spark, an event at the very end of a session belongs to it.
            if start <= new.end_ms and new.start_ms <= end:
                joined.append((start, new.by))
        return joined

    def _both(self, one: OpenWindow, other: OpenWindow) -> OpenWindow:
        parts = [
            merged(of.aggregate, mine, theirs)
            for (_, of), mine, theirs in zip(self.computes, one.parts, other.parts, strict=True)
        ]
        return OpenWindow(
            min(one.start_ms, other.start_ms),
            max(one.end_ms, other.end_ms),
            one.by,
            max(one.version, other.version),
            max(one.last_ms, other.last_ms),
            max(one.accepted_ms, other.accepted_ms),
            parts,
        )

    def _fold(self, changed: dict[Key, OpenWindow], fold: Fold | None) -> None:
        """Have reducers merge new states with existing ones."""
        reducers = [
            (index, of.function) for index, (_, of) in enumerate(self.computes) if of.function
        ]
        open_parts = [
            (key, index, ToFold(function, window.parts[index]["states"]))
            for index, function in reducers
            for key, window in changed.items()
            if is_to_fold(window.parts[index])
        ]
        if not open_parts:
            return
        assert fold is not None, "reducers need a fold"
        come = fold([asked for _, _, asked in open_parts])
        for (key, at, _), folded in zip(open_parts, come, strict=True):
            parts = [*changed[key].parts]
            parts[at] = folded_part(folded)
            changed[key] = changed[key]._replace(parts=parts)

    def _check_room(self, opened: Mapping[Key, bytes], room: int) -> None:
        most = max(map(len, opened.values()), default=0)
        if most > WINDOW_BYTES_MAX:
            raise TooMuchKeptError(f"the {most:,} bytes of one window are too many to keep")
        new = opened.keys() - self._windows.keys()
        if new and len(self._windows) + len(new) > WINDOWS_KEPT_MAX:
            raise TooMuchKeptError(f"{WINDOWS_KEPT_MAX:,} windows are open, which is the maximum")
        grown = sum(_size(key, value) for key, value in opened.items())
        grown -= sum(_size(key, self._windows[key]) for key in opened.keys() - new)
        if grown > max(room, 0):
            raise TooMuchKeptError("there is no more room for open windows")

    def _over(
        self, frontier_ms: int, opened: Mapping[Key, bytes], gone: set[Key]
    ) -> tuple[list[OpenWindow], bool]:
        """Return the windows that can take no more events, and whether there are more of them."""
        # An event at the very end of a session still belongs to it.
        until_ms = frontier_ms - self.of.late_ms - (1 if self.of.gap_ms else 0)
        over = [key for key, value in opened.items() if _end_of(value) <= until_ms]
        waiting = [*self._ends] if self._ends and self._ends[0][0] <= until_ms else []
        seen = {*over, *gone}
        while waiting and waiting[0][0] <= until_ms and len(over) < CLOSED_MAX:
            end_ms, key = heapq.heappop(waiting)
            if key not in seen and key not in opened and not self._is_stale(end_ms, key):
                over.append(key)
                seen.add(key)
        has_more = bool(waiting) and waiting[0][0] <= until_ms
        values = {**{key: self._windows[key] for key in over if key in self._windows}, **opened}
        return [_unpacked(key, values[key]) for key in over], has_more

    def _is_stale(self, end_ms: int, key: Key) -> bool:
        """Say whether the window is gone, or now ends later."""
        value = self._windows.get(key)
        return value is None or _end_of(value) != end_ms

    def _enter(self, key: Key, value: bytes) -> None:
        known = self._windows.get(key)
        self._windows[key] = value
        self.size += _size(key, value) - (_size(key, known) if known is not None else 0)
        if known is None or _end_of(known) != _end_of(value):
            heapq.heappush(self._ends, (_end_of(value), key))
        if known is None and self.of.gap_ms:
            self._starts.setdefault(key[1], []).append(key[0])

    def _forget(self, key: Key) -> None:
        if (known := self._windows.pop(key, None)) is None:
            return
        self.size -= _size(key, known)
        if self.of.gap_ms:
            self._starts[key[1]].remove(key[0])
            if not self._starts[key[1]]:
                del self._starts[key[1]]

    def _row(self, window: OpenWindow) -> WindowRow:
        """The window's row: its group, its times, and its computed values."""
        members = [
            f'"{WINDOW_START}":"{rfc3339(window.start_ms)}"',
            f'"{WINDOW_END}":"{rfc3339(window.end_ms)}"',
        ]
        for (name, of), part in zip(self.computes, window.parts, strict=True):
            members.append(f'"{name}":{_written(of, part)}')
            if part is not None and AGGREGATES[of.aggregate].is_cut(part):
                members.append(f'"{name}_cut":true')
        by = [window.by[1:-1]] if window.by != "{}" else []
        return WindowRow(
            group_of(window.by, self.of.by),
            window.start_ms,
            window.end_ms,
            window.version,
            window.last_ms,
            window.accepted_ms,
            ("{" + ",".join([*by, *members]) + "}").encode(errors="replace"),
        )


def group_of(by: str, names: Sequence[str]) -> str:
    """The name of the window's group in its rows: the group's values, joined."""
    # Numbers keep their text: two decimals with many digits may be one float.
    values: dict[str, Any] = json.loads(by, parse_float=str)
    group = "/".join(_plain(values.get(name)) for name in names) if names else _ALL
    if len(group.encode()) <= _GROUP_CHARS_MAX:
        return group
    return f"{group[:60]}~{hashlib.sha256(by.encode(errors='replace')).hexdigest()[:32]}"


def _plain(value: Any) -> str:
    if value is None or value == "":
        # No text is written in these forms.
        return _NULL if value is None else _EMPTY
    text = value if isinstance(value, str) else json.dumps(value)
    # Separators and unprintable characters are percent-encoded.
    return "".join(
        char
        if char.isprintable() and char not in "/@%~"
        else quote(char, safe="", errors="replace")
        for char in text
    )


def _written(of: ComputedColumn, part: Part) -> str:
    if part is None:
        return "null"
    if of.aggregate == "top":
        return top_text(part, of.most)
    return AGGREGATES[of.aggregate].finish(part)


def _name(key: Key) -> bytes:
    start_ms, by = key
    return f"{start_ms} {by}".encode(errors="surrogatepass")


def _packed(window: OpenWindow) -> bytes:
    return json.dumps(
        [window.end_ms, *window[3:]], separators=(",", ":"), ensure_ascii=False
    ).encode(errors="surrogatepass")


def _unpacked(key: Key, value: bytes) -> OpenWindow:
    end_ms, *others = json.loads(value)
    return OpenWindow(key[0], end_ms, key[1], *others)


def _end_of(value: bytes) -> int:
    return int(value[1 : value.index(b",")])


def _size(key: Key, value: bytes) -> int:
    return len(key[1]) + len(value) + _COSTS
