"""Finds the events in a body, for each format; each event's bytes stay untouched.

A JSON body is an object (one event), an array, or {"events": [...]} without other members. A fault
of the whole body is a Problem; gateway.intake.events reports faults of single events.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from gateway.intake.admission import Format
from gateway.problems import Problem

Raws = Sequence[bytes | msgspec.Raw]

# An array of this many bytes cannot have enough elements to fill the memory (an element of two
# bytes takes 80 in memory). Larger arrays need a decoder that stops in time.
_HARMLESS_BYTES = 65_536
# An escaped backslash, a pair of surrogates, or half of one.
_SURROGATE = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_OBJECTS = re.compile(rb"\[\s*\{")
# Replacing this many takes 5 ms; a body with millions is an attack.
_SURROGATES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class EventLimits:
    events_max: int
    event_bytes_max: int
    json_depth_max: int = 100


class EventSpans(msgspec.Struct, frozen=True):
    """The events of a body, and the JSON pointer before their indexes ("" for a lone event)."""

    raws: Raws
    prefix: str


class _Wrapper(msgspec.Struct, forbid_unknown_fields=True):
    events: list[msgspec.Raw]


class _MaybeWrapped(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw()
    events: msgspec.Raw = msgspec.Raw()
    # Other products use these names for batches.
    batch: msgspec.Raw = msgspec.Raw()
    records: msgspec.Raw = msgspec.Raw()

    @property
    def batch_name(self) -> str | None:
        """The member that makes the object a batch rather than one event."""
        if bytes(self.events).startswith(b"["):
            return "events"
        if bytes(self.id):
            return None
        named = {"batch": self.batch, "records": self.records}
        return next((name for name, raw in named.items() if _OBJECTS.match(raw)), None)


_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_WRAPPED = msgspec.json.Decoder(_Wrapper)
_MAYBE_WRAPPED = msgspec.json.Decoder(_MaybeWrapped)


def find_events(body: bytes, body_format: Format, limits: EventLimits) -> EventSpans:
    """Find the events of a text body; raise Problem if the body as a whole is refused."""
    events_max = limits.events_max
    try:
        # msgspec does not check strings that it skips; decode() checks every byte.
        if not body.isascii():
            body.decode()
        try:
            spans = _find(body, body_format, limits)
        except msgspec.DecodeError as error:
            whole = None if isinstance(error, msgspec.ValidationError) else _with_whole_pairs(body)
            if whole is None:
                raise
            spans = _cut(body, whole, _find(whole, body_format, limits))
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
    if len(spans.raws) > events_max:
        raise _too_many(events_max)
    return spans


def _find(body: bytes, body_format: Format, limits: EventLimits) -> EventSpans:
    events_max, event_bytes_max = limits.events_max, limits.event_bytes_max
    match body_format:
        case Format.NDJSON:
            return _lines(body, events_max)
        case Format.CLOUD_EVENT:
            return EventSpans([_stripped(body)], "")
        case Format.CLOUD_EVENTS:
            return EventSpans(_array(body, events_max, event_bytes_max), "/")
        case _:
            return _json(body, events_max, event_bytes_max)


def _with_whole_pairs(body: bytes) -> bytes | None:
    """Replace halves of surrogate pairs, keeping the length; None if there are none or too many.

    Browsers send such a half for a text that was cut within an emoji. UTF-8 cannot represent it, so
    its event is refused, but the other events' places must be found.
    """
    if not 0 < body.count(b"\\ud") + body.count(b"\\uD") <= _SURROGATES_MAX:
        return None
    whole = _SURROGATE.sub(lambda match: b"\\ufffd" if match[1] else match[0], body)
    return None if whole == body else whole


def _cut(body: bytes, whole: bytes, spans: EventSpans) -> EventSpans:
    """Cut the spans that were found in `whole` out of `body`, which has the same layout."""
    raws: list[bytes] = []
    at = whole.find(b"[") if spans.prefix else 0
    for raw in map(bytes, spans.raws):
        at = whole.index(raw, at)
        raws.append(body[at : at + len(raw)])
        at += len(raw)
    return EventSpans(raws, spans.prefix)


def _json(body: bytes, events_max: int, event_bytes_max: int) -> EventSpans:
    if not body.lstrip().startswith(b"{"):
        return EventSpans(_array(body, events_max, event_bytes_max), "/")
    try:
        if len(body) > _HARMLESS_BYTES:
            raws = _kept(_counting_wrapped(events_max).decode(body).events)
        else:
            raws = _WRAPPED.decode(body).events
    except msgspec.ValidationError as error:
        _check_length(error, events_max)
    else:
        if body.count(b'"events"') > 1 and _has_twin(body, raws):
            raise Problem("ambiguous_body", "The object has `events` twice; send it once.")
        return EventSpans(raws, "/events/")
    if len(body) > event_bytes_max:
        # The body is too large for an event anyway, so spend no time on reading all of it.
        return EventSpans([body], "")
    name = _MAYBE_WRAPPED.decode(body).batch_name
    if name is not None:
        raise Problem(
            "ambiguous_body",
            f"The object has an array `{name}`, so it may be one event or a batch. Send a batch as"
            ' {"events": [...]} without other members, and one event in an array: [{...}].',
        )
    return EventSpans([_stripped(body)], "")


def _array(body: bytes, events_max: int, event_bytes_max: int) -> Raws:
    if len(body) <= _HARMLESS_BYTES:
        return _ARRAY.decode(body)
    inside = _stripped(body)[1:-1]
    if len(inside) > event_bytes_max and b"," not in inside and inside.lstrip().startswith(b"{"):
        # This is one object at most, and too large for an event. Reading 20 MB of escapes would
        # take 50 to 90 ms.
        return [inside]
    try:
        return _kept(_counting(events_max).decode(body))
    except msgspec.ValidationError as error:
        _check_length(error, events_max)
        raise


def _lines(body: bytes, events_max: int) -> EventSpans:
    """Return each line as an event, without blank lines at the end."""
    body = body.rstrip()
    if body.count(b"\n") >= events_max:
        raise _too_many(events_max)
    if not body:
        return EventSpans([], "/")
    return EventSpans([_stripped(line) for line in body.split(b"\n")], "/")


def _stripped(text: bytes) -> bytes:
    """Strip white space with Python's fast strip(), unless some of it is not valid in JSON."""
    if b"\v" in text or b"\f" in text:
        # JSON allows neither character, and its parser will report that.
        return text
    return text.strip()


def _has_twin(body: bytes, raws: Raws) -> bool:
    """Return whether the outer object has `events` twice, so that one would be lost."""
    inside = sum(bytes(raw).count(b'"events"') for raw in raws)
    return body.count(b'"events"') - inside > 1


def _check_length(error: msgspec.ValidationError, events_max: int) -> None:
    if "at most length" in str(error):
        raise _too_many(events_max) from error


def _kept(counted: Any) -> Raws:
    """Return the array's elements: a counting decoder's fields up to the first empty one."""
    fields: tuple[msgspec.Raw, ...] = msgspec.structs.astuple(counted)
    return fields[: bisect_left(fields, True, key=lambda raw: not bytes(raw))]


@lru_cache
def _counting(events_max: int) -> msgspec.json.Decoder[Any]:
    """Return a decoder of arrays that stops at the first element too many."""
    fields = [(f"e{n}", msgspec.Raw, msgspec.Raw()) for n in range(events_max)]
    return msgspec.json.Decoder(
        msgspec.defstruct("Counted", fields, array_like=True, forbid_unknown_fields=True)
    )


@lru_cache
def _counting_wrapped(events_max: int) -> msgspec.json.Decoder[Any]:
    counted = _counting(events_max).type
    fields = [("events", counted)]
    return msgspec.json.Decoder(
        msgspec.defstruct("CountedEvents", fields, forbid_unknown_fields=True)
    )


def _too_many(events_max: int) -> Problem:
    return Problem(
        "too_many_events",
        f"A request may have at most {events_max} events; send them in several requests.",
        members={"limit": "events_max", "limit_value": events_max},
    )
