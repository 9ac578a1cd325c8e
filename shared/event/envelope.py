"""The facts that Hifi knows of an event, and how Kafka headers hold them.

The value bytes are the customer's and are never looked into here. A stream record that somebody
wrote past the gateway still opens (its facts are made from its coordinates); a retry record that
lacks a fact does not, and says why: guessing a deadline or a destination could lose the event.
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

# The version of the headers on retry and dead records; raise it when a reader must tell them apart.
HEADERS_VERSION = b"1"

# A broker takes records of a stream up to this size by default, and our gateway keeps under it: a
# waiting event that is larger was written by somebody else.
EVENT_BYTES_MAX = 1_048_588
# This much is kept of a record that nobody can open: with all facts about it, it still fits into
# the dead letters' topic. The whole of it stays where it was until the tier forgets it.
_KEPT_BYTES_MAX = 1_048_576
_KEPT_HEADERS_BYTES_MAX = 65_536
# Ours have a thousand or two; a few more may be a newer version's.
_HEADERS_BYTES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class History:
    """The history of an event on its way to one destination."""

    attempt_count: int
    park_count: int
    first_attempt_at_ms: int
    deadline_at_ms: int
    # The wait that the destination asked for; the broker's clock keeps the tier's own delay. It is
    # written down as a length, from when Kafka has the record: no two clocks are compared.
    not_before_ms: int
    cause: str = ""
    last_status: int | None = None
    last_detail: str = ""
    # True once any attempt ended without our knowing whether the destination took the event.
    is_ambiguous: bool = False
    # None until something was sent: a park is no attempt.
    last_attempt_at_ms: int | None = None
    # How often somebody has sent it again out of dead letters, and the last such order.
    redrive_count: int = 0
    redrive_id: str = ""
    # Mostly none: its replay, the restore that put it back, the refused batch that it is a part of.
    replay_id: str = ""
    restore_id: str = ""
    refused_group: str = ""

    @classmethod
    def fresh(cls, *, now_ms: int, deadline_s: float) -> "History":
        """The history of an event that is about to be tried for the first time."""
        return cls(
            attempt_count=0,
            park_count=0,
            first_attempt_at_ms=now_ms,
            deadline_at_ms=now_ms + round(deadline_s * 1000),
            not_before_ms=now_ms,
        )


@dataclass(frozen=True, slots=True)
class Envelope:
    """An event plus our facts. `history` is None until a first delivery has failed."""

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
    # Where the waiting copy was that this one was made from; None if it came from its stream.
    read_at: Origin | None = None

    @property
    def may_wait(self) -> bool:
        """Whether a tier may hold it; a larger one was written past the gateway."""
        key_bytes = 0 if self.key is None else len(self.key)
        return len(self.value) <= EVENT_BYTES_MAX and key_bytes <= TEXT_BYTES_MAX

    @property
    def travel(self) -> tuple[str, History]:
        """Destination and history of an event that was opened from a retry record."""
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
    """Headers of a record on a stream topic. Their order is fixed: readers may rely on it."""
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
    """The id in a header; an event without a readable one is named after its place.

    A repaired id could be the same as another event's.
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
    """Headers of a record on a retry tier: everything a later attempt needs to know.

    `now_ms` is by the clock that the history goes by.
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
        # A foreign error's text may hold what UTF-8 cannot; that must not stop the event.
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
    """Headers of a dead letter: the whole story, so that nobody has to look elsewhere."""
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
    """Headers of a record we could not open: its own, as they came, then why and from where."""
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
    """The part of a value that a dead letter keeps: all of it, or the beginning of a huge one."""
    return value if len(value) <= EVENT_BYTES_MAX else value[:_KEPT_BYTES_MAX]


def malformed_key(malformed: MalformedRecord) -> bytes | None:
    """The part of its key that a dead letter keeps."""
    return malformed.record.key and malformed.record.key[:TEXT_BYTES_MAX]


def open_retry_record(record: RecordIn) -> Envelope | MalformedRecord:
    """Read a record of a retry tier, or say what is wrong with it."""
    headers = dict(record.headers)
    if len(record.value) > EVENT_BYTES_MAX:
        return MalformedRecord(
            record, f"its value has {len(record.value)} bytes: no event is so large"
        )
    if (size := sum(len(raw) for _, raw in record.headers)) > _HEADERS_BYTES_MAX:
        return MalformedRecord(record, f"its headers have {size} bytes: we write no such")
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
    """As many of a stranger's headers as have room."""
    left, kept = _KEPT_HEADERS_BYTES_MAX, []
    for name, raw in headers:
        left -= len(name.encode(errors="replace")) + len(raw)
        if left < 0:
            break
        kept.append((name, raw))
    return tuple(kept)


def _rare_headers(history: History) -> Headers:
    """Headers that most waiting events do not need."""
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
        raise ValueError("written by a version that this one does not know")
    return raw


def time_of(raw: bytes | None, *, otherwise: int) -> int:
    try:
        return otherwise if raw is None else integer(raw)
    except ValueError:
        return otherwise
