"""Opens rows: batches of events for each destination, and events that are not sent."""

import re
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from delivery.batches import Batch, Tried, fresh_batches, is_plain, tried_batches
from delivery.event_columns import Fetched, columns_of
from shared.config.destination import Destination
from shared.config.selection import is_wanted
from shared.event.derived import RESTORED
from shared.event.envelope import (
    Envelope,
    History,
    Malformed,
    open_retry_record,
    open_stream_record,
)
from shared.event.record import KafkaPartition, Origin, Position, RecordIn
from shared.retry.decision import (
    DESTINATION_GONE,
    FILTERED,
    DeadLetter,
    Delivered,
    Hop,
    Send,
    admit,
    admit_unknown,
)
from shared.retry.doubts import Doubts
from shared.retry.schedule import SLOW, RetrySchedule

_RESTORE_ID = re.compile(rb"[a-z0-9][a-z0-9_-]{0,63}")

# A stream's, as they are fetched, or any that were opened before.
Rows: TypeAlias = Fetched | Sequence[RecordIn]
# Batches that leave one after the other; those of another track may leave beside them.
Track: TypeAlias = Iterable[Batch]


@dataclass(slots=True)
class Opened:
    """What rows hold, by destination."""

    # Where the first row was read; rows are of one Kafka partition, in its order.
    first: Origin | None
    to_send: dict[str, Sequence[Track]] = field(default_factory=dict)
    # Events that are not sent (now), with what happens to them instead.
    unsent: dict[str, list[tuple[Tried, Delivered | Hop | DeadLetter]]] = field(
        default_factory=dict
    )
    malformed: list[Malformed] = field(default_factory=list)

    def forget_from(self, offset: int) -> None:
        """What is not sent from there on comes again."""
        self.unsent = {
            name: [each for each in kept if each[0].envelope.origin.offset < offset]
            for name, kept in self.unsent.items()
        }

    def keep(self, name: str, tried: Tried, decision: Delivered | Hop | DeadLetter) -> None:
        self.unsent.setdefault(name, []).append((tried, decision))


def open_stream(
    rows: Rows,
    destinations: Mapping[str, Destination],
    fresh: History,
    *,
    replay_until: Position,
    first: tuple[int, History] | None = None,
) -> Opened:
    """First attempts: every event goes to every destination of the lane, which has one.

    Of what a try that died has had, as offsets below `replay_until`, what fails may wait in a tier
    already: each copy's request must say so. The `first` of all, by its offset, was tried before.
    """
    opened = Opened(_first_place(rows))
    if _may_be_sent(opened.first, replay_until):
        fresh = replace(fresh, is_ambiguous=True)
    columns = columns_of(rows) if isinstance(rows, Fetched) else None
    for name, destination in destinations.items():
        if columns is not None and is_plain(destination):
            opened.to_send[name] = [fresh_batches(columns, fresh, destination)]
            continue
        if columns is not None:
            tried = [Tried(envelope, fresh) for envelope in columns.envelopes(0, len(columns))]
        else:
            tried = [
                Tried(open_stream_record(record), _if_restored(record, fresh))
                for record in _records(rows)
            ]
        if first and tried and tried[0].envelope.origin.offset == first[0]:
            was = first[1]
            was = replace(was, is_ambiguous=was.is_ambiguous or fresh.is_ambiguous)
            tried[0] = Tried(tried[0].envelope, was)
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
) -> Opened:
    """Waiting events: some go now, some wait on, and some have waited for too long.

    What is due to a destination that is slow goes on to the lane of those. Of what is in `doubts`
    another copy may have been sent since this one was stored.
    """
    opened = Opened(first=_first_place(rows))
    is_again = is_again or _may_be_sent(opened.first, replay_until)
    due: dict[str, list[Tried]] = {}
    for record in _records(rows):
        envelope = open_retry_record(record)
        if isinstance(envelope, Malformed):
            opened.malformed.append(envelope)
            continue
        name, history = envelope.travel
        if is_again or doubts.cover(envelope):
            # What a dead try let wait anew, its repeat does too: that copy must say so.
            history = replace(history, is_ambiguous=True)
        # Whatever is stored from here on is a copy of this one.
        envelope = replace(envelope, read_at=record.origin)
        if name in destinations:
            decision = admit(history, schedule, now_ms=now_ms)
        elif name in removed:
            decision = DeadLetter(DESTINATION_GONE, history)
        else:
            decision = admit_unknown(history, schedule, now_ms=now_ms)
        match decision:
            case Send(history=current):
                due.setdefault(name, []).append(Tried(envelope, current))
            case _:
                opened.keep(name, Tried(envelope, history), decision)
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
    """What a restore has put back says so, wherever it waits."""
    restore_id = next((raw for name, raw in record.headers if name == RESTORED), b"")
    # It stands in requests: what no restore has written does not.
    if not _RESTORE_ID.fullmatch(restore_id):
        return fresh
    return replace(fresh, restore_id=restore_id.decode())


def _first_place(rows: Rows) -> Origin | None:
    if isinstance(rows, Fetched):
        return rows.first
    return rows[0].origin if rows else None


def _records(rows: Rows) -> Sequence[RecordIn]:
    return rows.opened() if isinstance(rows, Fetched) else rows


def _tracks(destination: Destination, tried: Sequence[Tried], opened: Opened) -> Sequence[Track]:
    """As many tracks of batches as may go side by side in order."""
    if destination.filter:
        wanted = []
        for event in tried:
            if is_wanted(event.envelope.value, destination.filter):
                wanted.append(event)
            else:
                opened.keep(destination.id, event, Delivered(FILTERED))
        tried = wanted
    if destination.order == "none":
        return [tried_batches(tried, destination)]
    if destination.order == "stream":
        in_line = sorted(tried, key=lambda each: each.envelope.origin)
        return [tried_batches(in_line, destination)]
    tracks: list[list[Tried]] = [[] for _ in range(destination.parallel_max)]
    # As they came into the log; what waits comes from several tiers.
    for event in sorted(tried, key=lambda each: each.envelope.origin):
        tracks[_track_number(event.envelope) % len(tracks)].append(event)
    return [tried_batches(track, destination) for track in tracks]


def _track_number(envelope: Envelope) -> int:
    """All events of a key are of one track; those without a key have no order to keep."""
    if envelope.key is None:
        return envelope.origin.offset
    return zlib.crc32(envelope.key)
