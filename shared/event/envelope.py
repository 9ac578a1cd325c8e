"""Converts Hifi's facts about an event to and from Kafka headers.

The value's bytes are the customer's and are never read here. A stream record written by another
program than the gateway still opens: missing facts are made from its coordinates. A retry record
without a necessary fact does not open, and the result says why: with a guessed deadline or
destination the event could be lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shared.event.header_values import (
    TEXT_BYTES_MAX,
    flag,
    if_there,
    integer,
    natural,
    need,
    place,
    place_value,
    strict_text,
    text,
)
from shared.event.record import Headers, Origin, RecordIn
from shared.event.topics import stream_of

EVENT_ID = "event-id"
EVENT_TIME = "event-time-ms"
ACCEPTED_AT = "accepted-at-ms"
TRACEPARENT = "traceparent"

VERSION = "v"
STREAM = "stream"
DESTINATION = "destination"
ORIGIN_TOPIC = "origin-topic"
ORIGIN_PARTITION = "origin-partition"
ORIGIN_OFFSET = "origin-offset"
ORDERING_KEY = "ordering-key"
ATTEMPT = "attempt"
PARKS = "parks"
FIRST_ATTEMPT_AT = "first-attempt-at-ms"
DEADLINE_AT = "deadline-at-ms"
WAIT = "wait-ms"
CAUSE = "cause"
LAST_STATUS = "last-status"
LAST_DETAIL = "last-detail"
AMBIGUOUS = "ambiguous"
LAST_ATTEMPT_AT = "last-attempt-at-ms"
REDRIVE_ID = "redrive-id"
REPLAY_ID = "replay-id"
RESTORE_ID = "restore-id"
REFUSED_GROUP = "refused-group"
REDRIVES = "redrives"
READ_AT = "read-at"

VALUE_BYTES = "value-bytes"
REASON = "reason"
DEAD_AT = "dead-at-ms"

# The version of headers of retry and dead records; raise it when readers must distinguish them.
HEADERS_VERSION = b"1"

# Kafka's default limit for a stream's records. The gateway stays below it, so a larger waiting
# event was written by another program.
EVENT_BYTES_MAX = 1_048_588
# A dead letter keeps this much of a larger or unreadable record, so that it fits into its topic
# with all facts. The whole record stays in the tier until its retention ends.
_KEPT_BYTES_MAX = 1_048_576
_KEPT_HEADERS_BYTES_MAX = 65_536
# Our headers have 1 to 2 kB; those of a newer version may be longer.
_HEADERS_BYTES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class History:
    """The history of an event on its way to one destination."""

    attempt_count: int
    park_count: int
    first_attempt_at_ms: int
    deadline_at_ms: int
    # The end of the wait that the destination asked for; the tier's own delay goes by the broker's
    # clock. Headers hold it as a length from the time when Kafka stored the record, so that two
    # clocks are never compared.
    not_before_ms: int
    cause: str = ""
    last_status: int | None = None
    last_detail: str = ""
    # True once an attempt ended without showing whether the destination accepted the event.
    is_ambiguous: bool = False
    # None until the event was sent: a park is not an attempt.
    last_attempt_at_ms: int | None = None
    # How often it was redriven, and the id of the last redrive.
    redrive_count: int = 0
    redrive_id: str = ""
    # Usually empty: its replay, the restore that put it back, the refused batch that contained it.
    replay_id: str = ""
    restore_id: str = ""
    refused_group: str = ""

    @classmethod
    def fresh(cls, *, now_ms: int, deadline_s: float) -> "History":
        """Return the history of an event before its first attempt."""
        return cls(
            attempt_count=0,
            park_count=0,
            first_attempt_at_ms=now_ms,
            deadline_at_ms=now_ms + round(deadline_s * 1000),
            not_before_ms=now_ms,
        )


@dataclass(frozen=True, slots=True)
class Envelope:
    """An event with Hifi's facts. `history` is None until a first delivery has failed."""

    origin: Origin
    value: bytes
    key: bytes | None
    stream: str
    event_id: str
    event_time_ms: int
    accepted_at_ms: int
    traceparent: str | None = None
    destination_id: str | None = None
    history: History | None = None
    # The place of the waiting copy that it was read from; None if it was read from its stream.
    read_at: Origin | None = None

    @property
    def may_wait(self) -> bool:
        """Whether it is small enough for a tier; only events that bypassed the gateway are not."""
        key_bytes = 0 if self.key is None else len(self.key)
        return len(self.value) <= EVENT_BYTES_MAX and key_bytes <= TEXT_BYTES_MAX

    @property
    def travel(self) -> tuple[str, History]:
        """The destination and history of an event from a retry record."""
        assert self.destination_id is not None, "a stream record belongs to no destination yet"
        assert self.history is not None, "a stream record has no history yet"
        return self.destination_id, self.history


@dataclass(frozen=True, slots=True)
class MalformedRecord:
    """A retry record that cannot be opened; it goes to dead letters with `problem`."""

    record: RecordIn
    problem: str


def event_headers(
    *,
    event_id: str,
    event_time_ms: int,
    accepted_at_ms: int,
    traceparent: str | None = None,
) -> Headers:
    """Return the headers of a stream record. Their order is fixed: readers may rely on it."""
    headers = (
        (EVENT_ID, event_id.encode()),
        (EVENT_TIME, b"%d" % event_time_ms),
        (ACCEPTED_AT, b"%d" % accepted_at_ms),
    )
    return headers if traceparent is None else (*headers, (TRACEPARENT, traceparent.encode()))


def open_stream_record(record: RecordIn) -> Envelope:
    """Read a record of a stream topic; it never fails, whoever wrote the record."""
    headers, origin = dict(record.headers), record.origin
    return Envelope(
        origin=origin,
        value=record.value,
        key=record.key,
        stream=stream_of(origin.topic),
        event_id=event_id_of(headers.get(EVENT_ID), origin),
        event_time_ms=time_of(headers.get(EVENT_TIME), otherwise=record.timestamp_ms),
        accepted_at_ms=time_of(headers.get(ACCEPTED_AT), otherwise=record.timestamp_ms),
        traceparent=trace_of(headers.get(TRACEPARENT)),
    )


def event_id_of(raw: bytes | None, origin: Origin) -> str:
    """Return the id in a header; if it is unreadable, make one from the event's place.

    A repaired id could be equal to another event's.
    """
    try:
        event_id = strict_text(raw) if raw else ""
    except ValueError:
        event_id = ""
    return event_id or f"{origin.topic}:{origin.partition}:{origin.offset}"


def trace_of(raw: bytes | None) -> str | None:
    return None if raw is None or len(raw) > TEXT_BYTES_MAX else text(raw) or None


def retry_headers(
    envelope: Envelope, destination_id: str, history: History, *, now_ms: int
) -> Headers:
    """Return the headers of a record in a retry tier: everything that a later attempt needs.

    `now_ms` is from the same clock as the history.
    """
    return (
        (VERSION, HEADERS_VERSION),
        *event_headers(
            event_id=envelope.event_id,
            event_time_ms=envelope.event_time_ms,
            accepted_at_ms=envelope.accepted_at_ms,
            traceparent=envelope.traceparent,
        ),
        (STREAM, envelope.stream.encode()),
        (DESTINATION, destination_id.encode()),
        (ORIGIN_TOPIC, envelope.origin.topic.encode()),
        (ORIGIN_PARTITION, b"%d" % envelope.origin.partition),
        (ORIGIN_OFFSET, b"%d" % envelope.origin.offset),
        *(() if envelope.key is None else ((ORDERING_KEY, envelope.key),)),
        (ATTEMPT, b"%d" % history.attempt_count),
        (PARKS, b"%d" % history.park_count),
        (FIRST_ATTEMPT_AT, b"%d" % history.first_attempt_at_ms),
        (DEADLINE_AT, b"%d" % history.deadline_at_ms),
        (WAIT, b"%d" % (history.not_before_ms - now_ms)),
        (CAUSE, history.cause.encode()),
        *(() if history.last_status is None else ((LAST_STATUS, b"%d" % history.last_status),)),
        # A foreign error may have characters that UTF-8 lacks; they must not stop the event.
        (LAST_DETAIL, history.last_detail.encode(errors="replace")),
        (AMBIGUOUS, b"1" if history.is_ambiguous else b"0"),
        *_rare_headers(history),
        *(() if envelope.read_at is None else ((READ_AT, place_value(envelope.read_at)),)),
    )


def dead_headers(
    envelope: Envelope,
    destination_id: str,
    history: History,
    *,
    reason: str,
    dead_at_ms: int,
) -> Headers:
    """Return the headers of a dead letter: all facts, so that nobody must look elsewhere."""
    whole_bytes = len(envelope.value)
    is_cut = not envelope.may_wait
    if is_cut:
        envelope = replace(envelope, key=envelope.key and envelope.key[:TEXT_BYTES_MAX])
    return (
        *retry_headers(envelope, destination_id, history, now_ms=dead_at_ms),
        *(((VALUE_BYTES, b"%d" % whole_bytes),) if is_cut else ()),
        (REASON, reason.encode()),
        (DEAD_AT, b"%d" % dead_at_ms),
    )


def malformed_headers(malformed: MalformedRecord, *, reason: str, dead_at_ms: int) -> Headers:
    """Return the headers of an unreadable record: its own ones, then its place and the reason."""
    origin = malformed.record.origin
    whole_bytes = len(malformed.record.value)
    is_cut = whole_bytes > EVENT_BYTES_MAX
    return (
        *_kept(malformed.record.headers),
        *(((VALUE_BYTES, b"%d" % whole_bytes),) if is_cut else ()),
        (ORIGIN_TOPIC, origin.topic.encode()),
        (ORIGIN_PARTITION, b"%d" % origin.partition),
        (ORIGIN_OFFSET, b"%d" % origin.offset),
        (REASON, reason.encode()),
        (LAST_DETAIL, malformed.problem.encode()),
        (DEAD_AT, b"%d" % dead_at_ms),
    )


def dead_value(value: bytes) -> bytes:
    """Return the part of a value that a dead letter keeps: all, or the beginning of a huge one."""
    return value if len(value) <= EVENT_BYTES_MAX else value[:_KEPT_BYTES_MAX]


def malformed_key(malformed: MalformedRecord) -> bytes | None:
    """Return the bytes of an unreadable record's key that a dead letter keeps."""
    return malformed.record.key and malformed.record.key[:TEXT_BYTES_MAX]


def open_retry_record(record: RecordIn) -> Envelope | MalformedRecord:
    """Read a record of a retry tier, or return it with the problem."""
    headers = dict(record.headers)
    if len(record.value) > EVENT_BYTES_MAX:
        return MalformedRecord(
            record, f"its value has {len(record.value)} bytes, more than any event"
        )
    if (size := sum(len(raw) for _, raw in record.headers)) > _HEADERS_BYTES_MAX:
        return MalformedRecord(record, f"its headers have {size} bytes, more than Hifi writes")
    try:
        need(headers, VERSION, _known_version)
        return Envelope(
            origin=Origin(
                topic=need(headers, ORIGIN_TOPIC, strict_text),
                partition=need(headers, ORIGIN_PARTITION, natural),
                offset=need(headers, ORIGIN_OFFSET, natural),
            ),
            value=record.value,
            key=headers.get(ORDERING_KEY),
            stream=need(headers, STREAM, strict_text),
            event_id=need(headers, EVENT_ID, strict_text),
            event_time_ms=need(headers, EVENT_TIME, integer),
            accepted_at_ms=need(headers, ACCEPTED_AT, integer),
            traceparent=text(headers.get(TRACEPARENT)) or None,
            destination_id=need(headers, DESTINATION, strict_text),
            history=_open_history(headers, stored_at_ms=record.timestamp_ms),
            read_at=if_there(headers, READ_AT, place),
        )
    except ValueError as error:
        return MalformedRecord(record=record, problem=str(error))


def _open_history(headers: Mapping[str, bytes], *, stored_at_ms: int) -> History:
    return History(
        attempt_count=need(headers, ATTEMPT, natural),
        park_count=need(headers, PARKS, natural),
        first_attempt_at_ms=need(headers, FIRST_ATTEMPT_AT, integer),
        deadline_at_ms=need(headers, DEADLINE_AT, integer),
        not_before_ms=stored_at_ms + need(headers, WAIT, integer),
        cause=text(headers.get(CAUSE))[:TEXT_BYTES_MAX],
        last_status=if_there(headers, LAST_STATUS, integer),
        last_detail=text(headers.get(LAST_DETAIL))[:TEXT_BYTES_MAX],
        is_ambiguous=need(headers, AMBIGUOUS, flag),
        last_attempt_at_ms=if_there(headers, LAST_ATTEMPT_AT, integer),
        redrive_count=if_there(headers, REDRIVES, natural) or 0,
        redrive_id=text(headers.get(REDRIVE_ID)),
        replay_id=text(headers.get(REPLAY_ID)),
        restore_id=text(headers.get(RESTORE_ID)),
        refused_group=text(headers.get(REFUSED_GROUP))[:TEXT_BYTES_MAX],
    )


def _kept(headers: Headers) -> Headers:
    """Return as many of a foreign record's headers as have room."""
    left, kept = _KEPT_HEADERS_BYTES_MAX, []
    for name, raw in headers:
        left -= len(name.encode(errors="replace")) + len(raw)
        if left < 0:
            break
        kept.append((name, raw))
    return tuple(kept)


def _rare_headers(history: History) -> Headers:
    """Return the headers that most waiting events do not need."""
    last_ms, redrives = history.last_attempt_at_ms, history.redrive_count
    texts = {REDRIVE_ID: history.redrive_id, REPLAY_ID: history.replay_id}
    texts |= {RESTORE_ID: history.restore_id, REFUSED_GROUP: history.refused_group}
    return (
        *(() if last_ms is None else ((LAST_ATTEMPT_AT, b"%d" % last_ms),)),
        *(() if not redrives else ((REDRIVES, b"%d" % redrives),)),
        *((name, value.encode()) for name, value in texts.items() if value),
    )


def _known_version(raw: bytes) -> bytes:
    if raw != HEADERS_VERSION:
        raise ValueError("written by an unknown version")
    return raw


def time_of(raw: bytes | None, *, otherwise: int) -> int:
    try:
        return otherwise if raw is None else integer(raw)
    except ValueError:
        return otherwise
