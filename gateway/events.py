"""Decides what an event is: each event's bytes untouched, its facts found, its faults told.

What is wrong with one event rejects that event alone. Of a member that stands twice the last one
counts, as it does for every common parser; both stay in the stored bytes.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from gateway.bodies import Found
from gateway.cloud_events import fault
from gateway.json_depth import is_deeper
from gateway.record_batch import pack_count, pack_headers, unpack_headers
from shared.envelope import event_headers
from shared.record import Headers

# Room for a URL or two UUIDs; CloudEvents sets no limit, Segment's messageId takes 100.
ID_LENGTH_MAX = 256
# An ordering key names an entity (user, order, device); with an event of full size and our
# headers it still fits into the 1,048,588 bytes that Kafka takes as one record by default.
KEY_BYTES_MAX = 1_024

T = TypeVar("T")
KeyFinder = Callable[[bytes], str | None]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
# The years 1 to 9999 of RFC 3339; a number beyond them is no time, and no reader could take it.
_TIME_MS_MIN = -62_135_596_800_000
_TIME_MS_MAX = 253_402_300_799_999
_WHOLE_NUMBER = re.compile(rb"-?\d+")


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event as it goes to Kafka."""

    id: str
    key: bytes | None
    value: bytes
    # As they stand in a Kafka record: most of them are the same for all events of a request.
    packed_headers: bytes

    @property
    def headers(self) -> Headers:
        return unpack_headers(self.packed_headers)

    @classmethod
    def of(cls, *, id: str, key: bytes | None, value: bytes, headers: Headers) -> "Event":  # noqa: A002 - as the field
        return cls(id, key, value, pack_headers(headers))


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why one event of a body was not taken. Sending it again will not help."""

    index: int
    id: str | None
    code: str
    detail: str
    pointer: str


@dataclass(frozen=True, slots=True)
class Limits:
    events_max: int
    event_bytes_max: int
    json_depth_max: int = 100


@dataclass(slots=True)
class Parsed:
    """A body that was read: its events, where each stood in the body, and what was rejected."""

    events: list[Event] = field(default_factory=list)
    indexes: Sequence[int] = ()
    rejections: list[Rejection] = field(default_factory=list)
    # What stands before an event's index in a JSON pointer into the body; empty for a lone one.
    prefix: str = ""

    def where(self, index: int) -> str:
        return f"{self.prefix}{index}" if self.prefix else ""


class Context(msgspec.Struct):
    """What the request says of all its events."""

    # Unique, so that an event without an id gets one that everybody can derive: id_base-index.
    id_base: str
    accepted_at_ms: int
    key: bytes | None = None
    traceparent: str | None = None
    # Where the stream's events hold their ordering key.
    find_key: KeyFinder | None = None
    are_cloud_events: bool = False
    # What stands before and after the id in the headers, for the event time it was packed for.
    _packed: dict[int, tuple[bytes, bytes]] = msgspec.field(default_factory=dict)

    def packed(self, time_ms: int) -> tuple[bytes, bytes]:
        found = self._packed.get(time_ms)
        if found is None:
            headers = event_headers(
                event_id="",
                event_time_ms=time_ms,
                accepted_at_ms=self.accepted_at_ms,
                traceparent=self.traceparent,
            )
            packed = pack_headers(headers)
            # The id is the first header, and empty here: one byte for its length.
            at = len(pack_headers(headers[:1])) - 1
            found = self._packed[time_ms] = packed[:at], packed[at + 1 :]
        return found


class _Facts(msgspec.Struct):
    """The members we look at. Any of them may be something else entirely: see _loose_facts."""

    id: str | int | None = None
    time: datetime | None = None
    time_ms: int | None = None
    partitionkey: str | int | None = None


class _RawFacts(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw()
    time: msgspec.Raw = msgspec.Raw()
    time_ms: msgspec.Raw = msgspec.Raw()
    partitionkey: msgspec.Raw = msgspec.Raw()


# The lengths of ids: of UTF-8, up to four bytes a character.
_SHORT = [pack_count(length) for length in range(4 * ID_LENGTH_MAX + 1)]
_FACTS = msgspec.json.Decoder(_Facts)
_RAW_FACTS = msgspec.json.Decoder(_RawFacts)
_TEXT = msgspec.json.Decoder(str)
_TIME = msgspec.json.Decoder(datetime)
_WHOLE = msgspec.json.Decoder(int)


def read_events(found: Found, *, context: Context, limits: Limits) -> Parsed:
    """Read every event that was found in a body."""
    parsed = Parsed(prefix=found.prefix)
    events, rejections = parsed.events, parsed.rejections
    indexes: list[int] = []
    values = [bytes(raw) for raw in found.raws]
    # Each level takes two bytes.
    shallow_max = 2 * limits.json_depth_max
    for index, value in enumerate(values):
        read: Event | tuple[str, str, str, str | None]
        if len(value) > limits.event_bytes_max:
            detail = f"{len(value)} bytes; an event has at most {limits.event_bytes_max}"
            read = "event_too_large", detail, "", None
        elif (
            len(value) > shallow_max
            and value.count(b"{") + value.count(b"[") > limits.json_depth_max
            and is_deeper(value, limits.json_depth_max)
        ):
            detail = f"an event has at most {limits.json_depth_max} levels of [ and {{"
            read = "too_deep", detail, "", None
        else:
            read = _read_event(value, index=index, context=context)
        if isinstance(read, Event):
            events.append(read)
            indexes.append(index)
        else:
            code, detail, member, event_id = read
            pointer = parsed.where(index) + member
            rejections.append(Rejection(index, event_id, code, detail, pointer))
    parsed.indexes = indexes if rejections else range(len(events))
    return parsed


def _read_event(  # noqa: PLR0911 - one for each way in which an event can be wrong
    value: bytes, *, index: int, context: Context
) -> Event | tuple[str, str, str, str | None]:
    """The event, or what is wrong with it: code, detail, the pointer within it, and its id."""
    try:
        facts = _FACTS.decode(value)
    except msgspec.ValidationError:
        if not value.startswith(b"{"):
            return "not_an_object", "an event is a JSON object", "", None
        try:
            facts = _loose_facts(value)
        except msgspec.DecodeError as error:
            return "invalid_json", str(error), "", None
    except msgspec.DecodeError as error:
        # On a line of its own, or a text that no UTF-8 can hold (half a surrogate pair).
        return "invalid_json", str(error), "", None
    if context.are_cloud_events and (found := fault(value)) is not None:
        detail, name = found
        return "bad_cloud_event", detail, f"/{name}" if name else "", None
    event_id = str(facts.id) if facts.id not in (None, "") else f"{context.id_base}-{index}"
    if len(event_id) > ID_LENGTH_MAX or not event_id.isprintable():
        detail = f"an id has at most {ID_LENGTH_MAX} characters, all of them printable"
        return "bad_id", detail, "/id", None
    key = context.key
    if facts.partitionkey not in (None, ""):
        key = str(facts.partitionkey).encode()
    elif key is None and context.find_key is not None:
        named = context.find_key(value)
        key = named.encode() if named else None
    if key is not None and len(key) > KEY_BYTES_MAX:
        detail = f"{len(key)} bytes; an ordering key has at most {KEY_BYTES_MAX}"
        return "bad_key", detail, "/partitionkey" if facts.partitionkey else "", event_id
    time_ms = _event_time_ms(facts, otherwise=context.accepted_at_ms)
    raw_id = event_id.encode()
    before, after = context.packed(time_ms)
    return Event(event_id, key, value, b"%b%b%b%b" % (before, _SHORT[len(raw_id)], raw_id, after))


def key_finder(pointer: str) -> KeyFinder | None:
    """A function that finds the text or whole number at a JSON pointer in an event."""
    if not pointer:
        return None
    members = [m.replace("~1", "/").replace("~0", "~") for m in pointer[1:].split("/")]
    wanted: type = msgspec.Raw
    for member in reversed(members):
        wanted = msgspec.defstruct("At", [("at", wanted)], rename={"at": member})
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(wanted)

    def find(value: bytes) -> str | None:
        try:
            found = decoder.decode(value)
        except msgspec.DecodeError:
            return None
        while not isinstance(found, msgspec.Raw):
            found = found.at
        return _name(found)

    return find


def _event_time_ms(facts: _Facts, *, otherwise: int) -> int:
    """The event's own time; how far off it is is not ours to judge, it goes into a header only."""
    time = facts.time
    if time is not None:
        # RFC 3339 asks for an offset; without one we take UTC, as everything here is.
        aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        return (aware - _EPOCH) // _MILLISECOND
    time_ms = facts.time_ms
    if time_ms is None or not _TIME_MS_MIN <= time_ms <= _TIME_MS_MAX:
        return otherwise
    return time_ms


def _loose_facts(value: bytes) -> _Facts:
    """Facts of an event in which some member is not what we hoped: it is the customer's own."""
    raw = _RAW_FACTS.decode(value)
    return _Facts(
        id=_name(raw.id),
        time=_decode_or_none(_TIME, raw.time),
        time_ms=_decode_or_none(_WHOLE, raw.time_ms),
        partitionkey=_name(raw.partitionkey),
    )


def _name(raw: msgspec.Raw) -> str | None:
    text = bytes(raw)
    # As text, because a number of any length is a fine name.
    return text.decode() if _WHOLE_NUMBER.fullmatch(text) else _decode_or_none(_TEXT, raw)


def _decode_or_none(decoder: msgspec.json.Decoder[T], raw: msgspec.Raw) -> T | None:
    try:
        return decoder.decode(raw)
    except msgspec.DecodeError:
        return None
