"""Archives events: each Kafka partition's range becomes whole objects of 64 MiB at most, once each.

Where an object is cut depends on the range, which is stored before anything is written, and on the
events in it. So a task that repeats a range after a crash makes the same objects. If an object
already exists, the task compares and keeps it (ADR 0084). When a topic is recreated, its offsets
restart: the objects of the new topic are kept beside those of the old one (ADR 0088).
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
from shared.proof.archived import ArchivedObject, ArchiveId
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

# Keys and values of one object, before they are packed.
OBJECT_BYTES_MAX = 64 * 1_048_576
# The maximum number of tasks of a job at once: each needs memory for one object.
_TASKS = 2
# The metadata in which an object names its maker.
_BY = ("hifi.document", "hifi.is-whole")


@dataclass(frozen=True, slots=True)
class ArchiveSink:
    """The events that a pipeline archives, and the store that it keeps them in."""

    store: Store
    id: ArchiveId
    # The fingerprint of the document that archives them.
    document: str
    # Whether the document keeps all events unchanged.
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
            stored = ArchivedObject.from_json(report.encode())
            yield RecordOut(ARCHIVE, stored.path.encode(), report.encode())


@dataclass
class ArchiveWriter:
    """The writer of one task: it makes one object at a time."""

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
            # An event that is larger than an object's limit still gets an object.
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
        """Store the gathered events, all offsets up to `end`; return the manifest as JSON."""
        made, self._made = self._made, None
        assert made is not None, "there is something to store"
        by = (self.sink.document, str(self.sink.is_whole))
        data = made.file.end(dict(zip(_BY, by, strict=True)))
        stored = made.said(self.sink, end, data, by)
        if not self.bucket.put_new(stored.path, data):
            # The object was stored before a crash.
            stored = self._from_before(stored, data)
        manifest = stored.to_json()
        if not self.bucket.put_new(stored.manifest_path, manifest) and (
            self.bucket.get(stored.manifest_path) != manifest
        ):
            raise SinkAwayError(
                f"{stored.manifest_path} does not match the object beside it: move it away"
            )
        return manifest.decode()

    def _from_before(self, said: ArchivedObject, data: bytes) -> ArchivedObject:
        """Describe the existing object of this range, perhaps made by an earlier document."""
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
                f"the object {said.path} already exists with other contents ({error}):"
                " another Hifi wrote it; give each a store or a path of its own"
            ) from None
        return made.said(self.sink, said.end, there, (document, is_whole))


class _Making:
    """An object that is still being filled."""

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

    def said(self, sink: ArchiveSink, end: int, data: bytes, by: tuple[str, str]) -> ArchivedObject:
        document, is_whole = by
        from_ms, to_ms = self._times["time_ms"]
        event_from_ms, event_to_ms = self._times["event_time_ms"]
        return ArchivedObject(
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
