"""Cuts events into batches of one HTTP request each, names the batches, and joins their bodies.

Fresh events share one history and stay columns until one of them fails. Events that have waited, or
of which a destination needs more than the bytes, are opened one by one. Both kinds of batch have
the same methods. The cuts depend on the events alone: a repeat after a crash forms the same batches
with the same ids, and a receiver can drop a repeated batch by its header.
"""

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from typing import Annotated, Literal, TypeAlias, assert_never

import msgspec

from delivery.event_columns import EventColumns
from shared.config.destination import BodyFormat, Destination
from shared.config.selection import keep
from shared.event.envelope import Envelope, History
from shared.event.times import rfc3339
from shared.proof.receipt import CoveredOffsets, Facts, facts_of

CONTENT_TYPES: dict[BodyFormat, str] = {
    "json": "application/json",
    "cloudevents": "application/cloudevents-batch+json",
    "ndjson": "application/x-ndjson",
    "single": "application/json",
}
# 96 bits: in practice no two batches of a destination share an id (one chance in two needs 2^48).
_BATCH_ID_BYTES = 12

_Text = Annotated[str, msgspec.Meta(min_length=1)]


class _CloudEvent(msgspec.Struct):
    specversion: Literal["1.0"]
    id: _Text
    source: _Text
    type: _Text


_CLOUD_EVENT = msgspec.json.Decoder(_CloudEvent)
# The members that every CloudEvent keeps, whichever others a destination asks for.
_ATTRIBUTES = ("/specversion", "/id", "/source", "/type")


@dataclass(frozen=True, slots=True)
class TriedEvent:
    """An event with its history on the way to one destination."""

    envelope: Envelope
    history: History


@dataclass(frozen=True, slots=True)
class FreshBatch:
    """Consecutive events of a stream that are tried for the first time, as a JSON array."""

    columns: EventColumns
    first: int
    end: int
    history: History
    # The whole batch was refused, so at least one of its events is at fault.
    is_suspect: bool = False

    @property
    def event_count(self) -> int:
        return self.end - self.first

    @property
    def facts(self) -> Facts:
        return self.columns.facts(self.first, self.end)

    @property
    def histories(self) -> Sequence[History]:
        """The one history that all its events share."""
        return (self.history,)

    def body(self, destination: Destination) -> bytes:
        assert is_plain(destination), "other destinations get their events opened"
        return self.columns.json_body(self.first, self.end)

    def traceparents(self) -> Iterator[str]:
        """Yield the traceparents of its events."""
        return self.columns.traceparents(self.first, self.end)

    def tried(self) -> Sequence[TriedEvent]:
        envelopes = self.columns.envelopes(self.first, self.end)
        return [TriedEvent(envelope, self.history) for envelope in envelopes]

    def with_histories(self, histories: Sequence[History]) -> "FreshBatch":
        """Return the same events, after one more attempt."""
        return replace(self, history=histories[0])

    def split_at(self, count: int) -> "tuple[FreshBatch, FreshBatch]":
        """Return the first `count` events, and the others."""
        middle = self.first + count
        first = FreshBatch(self.columns, self.first, middle, self.history)
        return first, FreshBatch(self.columns, middle, self.end, self.history)


@dataclass(frozen=True, slots=True)
class TriedBatch:
    """Events that were opened, each with its own history."""

    events: Sequence[TriedEvent]
    # As in FreshBatch.
    is_suspect: bool = False

    @property
    def event_count(self) -> int:
        return len(self.events)

    @property
    def facts(self) -> Facts:
        return facts_of([tried.envelope for tried in self.events])

    @property
    def histories(self) -> Sequence[History]:
        return [tried.history for tried in self.events]

    def body(self, destination: Destination) -> bytes:
        envelopes = [tried.envelope for tried in self.events]
        return join_body(envelopes, destination.body_format, fields=destination.fields)

    def traceparents(self) -> Iterator[str]:
        """Yield the traceparents of its events."""
        return filter(None, [tried.envelope.traceparent for tried in self.events])

    def tried(self) -> Sequence[TriedEvent]:
        return self.events

    def with_histories(self, histories: Sequence[History]) -> "TriedBatch":
        events = [
            TriedEvent(tried.envelope, history)
            for tried, history in zip(self.events, histories, strict=True)
        ]
        return replace(self, events=events)

    def split_at(self, count: int) -> "tuple[TriedBatch, TriedBatch]":
        return TriedBatch(self.events[:count]), TriedBatch(self.events[count:])


# The events of one HTTP call.
Batch: TypeAlias = FreshBatch | TriedBatch


def is_plain(destination: Destination) -> bool:
    """Say whether a destination takes a stream's events unchanged, so that none must be opened."""
    return (
        destination.body_format == "json"
        and destination.order == "none"
        and not destination.filter
        and not destination.fields
    )


def fresh_batches(
    columns: EventColumns, history: History, destination: Destination
) -> Iterator[FreshBatch]:
    """Yield batches of a destination's size, cut where `tried_batches` would cut them."""
    for first, end in cut(columns.value_starts, destination):
        yield FreshBatch(columns, first, end, history)


def tried_batches(tried: Sequence[TriedEvent], destination: Destination) -> Iterator[TriedBatch]:
    """Yield batches of a destination's size; members left out later only make a body smaller."""
    for batch in _groups(tried):
        if batch.is_suspect and fits(batch, destination):
            yield batch
            continue
        for first, end in cut(_starts(batch, destination), destination):
            yield TriedBatch(batch.events[first:end])


def fits(batch: TriedBatch, destination: Destination) -> bool:
    """Say whether a destination gets the batch in one request."""
    return len(list(cut(_starts(batch, destination), destination))) == 1


def refused_group(batch: Batch, destination: Destination) -> str:
    """Return the name that events of a suspect batch keep while they wait; empty for others."""
    if not batch.is_suspect:
        return ""
    return f"{batch.event_count}.{batch_id(destination.id, batch.facts.covered)}"


def _groups(tried: Sequence[TriedEvent]) -> Iterator[TriedBatch]:
    """Yield each refused batch that is complete, and the events between such batches."""
    others: list[TriedEvent] = []
    for name, each in groupby(tried, lambda event: event.history.refused_group):
        events = list(each)
        if name and name.partition(".")[0] == str(len(events)):
            yield TriedBatch(others)
            yield TriedBatch(events, is_suspect=True)
            others = []
        else:
            others += events
    yield TriedBatch(others)


def _starts(batch: TriedBatch, destination: Destination) -> list[int]:
    sizes = (len(_element(each.envelope, destination.body_format)) for each in batch.events)
    return list(accumulate(sizes, initial=0))


def cut(starts: Sequence[int], destination: Destination) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each batch, in sequence; each body is within the size.

    The cuts depend on the events alone. `starts` has the place where each event begins among their
    bytes, and where the last one ends. A single event over the size goes alone.
    """
    count_max = destination.request_count_max
    opening_bytes = 0 if destination.body_format == "ndjson" else 1
    first, count = 0, len(starts) - 1
    while first < count:
        end = min(first + count_max, count)
        # A comma, a line break or the closing bracket follows each event.
        end_max = destination.batch_bytes_max - opening_bytes + starts[first] + first
        if starts[end] + end > end_max:
            ends = range(end)
            end = bisect_right(ends, end_max, lo=first + 2, key=lambda at: starts[at] + at) - 1
        yield first, end
        first = end


def batch_id(destination_id: str, covered: Iterable[CoveredOffsets]) -> str:
    """Name a batch after its destination and the coordinates of every event in it."""
    digest = hashlib.blake2b(destination_id.encode(), digest_size=_BATCH_ID_BYTES)
    for part in covered:
        where = part.topic.encode(), part.partition, part.first, part.end
        digest.update(b"\0%b\0%d\0%d\0%d" % where)
    return f"msg_{digest.hexdigest()}"


def join_body(
    envelopes: Sequence[Envelope], body_format: BodyFormat, *, fields: Sequence[str] = ()
) -> bytes:
    """Return the request body: the events' own bytes, joined and never parsed.

    Events are cut down to some `fields` only for a destination that asks for that.
    """
    elements = [_element(envelope, body_format, fields) for envelope in envelopes]
    match body_format:
        case "json" | "cloudevents":
            return b"[%b]" % b",".join(elements)
        case "ndjson":
            return b"".join([element + b"\n" for element in elements])
        case "single":
            assert len(elements) == 1, "cut() leaves single events alone"
            return elements[0]
        case _:
            assert_never(body_format)


def _element(envelope: Envelope, body_format: BodyFormat, fields: Sequence[str] = ()) -> bytes:
    # A record without a value (not from the gateway) is null: empty text would break the array.
    value = envelope.value or b"null"
    if body_format == "cloudevents" and _is_cloud_event(value):
        # Keep its own source, which identifies it: ids are unique only within a source.
        return keep(value, (*fields, *_ATTRIBUTES)) if fields else value
    if fields:
        value = keep(value, fields)
    if body_format == "cloudevents":
        return _cloud_event(envelope, value)
    if body_format == "ndjson" and (b"\n" in value or b"\r" in value):
        # JSON has line breaks only between its tokens, where a blank means the same.
        return value.replace(b"\n", b" ").replace(b"\r", b" ")
    return value


def _is_cloud_event(value: bytes) -> bool:
    if b'"specversion"' not in value:
        return False
    try:
        _CLOUD_EVENT.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _cloud_event(envelope: Envelope, value: bytes) -> bytes:
    """Return a CloudEvents 1.0 wrapper around the untouched bytes."""
    facts = {
        "specversion": "1.0",
        "id": envelope.event_id,
        "source": f"/streams/{envelope.stream}",
        "type": "hifi.event",
        "time": _time(envelope.event_time_ms),
        "datacontenttype": "application/json",
    }
    if envelope.traceparent is not None:
        facts["traceparent"] = envelope.traceparent
    return b'%b,"data":%b}' % (json.dumps(facts).encode()[:-1], value)


def _time(time_ms: int) -> str:
    try:
        return rfc3339(time_ms)
    except OverflowError:
        # An event may claim a year that no calendar has; the epoch marks it as such.
        return rfc3339(0)
