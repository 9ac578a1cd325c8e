"""A dead letter: its content, its selection by filters, and how it is sent again.

A dead letter stays in its topic when it is sent again: a separate mark records that, and a second
attempt to send it finds the mark. The event keeps its id and its bytes; its history starts again.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from shared.event.envelope import (
    DESTINATION,
    EVENT_ID,
    LAST_DETAIL,
    REASON,
    STREAM,
    VALUE_BYTES,
    Envelope,
    History,
    MalformedRecord,
    open_retry_record,
)
from shared.event.payload import payload_of
from shared.event.record import RecordIn, RecordOut
from shared.event.topics import REDRIVEN, pipeline_of, stream_and_name
from shared.proof.last_answer import CUT, answer_of, is_answer
from shared.proof.receipt import ReceiptOutcome, facts_of, make_receipt
from shared.retry.decision import DETAIL_CHARS_MAX, MALFORMED_RETRY_RECORD, Park
from shared.retry.lifecycle import Move, State, next_state
from shared.retry.routing import route, route_receipt
from shared.retry.schedule import RetrySchedule

# The reason on the receipt of an event that somebody has sent again.
REDRIVEN_REASON = "redriven"

# The maximum number of digits of an offset. Only 0 to 9 are allowed: int() would also take others.
_DIGITS_MAX = 18
_PLACE = re.compile(r"([0-9]{1,18}):([0-9]{1,18})")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The place of a dead letter in its topic."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}:{self.offset}"

    @classmethod
    def of(cls, text: str) -> "Place":
        """Read what `str` has written; ValueError for anything else."""
        place = _PLACE.fullmatch(text)
        if place is None:
            raise ValueError(f"{text[:50]!r} is not a place such as 0:17")
        return cls(int(place[1]), int(place[2]))


@dataclass(frozen=True, slots=True, order=True)
class Age:
    """A sort key: the time of death, and the place if events died in the same millisecond."""

    dead_at_ms: int
    place: Place

    def __str__(self) -> str:
        return f"{self.dead_at_ms}:{self.place}"

    @classmethod
    def of(cls, text: str) -> "Age":
        """Read what `str` has written; ValueError for anything else."""
        dead_at_ms, _, place = text.partition(":")
        if not (dead_at_ms.isdecimal() and dead_at_ms.isascii() and len(dead_at_ms) <= _DIGITS_MAX):
            raise ValueError(f"{text[:50]!r} is not an age such as 1700000000000:0:17")
        return cls(int(dead_at_ms), Place.of(place))


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter as it was read: an event with its history, or a record nobody can open."""

    place: Place
    dead_at_ms: int
    reason: str
    stream: str
    destination_id: str
    event_id: str
    # The size of the event, even if its bytes were not kept.
    byte_count: int
    value: bytes
    opened: Envelope | MalformedRecord

    @property
    def age(self) -> Age:
        return Age(self.dead_at_ms, self.place)

    @property
    def can_be_redriven(self) -> bool:
        """Whether a tier can take it again; a pipeline's letter must go through the pipeline."""
        return isinstance(self.opened, Envelope) and pipeline_of(self.destination_id) is None

    @property
    def answer(self) -> str:
        """The last answer, by which dead letters are grouped."""
        if isinstance(self.opened, MalformedRecord):
            return ""
        _, history = self.opened.travel
        was_cut = len(history.last_detail) == DETAIL_CHARS_MAX
        text = history.last_detail + (CUT if was_cut else "")
        return answer_of(self.reason, history.cause, text)


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """A selection of dead letters; a member that is None selects all."""

    stream: str | None = None
    # Tells whether the caller may see the letters of a stream.
    sees: Callable[[str], bool] | None = None
    # The destination's name, or stream/name.
    destination: str | None = None
    # A trailing * stands for anything: status_4*.
    reason: str | None = None
    # From this time on, by the broker's clock at the time of death.
    from_ms: int | None = None
    # Up to, but not including, this time.
    to_ms: int | None = None
    event_id: str | None = None
    # As `answer_of` returns it; a trailing * stands for anything.
    answer: str | None = None

    def takes(self, letter: Letter) -> bool:
        to = letter.destination_id
        return (
            self.takes_stream(letter.stream)
            and self.destination in {None, to, stream_and_name(to)[1]}
            and self._is_reason(letter.reason)
            and (self.from_ms is None or letter.dead_at_ms >= self.from_ms)
            and (self.to_ms is None or letter.dead_at_ms < self.to_ms)
            and self.event_id in {None, letter.event_id}
            and (self.answer is None or is_answer(letter.answer, self.answer))
        )

    def takes_stream(self, stream: str) -> bool:
        return self.stream in {None, stream} and (self.sees is None or self.sees(stream))

    def _is_reason(self, reason: str) -> bool:
        if self.reason is not None and self.reason.endswith("*"):
            return reason.startswith(self.reason[:-1])
        return self.reason in {None, reason}


def open_letter(record: RecordIn, *, keeps_value: bool = True) -> Letter:
    """Read a record of the dead letters' topic; never fail, whoever wrote it."""
    byte_count = len(record.value)
    if not keeps_value:
        record = replace(record, value=b"")
    texts = {name: raw.decode(errors="replace") for name, raw in record.headers}
    opened = open_retry_record(record)
    if texts.get(REASON) == MALFORMED_RETRY_RECORD:
        # Some of its headers are ours and name its former place: it must not pass for an event.
        opened = MalformedRecord(record, texts.get(LAST_DETAIL, ""))
    elif VALUE_BYTES in texts:
        opened = MalformedRecord(
            record, f"only the beginning of its {texts[VALUE_BYTES]} bytes is kept"
        )
    return Letter(
        place=Place(record.origin.partition, record.origin.offset),
        dead_at_ms=record.timestamp_ms,
        reason=texts.get(REASON, ""),
        stream=texts.get(STREAM, ""),
        destination_id=texts.get(DESTINATION, ""),
        event_id=texts.get(EVENT_ID, ""),
        byte_count=byte_count,
        value=record.value,
        opened=opened,
    )


def story_of(letter: Letter) -> dict[str, Any]:
    """Return everything known about a dead letter except its bytes, under the public names."""
    story: dict[str, Any] = {
        "place": str(letter.place),
        "dead_at_ms": letter.dead_at_ms,
        "stream": letter.stream,
        "destination": letter.destination_id,
        "reason": letter.reason,
        "id": letter.event_id,
        "bytes": letter.byte_count,
    }
    if isinstance(letter.opened, MalformedRecord):
        return {**story, "problem": letter.opened.problem}
    envelope = letter.opened
    _, history = envelope.travel
    return {
        **story,
        "attempts": history.attempt_count,
        "parks": history.park_count,
        "cause": history.cause,
        "last_status": history.last_status,
        "last_detail": history.last_detail,
        "may_be_duplicate": history.is_ambiguous,
        "event_time_ms": envelope.event_time_ms,
        "accepted_at_ms": envelope.accepted_at_ms,
        "first_attempt_at_ms": history.first_attempt_at_ms,
        "last_attempt_at_ms": history.last_attempt_at_ms,
        "deadline_at_ms": history.deadline_at_ms,
        "redrives": history.redrive_count,
        "origin": envelope.origin._asdict(),
    }


def export_line(letter: Letter) -> bytes:
    """Return a line of NDJSON with Event Grid's names, which contains the event's own bytes."""
    fields: dict[str, Any] = {
        "id": letter.event_id,
        "stream": letter.stream,
        "destination": letter.destination_id,
        "deadLetterReason": letter.reason,
        "deadLetterTime": _iso(letter.dead_at_ms),
        **_delivery_of(letter.opened),
    }
    payload = payload_of(letter.value)
    if "data" not in payload:
        return json.dumps({**fields, **payload}).encode() + b"\n"
    # JSON may have line breaks only outside its strings.
    data = letter.value.replace(b"\n", b" ").replace(b"\r", b" ")
    return b'%b, "data": %b}\n' % (json.dumps(fields)[:-1].encode(), data)


def redriven_rows(
    letters: Sequence[Letter], *, schedule: RetrySchedule, redrive_id: str, now_ms: int
) -> list[RecordOut]:
    """Return the records to write, all or none, to resend dead letters: waits, receipts, marks."""
    rows: list[RecordOut] = []
    mark = json.dumps({"redrive_id": redrive_id, "at_ms": now_ms}).encode()
    groups: dict[tuple[str, int], list[Envelope]] = {}
    for letter in letters:
        assert isinstance(letter.opened, Envelope), "only letters that can be opened are sent again"
        destination_id, before = letter.opened.travel
        history = replace(
            History.fresh(now_ms=now_ms, deadline_s=schedule.deadline_s),
            cause=REDRIVEN_REASON,
            # It may have arrived before it was given up.
            is_ambiguous=before.is_ambiguous,
            redrive_count=before.redrive_count + 1,
            redrive_id=redrive_id,
        )
        # Many redriven events must not delay events that were tried and are due.
        waits = Park(schedule.tiers[0], history)
        rows.append(route(waits, letter.opened, destination_id, now_ms=now_ms))
        rows.append(RecordOut(topic=REDRIVEN, key=str(letter.place).encode(), value=mark))
        groups.setdefault((destination_id, history.redrive_count), []).append(letter.opened)
    outcome = ReceiptOutcome(next_state(State.DEAD, Move.REDRIVE).value)
    for (destination_id, redrive_count), envelopes in groups.items():
        receipt = make_receipt(
            facts_of(envelopes),
            destination_id=destination_id,
            outcome=outcome,
            reason=REDRIVEN_REASON,
            batch_id="",
            attempt=0,
            started_at_ms=now_ms,
            ended_at_ms=now_ms,
            redrive_count=redrive_count,
        )
        rows.append(route_receipt(receipt))
    return rows


def marked_place(key: bytes | None) -> Place | None:
    """The dead letter that a mark is about; None if it is not one of our marks."""
    try:
        return Place.of((key or b"").decode())
    except ValueError:
        return None


def _delivery_of(opened: Envelope | MalformedRecord) -> Mapping[str, Any]:
    """Return the letter's delivery attempts, under Event Grid's names."""
    if isinstance(opened, MalformedRecord):
        return {"problem": opened.problem}
    _, history = opened.travel
    return {
        "deliveryAttempts": history.attempt_count,
        "lastDeliveryOutcome": history.cause,
        "lastHttpStatusCode": history.last_status,
        "lastResponse": history.last_detail,
        "eventTime": _iso(opened.event_time_ms),
        "publishTime": _iso(opened.accepted_at_ms),
        "lastDeliveryAttemptTime": _iso(history.last_attempt_at_ms),
    }


def _iso(at_ms: int | None) -> str | None:
    """A time as Event Grid writes it; None if there is no time, or one that no calendar has."""
    if at_ms is None:
        return None
    try:
        return datetime.fromtimestamp(at_ms / 1000, tz=UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return None
