"""Decides how a request body becomes events: each event's bytes untouched, its facts found.

The body is an object (one event), an array, or {"events": [...]} and nothing else. What is wrong
with the body as a whole is a Problem; what is wrong with one event rejects that event alone.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec

from gateway.problems import Problem
from shared.envelope import event_headers
from shared.record import Headers

# Room for a URL or two UUIDs; CloudEvents sets no limit, Segment's messageId takes 100.
ID_LENGTH_MAX = 256
# An ordering key names an entity (user, order, device); with an event of full size and our
# headers it still fits into the 1,048,588 bytes that Kafka takes as one record by default.
KEY_BYTES_MAX = 1_024

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
# The years 1 to 9999 of RFC 3339; a number beyond them is no time, and no reader could take it.
_TIME_MS_MIN = -62_135_596_800_000
_TIME_MS_MAX = 253_402_300_799_999
_JSON_SPACE = b" \t\r\n"
_WHOLE_NUMBER = re.compile(rb"-?\d+")


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event as it goes to Kafka."""

    id: str
    key: bytes | None
    value: bytes
    headers: Headers


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


@dataclass(slots=True)
class Parsed:
    """A body that was read: its events, where each stood in the body, and what was rejected."""

    events: list[Event] = field(default_factory=list)
    indexes: Sequence[int] = ()
    rejections: list[Rejection] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Context:
    """What the request says of all its events."""

    # Unique, so that an event without an id gets one that everybody can derive: request_id-index.
    request_id: str
    accepted_at_ms: int
    key: bytes | None = None
    traceparent: str | None = None


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


class _Wrapped(msgspec.Struct, forbid_unknown_fields=True):
    events: list[msgspec.Raw]


class _MaybeWrapped(msgspec.Struct):
    events: msgspec.Raw = msgspec.Raw()


_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_WRAPPED = msgspec.json.Decoder(_Wrapped)
_MAYBE_WRAPPED = msgspec.json.Decoder(_MaybeWrapped)
_FACTS = msgspec.json.Decoder(_Facts)
_RAW_FACTS = msgspec.json.Decoder(_RawFacts)
_TEXT = msgspec.json.Decoder(str)
_TIME = msgspec.json.Decoder(datetime)
_WHOLE = msgspec.json.Decoder(int)


def parse(body: bytes, *, context: Context, limits: Limits) -> Parsed:
    """Read a JSON body. Raises Problem when the body as a whole cannot be taken."""
    try:
        # msgspec does not look into strings that it skips: this does, for every byte.
        body.decode()
        raws, prefix = _split(body)
    except UnicodeDecodeError as error:
        raise Problem(
            "invalid_utf8", f"Byte {error.start} is not UTF-8: {error.reason}."
        ) from error
    except RecursionError as error:
        raise Problem("too_deep", "Send JSON with fewer levels of [ and {.") from error
    except msgspec.ValidationError as error:
        raise Problem(
            "not_events", "Send an object (one event), an array, or an object with only `events`."
        ) from error
    except msgspec.DecodeError as error:
        raise Problem("invalid_json", f"{error}.") from error
    if len(raws) > limits.events_max:
        raise Problem(
            "too_many_events",
            f"{len(raws)} events came in one request; send at most {limits.events_max}.",
            members={"limit": "events_max", "limit_value": limits.events_max},
        )
    return _read_events(raws, prefix=prefix, context=context, limits=limits)


def _split(body: bytes) -> tuple[Sequence[bytes | msgspec.Raw], str]:
    """Find the events and the JSON pointer before each one's index (none for a lone object)."""
    if not body.lstrip(_JSON_SPACE).startswith(b"{"):
        return _ARRAY.decode(body), "/"
    try:
        wrapped = _WRAPPED.decode(body)
    except msgspec.ValidationError:
        pass
    else:
        if body.count(b'"events"') > 1 and _has_twin(body):
            raise Problem("ambiguous_body", "`events` stands in the object twice; send it once.")
        return wrapped.events, "/events/"
    if bytes(_MAYBE_WRAPPED.decode(body).events).startswith(b"["):
        raise Problem(
            "ambiguous_body",
            "The object has an array `events` and other members. Send `events` alone, or, if the"
            " object is one event, send it in an array: [{...}].",
        )
    return [body.strip(_JSON_SPACE)], ""


def _has_twin(body: bytes) -> bool:
    """Whether `events` is twice a member of the outer object, so that one would be lost."""
    found = _WRAPPED.decode(body).events
    inside = sum(bytes(raw).count(b'"events"') for raw in found)
    return body.count(b'"events"') - inside > 1


def _read_events(
    raws: Sequence[bytes | msgspec.Raw], *, prefix: str, context: Context, limits: Limits
) -> Parsed:
    parsed = Parsed()
    events, rejections = parsed.events, parsed.rejections
    indexes: list[int] = []
    for index, raw in enumerate(raws):
        value = bytes(raw)
        where = f"{prefix}{index}" if prefix else ""
        if len(value) > limits.event_bytes_max:
            detail = f"{len(value)} bytes; an event has at most {limits.event_bytes_max}"
            rejections.append(Rejection(index, None, "event_too_large", detail, where))
            continue
        try:
            facts = _FACTS.decode(value)
        except msgspec.ValidationError:
            if not value.startswith(b"{"):
                detail = "an event is a JSON object"
                rejections.append(Rejection(index, None, "not_an_object", detail, where))
                continue
            facts = _loose_facts(value)
        read = _read_event(value, facts, index=index, where=where, context=context)
        if isinstance(read, Event):
            events.append(read)
            indexes.append(index)
        else:
            rejections.append(read)
    parsed.indexes = indexes if rejections else range(len(events))
    return parsed


def _read_event(
    value: bytes, facts: _Facts, *, index: int, where: str, context: Context
) -> Event | Rejection:
    event_id = str(facts.id) if facts.id not in (None, "") else f"{context.request_id}-{index}"
    if len(event_id) > ID_LENGTH_MAX or not event_id.isprintable():
        detail = f"an id has at most {ID_LENGTH_MAX} characters, all of them printable"
        return Rejection(index, None, "bad_id", detail, f"{where}/id")
    key = context.key
    if facts.partitionkey not in (None, ""):
        key = str(facts.partitionkey).encode()
        if len(key) > KEY_BYTES_MAX:
            detail = f"{len(key)} bytes; an ordering key has at most {KEY_BYTES_MAX}"
            return Rejection(index, event_id, "bad_key", detail, f"{where}/partitionkey")
    headers = event_headers(
        event_id=event_id,
        event_time_ms=_event_time_ms(facts, otherwise=context.accepted_at_ms),
        accepted_at_ms=context.accepted_at_ms,
        traceparent=context.traceparent,
    )
    return Event(id=event_id, key=key, value=value, headers=headers)


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
