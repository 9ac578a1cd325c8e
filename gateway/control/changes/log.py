"""Finds changes in the log, by an index that it builds at the first request and keeps."""

import asyncio
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
from msgspec import Struct

from gateway.control.changes.record import KEPT_MAX, ChangeRecord
from shared.event.record import KafkaPartition, RecordIn
from shared.event.topics import CHANGES
from shared.runtime.kafka.lookup.stream_pages import Cursor, StreamPages
from shared.runtime.kafka.reader import open_reader
from shared.runtime.setup_error import KafkaUnavailableError

_WHERE = KafkaPartition(CHANGES, 0)
# One request extends the index for at most this long; the next one continues from there.
_CATCH_UP_S = 5.0
# Changes whose offsets are this near are read together, with the changes between them.
_NEAR = 100


@dataclass(frozen=True, slots=True)
class AskedChanges:
    """The changes to list, newest first."""

    count: int
    # The tenant whose changes are listed, or None for all tenants.
    tenant: str | None = None
    # The kind and name of one object, or None for all.
    object: tuple[str, str] | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    # Only changes before this offset.
    before: int | None = None
    wanted: Callable[[ChangeRecord], bool] = lambda _: True

    def takes(self, at_ms: int, change: ChangeRecord) -> bool:
        """Return whether a change is one of these."""
        return (
            self.tenant in {None, change.tenant}
            and self.object in {None, (change.kind, change.name)}
            and (self.since_ms is None or at_ms >= self.since_ms)
            and (self.until_ms is None or at_ms < self.until_ms)
            and self.wanted(change)
        )


@dataclass(frozen=True, slots=True)
class StoredChange:
    """A change, and when Kafka stored it."""

    at_ms: int
    change: ChangeRecord


@dataclass(frozen=True, slots=True)
class ChangePage:
    """Some changes; `older` is the offset before which older ones are stored, or None."""

    changes: tuple[StoredChange, ...]
    older: int | None
    # False if time ran out before all changes were read.
    is_complete: bool = True


class ChangeLog(Protocol):
    """The source of changes; KafkaChanges in a running gateway."""

    async def page(self, asked: AskedChanges) -> ChangePage: ...


class _Whose(Struct, frozen=True):
    """The part of a record that the index needs."""

    tenant: str
    kind: str
    name: str


@dataclass(slots=True)
class _TenantLog:
    """Offset, time and object of each change of one tenant, in order."""

    offsets: "array[int]" = field(default_factory=lambda: array("q"))
    times_ms: "array[int]" = field(default_factory=lambda: array("q"))
    objects: "array[int]" = field(default_factory=lambda: array("q"))

    def add(self, offset: int, at_ms: int, about: int) -> None:
        columns = (self.offsets, self.times_ms, self.objects)
        for column, value in zip(columns, (offset, at_ms, about), strict=True):
            column.append(value)
            if len(column) == 2 * KEPT_MAX:
                del column[:KEPT_MAX]

    def span(self, asked: AskedChanges) -> range:
        """Return the positions of the changes in the wanted time."""
        since, until = asked.since_ms, asked.until_ms
        first = 0 if since is None else bisect_left(self.times_ms, since)
        end = len(self.times_ms) if until is None else bisect_left(self.times_ms, until)
        return range(first, max(first, end))


class ChangeIndex:
    """The offsets of each tenant's changes."""

    def __init__(self) -> None:
        self.read_to = 0
        self._of: dict[str, _TenantLog] = {}

    def clear(self) -> None:
        self.read_to = 0
        self._of.clear()

    def take(self, record: RecordIn) -> None:
        """Add a record to the index; skip one that is no change."""
        self.read_to = record.origin.offset + 1
        try:
            whose = msgspec.json.decode(record.value, type=_Whose)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        kept = self._of.setdefault(whose.tenant, _TenantLog())
        kept.add(record.origin.offset, record.timestamp_ms, hash((whose.kind, whose.name)))

    def stretches(self, asked: AskedChanges) -> list[tuple[int, int]]:
        """Return the offset ranges to read, [first, end), in the order of the log."""
        if asked.tenant is not None:
            return list(_stretches(self._offsets(asked, asked.tenant)))
        if asked.object is not None:
            offsets = (offset for tenant in self._of for offset in self._offsets(asked, tenant))
            return list(_stretches(sorted(offsets)))
        ends = [
            (kept.offsets[span[0]], kept.offsets[span[-1]])
            for kept in self._of.values()
            if (span := kept.span(asked))
        ]
        if not ends:
            return []
        return [(min(first for first, _ in ends), 1 + max(last for _, last in ends))]

    def _offsets(self, asked: AskedChanges, tenant: str) -> Iterator[int]:
        kept = self._of.get(tenant)
        if kept is None:
            return
        about = None if asked.object is None else hash(asked.object)
        for index in kept.span(asked):
            if about is None or kept.objects[index] == about:
                yield kept.offsets[index]


class KafkaChanges:
    """The changes in the Kafka that the gateway runs with."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers
        self._pages = StreamPages(bootstrap_servers)
        self._index = ChangeIndex()
        self._turn = asyncio.Lock()

    async def page(self, asked: AskedChanges) -> ChangePage:
        """Return the newest of the wanted changes that are stored so far."""
        async with self._turn:
            await self._catch_up()
        stretches = self._index.stretches(asked)
        page = await self._pages.newest(
            CHANGES,
            count=asked.count,
            wanted=lambda record: bool(_opened(record, asked)),
            before=None if asked.before is None else Cursor((asked.before,)),
            among={_WHERE: stretches},
        )
        changes = (each for record in page.records for each in _opened(record, asked))
        older = None if page.older is None else page.older.offsets[0]
        return ChangePage(tuple(changes), older, page.is_complete)

    async def _catch_up(self) -> None:
        async with open_reader(self._servers) as log:
            spans = await log.spans([CHANGES])
            if not spans:
                raise KafkaUnavailableError(
                    f"The Kafka at {self._servers} has no topic {CHANGES}: `hifi topics` makes it."
                )
            first, end = spans[_WHERE]
            if end < self._index.read_to:
                # The topic was deleted and created again.
                self._index.clear()
            unread = {_WHERE: (max(first, self._index.read_to), end)}
            until_s = time.monotonic() + _CATCH_UP_S
            if await log.range(unread).each(self._index.take, until_s=until_s):
                raise KafkaUnavailableError("The changes are still being read: ask again.")
            # The end is beyond the markers of transactions, which are no records.
            self._index.read_to = end


def _opened(record: RecordIn, asked: AskedChanges) -> list[StoredChange]:
    """Return the record's change in a list, or an empty list if it is not wanted."""
    try:
        change = msgspec.json.decode(record.value, type=ChangeRecord)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []
    is_asked = asked.takes(record.timestamp_ms, change)
    return [StoredChange(record.timestamp_ms, change)] * is_asked


def _stretches(offsets: Iterator[int] | list[int]) -> Iterator[tuple[int, int]]:
    first = end = -1
    for offset in offsets:
        if first >= 0 and offset - end < _NEAR:
            end = offset + 1
            continue
        if first >= 0:
            yield first, end
        first, end = offset, offset + 1
    if first >= 0:
        yield first, end
