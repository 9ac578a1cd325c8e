"""Archives events: of each Kafka partition's range objects of 64 MiB at most, whole and only once.

Where an object is cut depends on the range, which is stored before anything is written, and on the
events in it. So whoever does a range again, after a crash, makes the same objects: what is there
already is compared, and kept (ADR 0084). Where a topic is made anew, offsets begin again: that is
another life of the stream, and kept beside (ADR 0088).
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.jobs.sink import Said, SinkAwayError
from shared.config.outside.store import Store
from shared.event.record import Ranges, RecordOut
from shared.event.topics import ARCHIVE
from shared.proof.archived import Archived, ArchiveId
from shared.runtime.archive.files import (
    ObjectFile,
    UnreadableError,
    of_ours,
    raw_bytes,
    read_object,
    require_same,
    said_of,
)
from shared.runtime.archive.stores import OpenStore, StoreAwayError
from shared.runtime.settings import SecretSettings

# Of keys and values, before they are packed.
OBJECT_BYTES_MAX = 64 * 1_048_576
# Of a job at once: memory for as many objects.
_TASKS = 2
# What an object says of who made it.
_BY = ("hifi.document", "hifi.is-whole")


@dataclass(frozen=True, slots=True)
class ArchiveSink:
    """What a pipeline keeps, and where."""

    store: Store
    id: ArchiveId
    # Which document says so, by its fingerprint.
    document: str
    # Whether that keeps all events, as they come.
    is_whole: bool
    folders: Path | None
    tasks: int = _TASKS

    @contextmanager
    def open(self, ranges: Ranges) -> Iterator["ArchiveWriter"]:
        try:
            bucket = OpenStore(self.store, SecretSettings().secret_box, folders=self.folders)
            yield ArchiveWriter(
                self, bucket, {where.partition: span for where, span in ranges.items()}
            )
        except StoreAwayError as away:
            raise SinkAwayError(str(away)) from None

    def records(self, _: Ranges, reports: Sequence[str]) -> Iterable[RecordOut]:
        for report in reports:
            said = Archived.from_json(report.encode())
            yield RecordOut(ARCHIVE, said.path.encode(), report.encode())


@dataclass
class ArchiveWriter:
    """What a task writes with: one object at a time."""

    sink: ArchiveSink
    bucket: OpenStore
    ranges: dict[int, tuple[int, int]]
    _made: "_Making | None" = field(default=None, init=False)

    def take(self, events: pa.RecordBatch) -> Iterable[Said]:
        partition = events.column("partition")[0].as_py()
        if self._made is not None and self._made.partition != partition:
            yield self._put(self.ranges[self._made.partition][1])
        ours, sizes = of_ours(events), raw_bytes(events)
        at, reached = 0, [0, *accumulate(sizes)]
        while at < len(sizes):
            if self._made is None:
                begin = self.ranges[partition][0]
                self._made = _Making(partition, begin)
            room = OBJECT_BYTES_MAX - self._made.raw_bytes
            # An event that is larger than all of it would still be an object.
            upto = max(bisect_right(reached, reached[at] + room) - 1, at + (self._made.count == 0))
            self._made.add(ours.slice(at, upto - at), reached[upto] - reached[at])
            at = upto
            if at < len(sizes):
                offset = ours.column("offset")[at].as_py()
                yield self._put(offset)
                self._made = _Making(partition, offset)

    def end(self) -> Iterable[Said]:
        if self._made is not None:
            yield self._put(self.ranges[self._made.partition][1])

    def _put(self, end: int) -> str:
        """Store what was gathered, about all offsets up to `end`; gives what is said of it."""
        made, self._made = self._made, None
        assert made is not None, "there is something to store"
        by = (self.sink.document, str(self.sink.is_whole))
        data = made.file.end(dict(zip(_BY, by, strict=True)))
        said = made.said(self.sink, end, data, by)
        if not self.bucket.put_new(said.path, data):
            # From before a crash.
            said = self._from_before(said, data)
        told = said.to_json()
        if not self.bucket.put_new(said.manifest_path, told) and (
            self.bucket.get(said.manifest_path) != told
        ):
            raise SinkAwayError(
                f"{said.manifest_path} says of the object beside it what is not so: move it away"
            )
        return told.decode()

    def _from_before(self, said: Archived, data: bytes) -> Archived:
        """What is said of the object that is there: this range, maybe by an earlier document."""
        there = self.bucket.get(said.path) or b""
        try:
            known = said_of(there)
            document, is_whole = (known[each] for each in _BY)
            if document == self.sink.document:
                require_same(there, data)
            made = _Making(said.partition, said.first)
            for batch in read_object(there).to_batches():
                made.add(batch, 0)
        except (UnreadableError, KeyError) as error:
            raise SinkAwayError(
                f"the object {said.path} is there already, and holds something else ({error}):"
                " it is of another Hifi, which needs a store or a path of its own"
            ) from None
        return made.said(self.sink, said.end, there, (document, is_whole))


class _Making:
    """An object of which not all events have come."""

    def __init__(self, partition: int, first: int) -> None:
        self.partition = partition
        self.first = first
        self.count = self.raw_bytes = 0
        self.file = ObjectFile()
        self._times: dict[str, tuple[int, int]] = {}

    def add(self, events: pa.RecordBatch, raw_bytes: int) -> None:
        if not events.num_rows:
            return
        self.file.add(events)
        self.count += events.num_rows
        self.raw_bytes += raw_bytes
        for name in ("time_ms", "event_time_ms"):
            ends: Any = pc.min_max(events.column(name)).as_py()
            low, high = self._times.get(name, (ends["min"], ends["max"]))
            self._times[name] = (min(low, ends["min"]), max(high, ends["max"]))

    def said(self, sink: ArchiveSink, end: int, data: bytes, by: tuple[str, str]) -> Archived:
        document, is_whole = by
        from_ms, to_ms = self._times["time_ms"]
        event_from_ms, event_to_ms = self._times["event_time_ms"]
        return Archived(
            tenant=sink.id.tenant,
            stream=sink.id.stream,
            archive=sink.id.name,
            life=sink.id.life,
            partition=self.partition,
            first=self.first,
            end=end,
            count=self.count,
            size=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            from_ms=from_ms,
            to_ms=to_ms,
            event_from_ms=event_from_ms,
            event_to_ms=event_to_ms,
            document=document,
            is_whole=is_whole == str(True),
        )
