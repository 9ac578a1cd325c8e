"""Makes dead letters of single events outside Spark plans."""

from shared.event.envelope import History, dead_headers, dead_value, open_stream_record
from shared.event.record import RecordIn, RecordOut
from shared.event.topics import DEAD
from shared.runtime.clock import now_ms


def letter_of(record: RecordIn, lane: str, *, reason: str, why: str) -> RecordOut:
    """The dead letter of an event of a stream, with its reason."""
    at_ms, envelope = now_ms(), open_stream_record(record)
    history = History(
        attempt_count=1,
        park_count=0,
        first_attempt_at_ms=at_ms,
        deadline_at_ms=at_ms,
        not_before_ms=at_ms,
        cause=reason,
        last_detail=why,
        last_attempt_at_ms=at_ms,
    )
    headers = dead_headers(envelope, lane, history, reason=reason, dead_at_ms=at_ms)
    return RecordOut(DEAD, lane.encode(), dead_value(envelope.value), headers)
