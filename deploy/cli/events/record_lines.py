"""Shows a Kafka record of ours: a line for people, a JSON object for programs."""

import json
from datetime import UTC, datetime
from typing import Any

from deploy.cli.printing import harmless, value_text
from shared.event.envelope import REASON, Malformed, open_retry_record, open_stream_record
from shared.event.record import RecordIn
from shared.event.topics import RECEIPTS, STREAM_PREFIX


def facts_of(record: RecordIn) -> dict[str, Any]:
    """What the headers of a record say, by the names that people know."""
    if record.origin.topic == RECEIPTS:
        return {}
    if record.origin.topic.startswith(STREAM_PREFIX):
        envelope = open_stream_record(record)
        return {"id": envelope.event_id, "event_time_ms": envelope.event_time_ms}
    reason = _text(dict(record.headers).get(REASON))
    opened = open_retry_record(record)
    facts: dict[str, Any] = {} if reason is None else {"reason": reason}
    if isinstance(opened, Malformed):
        return {**facts, "problem": opened.problem}
    destination, history = opened.travel
    return {
        "id": opened.event_id,
        "destination": destination,
        **facts,
        "last_status": history.last_status,
        "last_detail": history.last_detail,
        "attempts": history.attempt_count,
        "may_be_duplicate": history.is_ambiguous,
        "origin": opened.origin._asdict(),
    }


def as_json(record: RecordIn, *, with_headers: bool) -> str:
    """Everything, on one line."""
    fields: dict[str, Any] = {
        "topic": record.origin.topic,
        "partition": record.origin.partition,
        "offset": record.origin.offset,
        "time_ms": record.timestamp_ms,
        **facts_of(record),
        "key": _text(record.key),
        "value": _value(record.value),
    }
    if with_headers:
        fields["headers"] = {name: _text(raw) for name, raw in record.headers}
    # Half a surrogate pair is fine JSON and cannot be printed, so everything is escaped.
    return json.dumps(fields)


def as_line(record: RecordIn, *, with_headers: bool) -> str:
    """Time, place, facts, key and value; the headers on lines of their own."""
    time = datetime.fromtimestamp(record.timestamp_ms / 1000, tz=UTC).astimezone()
    words = [
        time.strftime("%H:%M:%S.") + f"{record.timestamp_ms % 1000:03}",
        f"{record.origin.partition}:{record.origin.offset}",
        *(
            f"{name}={_word(fact)}"
            for name, fact in facts_of(record).items()
            if name not in {"event_time_ms", "origin", "may_be_duplicate"}
            and fact not in {None, ""}
        ),
    ]
    if record.key is not None:
        words.append(f"key={_word(_text(record.key))}")
    line = "  ".join((*words, value_text(record.value)))
    if not with_headers:
        return line
    headers = (
        f"\n    {harmless(name)}: {harmless(_text(raw) or '')}" for name, raw in record.headers
    )
    return line + "".join(headers)


def _word(fact: Any) -> str:
    """One word without spaces, or the same in quotes: a line must stay readable by eye."""
    text = harmless(str(fact))
    return json.dumps(text, ensure_ascii=False) if " " in text or not text else text


def _value(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return raw.decode(errors="replace")


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode(errors="replace")
