"""Reads a body of plain events all at once, and stores them in columns.

Plain events, as nearly all are, have an id and no key of their own. A few calls handle all of them
at once, from the body to the Kafka record, without an object or a copy of bytes for each one. That
halves the CPU time. Events that are invalid or not plain are read one by one, by
gateway.intake.events. Both modules make the same events.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, repeat
from typing import Annotated, final, overload

import msgspec

from gateway.intake.event_finder import EventLimits, EventSpans, Raws
from gateway.intake.events import (
    ID_LENGTH_MAX,
    TIME_MS_MAX,
    TIME_MS_MIN,
    Context,
    Event,
    Packer,
    ParsedBody,
    time_ms_of,
)
from gateway.intake.record_encoding import NO_ATTRIBUTES, NOTHING, SMALL, pack_value

_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=ID_LENGTH_MAX)]
_TimeMs = Annotated[int, msgspec.Meta(ge=TIME_MS_MIN, le=TIME_MS_MAX)]


class _Plain(msgspec.Struct, gc=False):
    """An event without a time or key of its own; all its other members are skipped."""

    id: _Id
    time: None = None
    time_ms: None = None
    partitionkey: None = None


class _TimedEvent(msgspec.Struct, gc=False):
    """An event that may have a time of its own."""

    id: _Id
    time: datetime | None = None
    time_ms: _TimeMs | None = None
    partitionkey: None = None


_PLAIN = msgspec.json.Decoder(_Plain)
_TIMED = msgspec.json.Decoder(_TimedEvent)
# The tables have no lengths for longer events; for those, the cost of an object hardly matters.
# The rest of a record is a key, an id of four-byte characters and three headers.
_EVENT_BYTES_MAX = len(SMALL) - 4_096
# Attributes and offset delta of each record, encoded in advance; longer batches use the slow path.
_ATS = [NO_ATTRIBUTES + at for at in SMALL[:8_192]]
_ONE_BYTE_ATS = 64
_NO_KEY_AND_LENGTH = [NOTHING + length for length in SMALL]
# Bytes of a value with its length before it.
_PACKED_BYTES = [length + len(packed) for length, packed in enumerate(SMALL)]
# The parts of a record: length, offset, key and value's length, value; the id's name, its length,
# the id; and the other headers.
_PARTS = 8
# For fewer events, columns cost more than objects (measured: 13 µs against 10 µs for one event, the
# same for two).
_COUNT_MIN = 2
# The deepest level of an event in a flat body: it has only one bracket of each kind besides those
# of its events.
_FLAT_LEVELS_MAX = 3


@final
@dataclass(eq=False, repr=False)
class PlainEvents(Sequence[Event]):
    """Events of one request in columns: a sequence that makes an Event only when one is read.

    Test for it with `type(events) is PlainEvents`: isinstance() of an abstract class is slow.
    """

    raws: Raws
    ids: Sequence[str]
    raw_ids: Sequence[bytes]
    # One time for each event, or one for all.
    happened_ms: Sequence[int] | int
    # One key for all of them.
    key: bytes | None
    before_id: bytes
    # The headers after the id, for each event or for all.
    afters: Sequence[bytes] | bytes

    def __post_init__(self) -> None:
        self._sizes = list(map(len, self.raws))

    @property
    def byte_count(self) -> int:
        """The bytes of all values."""
        return sum(self._sizes)

    def __len__(self) -> int:
        return len(self.raws)

    def __iter__(self) -> Iterator[Event]:
        return map(self._event, range(len(self.raws)))

    @overload
    def __getitem__(self, index: int) -> Event: ...

    @overload
    def __getitem__(self, index: slice) -> "PlainEvents": ...

    def __getitem__(self, index: int | slice) -> "Event | PlainEvents":
        if isinstance(index, int):
            return self._event(index)
        afters, times_ms = self.afters, self.happened_ms
        return PlainEvents(
            self.raws[index],
            self.ids[index],
            raw_ids=self.raw_ids[index],
            happened_ms=times_ms if isinstance(times_ms, int) else times_ms[index],
            key=self.key,
            before_id=self.before_id,
            afters=afters if isinstance(afters, bytes) else afters[index],
        )

    def _event(self, index: int) -> Event:
        afters = self.afters
        after = afters if isinstance(afters, bytes) else afters[index]
        packed = self.before_id + pack_value(self.raw_ids[index]) + after
        value = bytes(self.raws[index])
        times_ms = self.happened_ms
        time_ms = times_ms if isinstance(times_ms, int) else times_ms[index]
        return Event(self.ids[index], self.key, value, packed, time_ms)

    def pack(self, *, first: int, room: int) -> tuple[list[bytes], int, int] | None:
        """Pack as many records as fit into `room`; return their parts, count and size.

        `first` is the first record's offset. None if they have to be packed one by one.
        """
        raws, ids, sizes, afters = self.raws, self.raw_ids, self._sizes, self.afters
        count = len(raws)
        if first + count > len(_ATS):
            return None
        id_sizes = list(map(len, ids))
        lengths = [
            _PACKED_BYTES[size] + _PACKED_BYTES[id_size]
            for size, id_size in zip(sizes, id_sizes, strict=True)
        ]
        packed_key = NOTHING if self.key is None else pack_value(self.key)
        fixed = len(NO_ATTRIBUTES) + len(packed_key) + len(self.before_id)
        if isinstance(afters, bytes):
            fixed += len(afters)
            afters = [afters] * count
        else:
            lengths = [length + len(after) for length, after in zip(lengths, afters, strict=True)]
        # The first offsets of a batch take one byte, later ones two.
        short = min(max(_ONE_BYTE_ATS - first, 0), count)
        packed = [SMALL[length + fixed + 1] for length in lengths[:short]]
        packed += [SMALL[length + fixed + 2] for length in lengths[short:]]
        byte_count = sum(lengths) + sum(map(len, packed)) + (fixed + 2) * count - short
        if byte_count > room:
            at_bytes = [1] * short + [2] * (count - short)
            sizes_packed = zip(map(len, packed), lengths, at_bytes, repeat(fixed))
            ends = list(accumulate(map(sum, sizes_packed)))
            count = bisect_right(ends, room)
            byte_count = ends[count - 1] if count else 0
        parts: list[bytes] = [self.before_id] * (_PARTS * count)
        parts[0::_PARTS] = packed[:count]
        parts[1::_PARTS] = _ATS[first : first + count]
        parts[2::_PARTS] = (
            [_NO_KEY_AND_LENGTH[size] for size in sizes[:count]]
            if self.key is None
            else [packed_key + SMALL[size] for size in sizes[:count]]
        )
        parts[3::_PARTS] = raws[:count]
        parts[5::_PARTS] = [SMALL[id_size] for id_size in id_sizes[:count]]
        parts[6::_PARTS] = ids[:count]
        parts[7::_PARTS] = afters[:count]
        return parts, count, byte_count


def read_plain(
    spans: EventSpans, body: bytes, *, context: Context, limits: EventLimits
) -> ParsedBody | None:
    """Return the events of a body if all are plain; None if they must be read one by one."""
    raws = spans.raws
    finds = context.find_key is not None or context.shards is not None
    if len(raws) < _COUNT_MIN or finds or context.are_cloud_events:
        return None
    sizes = list(map(len, raws))
    if max(sizes) > min(_EVENT_BYTES_MAX, limits.event_bytes_max):
        return None
    times: list[int | None] | None = None
    try:
        try:
            ids = [event.id for event in map(_PLAIN.decode, raws)]
        except msgspec.ValidationError:
            timed = list(map(_TIMED.decode, raws))
            ids = [event.id for event in timed]
            times = [time_ms_of(event.time, event.time_ms) for event in timed]
    except (msgspec.DecodeError, RecursionError):
        return None
    if not "".join(ids).isprintable() or _may_be_deep(raws, body, limits.json_depth_max):
        return None
    if len(body) > 2 * sum(sizes):
        # Events that wait for Kafka must not keep a large body of blanks in memory.
        raws = list(map(bytes, raws))
    packer = Packer(context)
    accepted_at_ms = context.accepted_at_ms
    events = PlainEvents(
        raws,
        ids,
        # A printable id contains no zero.
        raw_ids="\0".join(ids).encode().split(b"\0"),
        happened_ms=(
            accepted_at_ms
            if times is None
            else [accepted_at_ms if time is None else time for time in times]
        ),
        key=context.key,
        before_id=packer.before_id,
        afters=packer.after_id if times is None else list(map(packer.after_id_at, times)),
    )
    return ParsedBody(events, range(len(events)), prefix=spans.prefix)


def _may_be_deep(raws: Raws, body: bytes, depth_max: int) -> bool:
    """Return whether any event has more brackets than an event may have levels."""
    # Flat: one array, and at most one object more than there are events.
    is_flat = body.find(b"[", body.find(b"[") + 1) < 0 and body.count(b"{") <= len(raws) + 1
    if is_flat and depth_max > _FLAT_LEVELS_MAX:
        return False
    values = map(bytes, raws)
    return any(value.count(b"{") + value.count(b"[") > depth_max for value in values)
