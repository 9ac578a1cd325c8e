"""Decides which events go into one HTTP call, what the call is named, and what its body is.

The grouping is a function of the events alone, so a replay after a crash forms the same batches
with the same ids, and a receiver can drop a repeated one by its header.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from shared.config.destination import BodyFormat
from shared.config.selection import keep
from shared.event.envelope import Envelope
from shared.event.times import rfc3339
from shared.proof.receipt import Covered

CONTENT_TYPES: dict[BodyFormat, str] = {
    "json": "application/json",
    "cloudevents": "application/cloudevents-batch+json",
    "ndjson": "application/x-ndjson",
    "single": "application/json",
}
# 96 bits: no two batches of one destination meet in practice (2^48 batches for an even chance).
_BATCH_ID_BYTES = 12


def chunks(
    envelopes: Sequence[Envelope],
    *,
    count_max: int,
    bytes_max: int,
    body_format: BodyFormat = "json",
) -> Iterator[Sequence[Envelope]]:
    """Cut events into batches in their order, each body within the size.

    One event over the size goes alone. Members that are left out later only make a body smaller.
    """
    if body_format == "single":
        count_max = 1
    start = 0
    opening_bytes = 0 if body_format == "ndjson" else 1
    body_bytes = opening_bytes
    for at, envelope in enumerate(envelopes):
        # With the comma or line break before the next, or the closing bracket.
        event_bytes = len(_element(envelope, body_format)) + 1
        if at > start and (at - start >= count_max or body_bytes + event_bytes > bytes_max):
            yield envelopes[start:at]
            start, body_bytes = at, opening_bytes
        body_bytes += event_bytes
    if start < len(envelopes):
        yield envelopes[start:]


def batch_id(destination_id: str, covered: Iterable[Covered]) -> str:
    """Name a batch after its destination and the coordinates of every event in it."""
    digest = hashlib.blake2b(destination_id.encode(), digest_size=_BATCH_ID_BYTES)
    for part in covered:
        where = part.topic.encode(), part.partition, part.first, part.end
        digest.update(b"\0%b\0%d\0%d\0%d" % where)
    return f"msg_{digest.hexdigest()}"


def join_body(
    envelopes: Sequence[Envelope], body_format: BodyFormat, *, fields: Sequence[str] = ()
) -> bytes:
    """The request body: the events' own bytes, joined and never parsed.

    Only a destination that wants some `fields` has its events cut down to those.
    """
    elements = [_element(envelope, body_format, fields) for envelope in envelopes]
    match body_format:
        case "json" | "cloudevents":
            return b"[%b]" % b",".join(elements)
        case "ndjson":
            return b"".join([element + b"\n" for element in elements])
        case "single":
            assert len(elements) == 1, "chunks() cuts single events"
            return elements[0]
        case _:
            assert_never(body_format)


def _element(envelope: Envelope, body_format: BodyFormat, fields: Sequence[str] = ()) -> bytes:
    # A record without a value (written past the gateway) is null; nothing would break the array.
    value = envelope.value or b"null"
    if fields:
        value = keep(value, fields)
    if body_format == "cloudevents":
        return _cloud_event(envelope, value)
    if body_format == "ndjson" and (b"\n" in value or b"\r" in value):
        # JSON has line breaks between its tokens only, where a blank does as well.
        return value.replace(b"\n", b" ").replace(b"\r", b" ")
    return value


def _cloud_event(envelope: Envelope, value: bytes) -> bytes:
    """A CloudEvents 1.0 wrapper around the untouched bytes."""
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
