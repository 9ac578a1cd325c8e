"""Writes acknowledged events into the ledger, once a second.

Rows that cannot be written are written later, or never. No caller waits for the ledger, and the
audit looks in the log itself to find events that the ledger does not name. A row of unknown fate
is not written again, since two rows for the same offsets would look like a lost event.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import structlog

from gateway.intake.events import Event
from gateway.intake.plain_events import PlainEvents
from gateway.publish.publisher import Publisher
from gateway.publish.report import Fate, Report
from shared.event.spread import frequent
from shared.event.topics import ACKED, stream_of
from shared.proof.acked import (
    ROW_EVENTS_MAX,
    AckedRow,
    AckedSlice,
    audited_minute,
    key_hash,
    runs_of,
)
from shared.proof.log_buckets import LogBuckets

log = structlog.get_logger()

# The ledger may lag by this much; after a crash the audit reads these events from the log.
_FLUSH_S = 1.0
# Rows of a few seconds at full speed; while Kafka is down, nothing is acknowledged anyway.
_ROWS_MAX = 1_000


class Request(msgspec.Struct, frozen=True):
    """A request with events, as the ledger notes it."""

    id: str
    accepted_at_ms: int
    # Number of the request's stored events.
    count: int


class _Note(NamedTuple):
    """A request whose events Kafka has reported on, and when."""

    topic: str
    events: Sequence[Event]
    reports: Sequence[Report]
    request: Request
    now_ms: int


@dataclass(slots=True)
class _Draft:
    """The row of one Kafka partition while it gathers events."""

    slices: list[AckedSlice] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    value_bytes: int = 0
    ingest: LogBuckets = field(default_factory=LogBuckets)
    process: LogBuckets = field(default_factory=LogBuckets)
    # At most one key for each event of the row.
    keys: Counter[bytes] = field(default_factory=Counter)

    def row(self, topic: str, partition: int) -> AckedRow:
        return AckedRow(
            topic=topic,
            partition=partition,
            slices=tuple(self.slices),
            ids=tuple(self.ids),
            value_bytes=self.value_bytes,
            ingest=self.ingest,
            process=self.process,
            keys=frequent(self.keys, len(self.ids)),
            key_hashes=tuple(map(key_hash, self.keys)),
        )


class AckLedger:
    """Notes acknowledged events. `run` writes them until cancelled."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._drafts: dict[tuple[str, int], _Draft] = {}
        self._notes: list[_Note] = []
        self._full: list[Event] = []
        self._turn = asyncio.Lock()

    def note(
        self,
        topic: str,
        events: Sequence[Event],
        reports: Sequence[Report],
        *,
        request: Request,
        now_ms: int,
    ) -> None:
        """Note a request's stored events; they are entered later, while Kafka is busy."""
        self._notes.append(_Note(topic, events, reports, request, now_ms))
        if len(self._notes) == 1:
            self._publisher.meanwhile(self._enter_notes)

    def _enter_notes(self) -> None:
        notes, self._notes = self._notes, []
        for topic, events, reports, request, now_ms in notes:
            for report in reports:
                if report.fate is not Fate.STORED or report.first_offset is None:
                    continue
                assert report.partition is not None, "a stored event has a Kafka partition"
                positions, first = report.positions, report.first_offset
                for at in range(0, len(positions), ROW_EVENTS_MAX):
                    part = _chosen(events, positions[at : at + ROW_EVENTS_MAX])
                    draft = self._draft(topic, report.partition, len(part))
                    _enter(draft, first + at, part, request, now_ms)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_S)
            try:
                # A cancellation must not lose rows in flight that Kafka refuses.
                await asyncio.shield(self.flush())
            except Exception:
                # A bug in one row; the next flush writes the others.
                log.exception("ledger.failed")

    async def flush(self) -> None:
        """Write all rows, in order, after any earlier flush."""
        async with self._turn:
            self._enter_notes()
            for topic, partition in list(self._drafts):
                self._close(topic, partition)
            rows, self._full = self._full, []
            if not rows:
                return
            reports = await self._publisher.publish(ACKED, rows)
            again = [
                rows[position]
                for report in reports
                if report.fate is Fate.NOT_STORED
                for position in report.positions
            ]
            self._full = (again + self._full)[-_ROWS_MAX:]
            written = sum(len(r.positions) for r in reports if r.fate is Fate.STORED)
            if written < len(rows):
                log.warning(
                    "ledger.rows_not_written", rows=len(rows) - written, kept=len(self._full)
                )

    def _draft(self, topic: str, partition: int, count: int) -> _Draft:
        """Return a draft with room for `count` events."""
        draft = self._drafts.get((topic, partition))
        if draft is None or len(draft.ids) + count > ROW_EVENTS_MAX:
            self._close(topic, partition)
            draft = self._drafts[topic, partition] = _Draft()
        return draft

    def _close(self, topic: str, partition: int) -> None:
        draft = self._drafts.pop((topic, partition), None)
        if draft is not None:
            row = draft.row(topic, partition)
            self._full.append(
                Event.of(id="", key=stream_of(topic).encode(), value=row.to_bytes(), headers=())
            )


def _chosen(events: Sequence[Event], positions: Sequence[int]) -> Sequence[Event]:
    """Return the events at some positions, usually all of them or consecutive ones."""
    if len(positions) == len(events):
        return events
    if isinstance(positions, range) and positions.step == 1:
        return events[positions.start : positions.stop]
    return [events[position] for position in positions]


def _enter(
    draft: _Draft, first: int, events: Sequence[Event], request: Request, now_ms: int
) -> None:
    accepted_at_ms = request.accepted_at_ms
    times_ms: Sequence[int]
    if type(events) is PlainEvents:
        happened_ms, ids, value_bytes = events.happened_ms, events.ids, events.byte_count
        # Events without their own time share one, so it need not be repeated for each.
        times_ms = [happened_ms] if isinstance(happened_ms, int) else happened_ms
        if events.key is not None:
            draft.keys[events.key] += len(ids)
    else:
        times_ms = [event.time_ms for event in events]
        ids = [event.id for event in events]
        value_bytes = sum([len(event.value) for event in events])
        draft.keys.update([event.key for event in events if event.key is not None])
    earliest, latest = min(times_ms), max(times_ms)
    minute = audited_minute(earliest, accepted_at_ms)
    if earliest == latest or minute == audited_minute(latest, accepted_at_ms):
        runs: tuple[tuple[int, int], ...] = ((len(events), minute),)
    else:
        runs = runs_of([audited_minute(time_ms, accepted_at_ms) for time_ms in times_ms])
    draft.slices.append(AckedSlice(first, runs, accepted_at_ms, request.id, request.count))
    draft.ids += ids
    draft.value_bytes += value_bytes
    if earliest == latest:
        draft.ingest.add(accepted_at_ms - earliest, len(events))
    else:
        draft.ingest.merge(LogBuckets.of_counts(Counter(times_ms), until_ms=accepted_at_ms))
    draft.process.add(now_ms - accepted_at_ms, len(events))
