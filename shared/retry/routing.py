"""Routes an outcome: sets its topic, key and headers, and leaves the value unchanged."""

from collections.abc import Iterable
from typing import assert_never

from shared.event.envelope import (
    Envelope,
    MalformedRecord,
    dead_headers,
    dead_value,
    malformed_headers,
    malformed_key,
    retry_headers,
)
from shared.event.record import RecordOut
from shared.event.topics import DEAD, RECEIPTS, STATE, retry_key, retry_topic
from shared.proof.receipt import Receipt, sheets_of
from shared.retry.decision import (
    MALFORMED_RETRY_RECORD,
    DeadLetter,
    RetryLater,
    Waiting,
)
from shared.retry.schedule import SLOW


def route(
    decision: Waiting | DeadLetter,
    envelope: Envelope,
    destination_id: str,
    *,
    now_ms: int,
) -> RecordOut:
    """The record that keeps an undelivered event."""
    match decision:
        case Waiting():
            return RecordOut(
                topic=_topic_of(decision),
                key=retry_key(destination_id),
                value=envelope.value,
                headers=retry_headers(envelope, destination_id, decision.history, now_ms=now_ms),
            )
        case DeadLetter():
            return RecordOut(
                topic=DEAD,
                key=destination_id.encode(),
                value=dead_value(envelope.value),
                headers=dead_headers(
                    envelope,
                    destination_id,
                    decision.history,
                    reason=decision.reason,
                    dead_at_ms=now_ms,
                ),
            )
        case _:
            assert_never(decision)


def _topic_of(decision: Waiting) -> str:
    is_parked = not isinstance(decision, RetryLater) and decision.tier != SLOW
    return retry_topic(decision.tier.name, is_parked=is_parked)


def route_malformed(malformed: MalformedRecord, *, now_ms: int) -> RecordOut:
    """The record that keeps a retry tier's record which cannot be opened."""
    return RecordOut(
        topic=DEAD,
        key=malformed_key(malformed),
        value=dead_value(malformed.record.value),
        headers=malformed_headers(malformed, reason=MALFORMED_RETRY_RECORD, dead_at_ms=now_ms),
    )


def route_receipt(receipt: Receipt) -> RecordOut:
    return RecordOut(
        topic=RECEIPTS,
        key=receipt.destination_id.encode(),
        value=receipt.to_json(),
    )


def in_sheets(rows: Iterable[RecordOut]) -> list[RecordOut]:
    """The same outcomes, with the receipts of each destination in as few records as possible."""
    others: list[RecordOut] = []
    lines: dict[bytes | None, list[bytes]] = {}
    for row in rows:
        if row.topic == RECEIPTS:
            lines.setdefault(row.key, []).append(row.value)
        else:
            others.append(row)
    sheets = [(key, sheet) for key, receipts in lines.items() for sheet in sheets_of(receipts)]
    return others + [RecordOut(topic=RECEIPTS, key=key, value=sheet) for key, sheet in sheets]


def route_state(destination_id: str, value: bytes) -> RecordOut:
    """The record that gives others the state of a destination; the newest one counts."""
    return RecordOut(topic=STATE, key=destination_id.encode(), value=value)
