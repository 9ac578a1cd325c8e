"""Reads events one by one: keeps their bytes, finds their ids, keys and times, reports faults.

A fault rejects only its own event. If a member occurs twice, the last one counts, as in every
common parser; the stored bytes keep both.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

import msgspec

from gateway.intake.cloud_events import fault
from gateway.intake.event_finder import EventLimits, EventSpans
from gateway.intake.json_depth import is_deeper
from gateway.intake.record_encoding import pack_count, pack_header, pack_headers, pack_value
from shared.event.envelope import event_headers
from shared.event.record import Headers

# Enough for a URL or two UUIDs; CloudEvents sets no limit, Segment's messageId has 100.
ID_LENGTH_MAX = 256
# An ordering key names an entity (user, order, device). With an event of the greatest size and our
# headers, it still fits into a Kafka record, which has 1,048,588 bytes at most by default.
KEY_BYTES_MAX = 1_024

T = TypeVar("T")
KeyFinder = Callable[[bytes], str | None]


class PartitionFinder(Protocol):
    """Finds the Kafka partition of an event."""

    @property
    def pointer(self) -> str:
        """The JSON pointer to the member that names the shard."""

    def partition(self, value: bytes) -> int | str:
        """Return the Kafka partition, or the fault of the event."""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
# The years 1 to 9999 of RFC 3339; receivers could not read a time beyond them.
TIME_MS_MIN = -62_135_596_800_000
TIME_MS_MAX = 253_402_300_799_999
_WHOLE_NUMBER = re.compile(rb"-?\d+")


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event as it goes to Kafka."""

    id: str
    key: bytes | None
    value: bytes
    # Encoded as in a Kafka record; most headers are the same for all events of a request.
    packed_headers: bytes
    # The event's own time, as in its headers.
    time_ms: int = 0
    # The Kafka partition in a stream of shards; in other streams keys decide.
    partition: int | None = None

    @classmethod
    def of(cls, *, id: str, key: bytes | None, value: bytes, headers: Headers) -> "Event":  # noqa: A002 - as the field
        return cls(id, key, value, pack_headers(headers))


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why one event of a body was rejected. Sending it again will not help."""

    index: int
    id: str | None
    code: str
    detail: str
    pointer: str


class ParsedBody(msgspec.Struct):
    """A parsed body: its events, their indexes in the body, and the rejections."""

    events: Sequence[Event] = ()
    indexes: Sequence[int] = ()
    rejections: list[Rejection] = msgspec.field(default_factory=list)
    # Precedes an event's index in a JSON pointer into the body; empty for a lone event.
    prefix: str = ""

    def where(self, index: int) -> str:
        return f"{self.prefix}{index}" if self.prefix else ""


class Context(msgspec.Struct):
    """The data of a request that applies to all its events."""

    # Unique. An event without an id gets id_base-index, which callers can compute, too.
    id_base: str
    accepted_at_ms: int
    key: bytes | None = None
    traceparent: str | None = None
    # Finds the ordering key in an event of the stream.
    find_key: KeyFinder | None = None
    # Finds the Kafka partition of each event, for a stream of shards.
    shards: PartitionFinder | None = None
    are_cloud_events: bool = False


# The names of an event's headers, and their count, encoded as in a record.
_ID, _HAPPENED_AT, _ACCEPTED_AT, _TRACEPARENT = (
    pack_header(name)
    for name, _ in event_headers(event_id="", event_time_ms=0, accepted_at_ms=0, traceparent="")
)
_BEFORE_ID, _BEFORE_TRACED_ID = pack_count(3) + _ID, pack_count(4) + _ID


class Packer:
    """Packs the headers of a request's events; only two of the values differ between events."""

    def __init__(self, context: Context) -> None:
        accepted_at, trace = b"%d" % context.accepted_at_ms, context.traceparent
        self.before_id = _BEFORE_ID if trace is None else _BEFORE_TRACED_ID
        self._after_time = _ACCEPTED_AT + pack_value(accepted_at)
        if trace is not None:
            self._after_time += _TRACEPARENT + pack_value(trace.encode())
        # For events without a time of their own.
        self.after_id = _HAPPENED_AT + pack_value(accepted_at) + self._after_time

    def pack(self, raw_id: bytes, time_ms: int | None) -> bytes:
        return b"".join((self.before_id, pack_value(raw_id), self.after_id_at(time_ms)))

    def after_id_at(self, time_ms: int | None) -> bytes:
        """Return the headers after the id, for an event of that time."""
        return self.after_id if time_ms is None else self._with_time(time_ms)

    def _with_time(self, time_ms: int) -> bytes:
        return _HAPPENED_AT + pack_value(b"%d" % time_ms) + self._after_time


class _EventFacts(msgspec.Struct):
    """The members that the gateway reads. Any of them may have another type: see _loose_facts."""

    id: str | int | None = None
    time: datetime | None = None
    time_ms: int | None = None
    partitionkey: str | int | None = None


class _RawFacts(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw()
    time: msgspec.Raw = msgspec.Raw()
    time_ms: msgspec.Raw = msgspec.Raw()
    partitionkey: msgspec.Raw = msgspec.Raw()


_FACTS = msgspec.json.Decoder(_EventFacts)
_RAW_FACTS = msgspec.json.Decoder(_RawFacts)
_TEXT = msgspec.json.Decoder(str)
_TIME = msgspec.json.Decoder(datetime)
_WHOLE = msgspec.json.Decoder(int)


def read_events(spans: EventSpans, *, context: Context, limits: EventLimits) -> ParsedBody:
    """Read every event that was found in a body, one by one."""
    events: list[Event] = []
    parsed = ParsedBody(events, prefix=spans.prefix)
    pack = Packer(context).pack
    bytes_max, depth_max = limits.event_bytes_max, limits.json_depth_max
    for index, raw in enumerate(spans.raws):
        read: Event | _BodyFault
        if len(raw) > bytes_max:
            detail = f"{len(raw)} bytes; an event may have at most {bytes_max}"
            if not spans.prefix:
                detail += " (send several events in an array, or in an object with only `events`)"
            read = _BodyFault("event_too_large", detail)
        elif is_deeper(value := bytes(raw), depth_max):
            read = _BodyFault("too_deep", f"at most {depth_max} levels of [ and {{ are allowed")
        else:
            read = _read_event(value, index, context, pack)
        if isinstance(read, Event):
            events.append(read)
        else:
            where = parsed.where(index) + read.member
            parsed.rejections.append(Rejection(index, read.id, read.code, read.detail, where))
    parsed.indexes = range(len(events))
    if parsed.rejections:
        rejected = {rejection.index for rejection in parsed.rejections}
        parsed.indexes = [n for n in range(len(spans.raws)) if n not in rejected]
    return parsed


@dataclass(frozen=True, slots=True)
class _BodyFault:
    """A fault of an event, its place in the event, and the event's id if known."""

    code: str
    detail: str
    member: str = ""
    id: str | None = None


def _read_event(
    value: bytes, index: int, context: Context, pack: Callable[[bytes, int | None], bytes]
) -> Event | _BodyFault:
    try:
        facts = _FACTS.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        looked = _look_again(value, error)
        if isinstance(looked, _BodyFault):
            return looked
        facts = looked
    if context.are_cloud_events and (wrong := fault(value)) is not None:
        detail, name = wrong
        escaped = name.replace("~", "~0").replace("/", "~1")
        return _BodyFault("bad_cloud_event", detail, f"/{escaped}")
    event_id = facts.id
    if event_id is None or event_id == "":
        event_id = f"{context.id_base}-{index}"
    elif type(event_id) is int:
        event_id = str(event_id)
    assert type(event_id) is str, "None and int were converted"
    if len(event_id) > ID_LENGTH_MAX or not event_id.isprintable():
        detail = f"an id may have at most {ID_LENGTH_MAX} characters, all of them printable"
        return _BodyFault("bad_id", detail, "/id")
    key = context.key
    if facts.partitionkey is not None or context.find_key is not None:
        key = _key(value, facts, context)
        if key is not None and len(key) > KEY_BYTES_MAX:
            detail = f"{len(key)} bytes; an ordering key may have at most {KEY_BYTES_MAX}"
            member = "/partitionkey" if facts.partitionkey else ""
            return _BodyFault("bad_key", detail, member, event_id)
    partition = context.shards.partition(value) if context.shards else None
    if isinstance(partition, str):
        return _unknown_shard(partition, context, event_id)
    time_ms = time_ms_of(facts.time, facts.time_ms)
    packed = pack(event_id.encode(), time_ms)
    happened_ms = context.accepted_at_ms if time_ms is None else time_ms
    return Event(event_id, key, value, packed, happened_ms, partition)


def _unknown_shard(detail: str, context: Context, event_id: str) -> _BodyFault:
    member = context.shards.pointer if context.shards else ""
    return _BodyFault("unknown_shard", detail, member, event_id)


def _look_again(value: bytes, error: Exception) -> _EventFacts | _BodyFault:
    """Return the facts of an event with an unexpected member, or its fault."""
    if not isinstance(error, msgspec.ValidationError):
        # The event is an invalid line of NDJSON, or has a text that UTF-8 cannot represent.
        return _BodyFault("invalid_json", str(error))
    if not value.startswith(b"{"):
        return _BodyFault("not_an_object", "an event must be a JSON object")
    try:
        return _loose_facts(value)
    except msgspec.DecodeError as other:
        return _BodyFault("invalid_json", str(other))


def _key(value: bytes, facts: _EventFacts, context: Context) -> bytes | None:
    """Return the event's own ordering key, the request's, or that at the stream's key_pointer."""
    if facts.partitionkey not in (None, ""):
        return str(facts.partitionkey).encode()
    if context.key is not None or context.find_key is None:
        return context.key
    key = context.find_key(value)
    return key.encode() if key else None


def key_finder(pointer: str) -> KeyFinder | None:
    """Return a function that finds the text or whole number at a JSON pointer in an event."""
    if not pointer:
        return None
    members = [m.replace("~1", "/").replace("~0", "~") for m in pointer[1:].split("/")]
    wanted: type = msgspec.Raw
    for member in reversed(members):
        wanted = msgspec.defstruct("At", [("at", wanted)], rename={"at": member})
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(wanted)

    def find(value: bytes) -> str | None:
        try:
            holder = decoder.decode(value)
        except msgspec.DecodeError:
            return None
        while not isinstance(holder, msgspec.Raw):
            holder = holder.at
        return _name(holder)

    return find


def time_ms_of(time: datetime | None, time_ms: int | None) -> int | None:
    """Return an event's own time, which only goes into a header; None if it has no valid one."""
    if time is not None:
        # RFC 3339 requires an offset; a time without one counts as UTC.
        aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        return (aware - _EPOCH) // _MILLISECOND
    if time_ms is None or not TIME_MS_MIN <= time_ms <= TIME_MS_MAX:
        return None
    return time_ms


def _loose_facts(value: bytes) -> _EventFacts:
    """Return the facts of an event in which some member has an unexpected type."""
    raw = _RAW_FACTS.decode(value)
    return _EventFacts(
        id=_name(raw.id),
        time=_decode_or_none(_TIME, raw.time),
        time_ms=_decode_or_none(_WHOLE, raw.time_ms),
        partitionkey=_name(raw.partitionkey),
    )


def _name(raw: msgspec.Raw) -> str | None:
    text = bytes(raw)
    # Keep a number as text, because a number of any length is a valid name.
    return text.decode() if _WHOLE_NUMBER.fullmatch(text) else _decode_or_none(_TEXT, raw)


def _decode_or_none(decoder: msgspec.json.Decoder[T], raw: msgspec.Raw) -> T | None:
    try:
        return decoder.decode(raw)
    except msgspec.DecodeError:
        return None
