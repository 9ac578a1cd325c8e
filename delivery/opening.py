"""Turns rows into batches for each destination, and finds the events that are not sent."""

import re
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from delivery.batches import Batch, TriedEvent, fresh_batches, is_plain, tried_batches
from delivery.event_columns import FetchedRecords, columns_of
from shared.config.destination import Destination
from shared.config.selection import is_wanted
from shared.event.derived import RESTORED
from shared.event.envelope import (
    Envelope,
    History,
    MalformedRecord,
    open_retry_record,
    open_stream_record,
)
from shared.event.record import KafkaPartition, Origin, Position, RecordIn
from shared.retry.decision import (
    DESTINATION_GONE,
    FILTERED,
    DeadLetter,
    Hop,
    Send,
    Success,
    admit,
    admit_unknown,
)
from shared.retry.doubts import Doubts
from shared.retry.schedule import SLOW, RetrySchedule

_RESTORE_ID = re.compile(rb"[a-z0-9][a-z0-9_-]{0,63}")

# The rows of a stream, as fetched, or rows that were opened before.
Rows: TypeAlias = FetchedRecords | Sequence[RecordIn]
# Batches that leave one after another; those of other tracks may leave at the same time.
Track: TypeAlias = Iterable[Batch]


@dataclass(slots=True)
class OpenedRows:
    """The events of rows, by destination."""

    # Where the first row was read; rows come from one Kafka partition, in offset order.
    first: Origin | None
    to_send: dict[str, Sequence[Track]] = field(default_factory=dict)
    # Events that are not sent (now), with the decisions on them.
    unsent: dict[str, list[tuple[TriedEvent, Success | Hop | DeadLetter]]] = field(
        default_factory=dict
    )
    malformed: list[MalformedRecord] = field(default_factory=list)

    def forget_from(self, offset: int) -> None:
        """Forget unsent events from an offset on, as they will be read again."""
        self.unsent = {
            name: [each for each in kept if each[0].envelope.origin.offset < offset]
            for name, kept in self.unsent.items()
        }

    def keep(self, name: str, tried: TriedEvent, decision: Success | Hop | DeadLetter) -> None:
        self.unsent.setdefault(name, []).append((tried, decision))


def open_stream(
    rows: Rows,
    destinations: Mapping[str, Destination],
    fresh: History,
    *,
    replay_until: Position,
    first: tuple[int, History] | None = None,
) -> OpenedRows:
    """Open rows for first attempts: every event for every destination (a lane has only one).

    Events at offsets below `replay_until` were read by a job that died, and may already have been
    sent: requests with them must say so. `first` has the offset and the history of the one event
    that was tried before, if any.
    """
    opened = OpenedRows(_first_place(rows))
    if _may_be_sent(opened.first, replay_until):
        fresh = replace(fresh, is_ambiguous=True)
    columns = columns_of(rows) if isinstance(rows, FetchedRecords) else None
    for name, destination in destinations.items():
        if columns is not None and is_plain(destination):
            opened.to_send[name] = [fresh_batches(columns, fresh, destination)]
            continue
        if columns is not None:
            tried = [TriedEvent(envelope, fresh) for envelope in columns.envelopes(0, len(columns))]
        else:
            tried = [
                TriedEvent(open_stream_record(record), _if_restored(record, fresh))
                for record in _records(rows)
            ]
        if first and tried and tried[0].envelope.origin.offset == first[0]:
            was = first[1]
            was = replace(was, is_ambiguous=was.is_ambiguous or fresh.is_ambiguous)
            tried[0] = TriedEvent(tried[0].envelope, was)
        opened.to_send[name] = _tracks(destination, tried, opened)
    return opened


def open_retries(
    rows: Rows,
    destinations: Mapping[str, Destination],
    schedule: RetrySchedule,
    *,
    removed: Collection[str],
    is_again: bool,
    replay_until: Position,
    doubts: Doubts,
    is_slow: Callable[[str], bool],
    now_ms: int,
) -> OpenedRows:
    """Open waiting events: some go now, some wait longer, and some have waited too long.

    Due events of a slow destination move to the lane for slow ones. For events in `doubts`, another
    copy may have been sent since this one was stored.
    """
    opened = OpenedRows(first=_first_place(rows))
    is_again = is_again or _may_be_sent(opened.first, replay_until)
    due: dict[str, list[TriedEvent]] = {}
    for record in _records(rows):
        envelope = open_retry_record(record)
        if isinstance(envelope, MalformedRecord):
            opened.malformed.append(envelope)
            continue
        name, history = envelope.travel
        if is_again or doubts.cover(envelope):
            # A job that died and its repeat may each leave a waiting copy: label both.
            history = replace(history, is_ambiguous=True)
        # All records stored from here on are copies of this one.
        envelope = replace(envelope, read_at=record.origin)
        if name in destinations:
            decision = admit(history, schedule, now_ms=now_ms)
        elif name in removed:
            decision = DeadLetter(DESTINATION_GONE, history)
        else:
            decision = admit_unknown(history, schedule, now_ms=now_ms)
        match decision:
            case Send(history=current):
                due.setdefault(name, []).append(TriedEvent(envelope, current))
            case _:
                opened.keep(name, TriedEvent(envelope, history), decision)
    for name, tried in due.items():
        if not is_slow(name):
            opened.to_send[name] = _tracks(destinations[name], tried, opened)
            continue
        for event in tried:
            opened.keep(name, event, Hop(SLOW, event.history))
    return opened


def _may_be_sent(first: Origin | None, replay_until: Position) -> bool:
    return first is not None and first.offset < replay_until.get(KafkaPartition(*first[:2]), 0)


def _if_restored(record: RecordIn, fresh: History) -> History:
    """Label a restored event with its restore, which it keeps while it waits."""
    restore_id = next((raw for name, raw in record.headers if name == RESTORED), b"")
    # The id goes into requests, so it must look like one of ours.
    if not _RESTORE_ID.fullmatch(restore_id):
        return fresh
    return replace(fresh, restore_id=restore_id.decode())


def _first_place(rows: Rows) -> Origin | None:
    if isinstance(rows, FetchedRecords):
        return rows.first
    return rows[0].origin if rows else None


def _records(rows: Rows) -> Sequence[RecordIn]:
    return rows.opened() if isinstance(rows, FetchedRecords) else rows


def _tracks(
    destination: Destination, tried: Sequence[TriedEvent], opened: OpenedRows
) -> Sequence[Track]:
    """Return the tracks of batches that may be sent side by side without breaking the order."""
    if destination.filter:
        wanted = []
        for event in tried:
            if is_wanted(event.envelope.value, destination.filter):
                wanted.append(event)
            else:
                opened.keep(destination.id, event, Success(FILTERED))
        tried = wanted
    if destination.order == "none":
        return [tried_batches(tried, destination)]
    if destination.order == "stream":
        in_line = sorted(tried, key=lambda each: each.envelope.origin)
        return [tried_batches(in_line, destination)]
    tracks: list[list[TriedEvent]] = [[] for _ in range(destination.parallel_max)]
    # In the order of the log, as waiting events come from several tiers.
    for event in sorted(tried, key=lambda each: each.envelope.origin):
        tracks[_track_number(event.envelope) % len(tracks)].append(event)
    return [tried_batches(track, destination) for track in tracks]


def _track_number(envelope: Envelope) -> int:
    """Return the same track for all events of a key; events without one have no order to keep."""
    if envelope.key is None:
        return envelope.origin.offset
    return zlib.crc32(envelope.key)
