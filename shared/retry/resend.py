"""Sends an event again to a destination that has taken it before."""

from collections.abc import Mapping
from dataclasses import replace

from shared.event.envelope import Envelope, History
from shared.event.record import RecordOut
from shared.proof.receipt import ReceiptOutcome, facts_of, make_receipt
from shared.retry.decision import Park
from shared.retry.routing import route, route_receipt
from shared.retry.schedule import RetrySchedule

# The reason on the receipt of an event that somebody has sent again after it had arrived.
RESENT_REASON = "resent"
# Why an event is not sent again to a destination, by its state there.
LEFT_ALONE: Mapping[str, str] = {
    "queued": "it has not been tried there yet",
    "waiting": "it waits there for its next attempt anyway",
    "unknown": "its state could not be read in time",
    "dead": "it was sent again meanwhile, or its dead letter is gone",
}


def resent_rows(
    event: Envelope,
    destination_id: str,
    *,
    schedule: RetrySchedule,
    resend_id: str,
    restore_id: str = "",
    now_ms: int,
) -> list[RecordOut]:
    """Return the records to write, all or none: the event in the first retry tier, and a receipt.

    In the books the event stays delivered, however this ends, because the destination has taken it
    once. The new requests are labelled like those of a replay.
    """
    history = replace(
        History.fresh(now_ms=now_ms, deadline_s=schedule.deadline_s),
        cause=RESENT_REASON,
        is_ambiguous=True,
        replay_id=resend_id,
        restore_id=restore_id,
    )
    receipt = make_receipt(
        facts_of([event]),
        destination_id=destination_id,
        outcome=ReceiptOutcome.WAITING,
        reason=RESENT_REASON,
        batch_id="",
        attempt=0,
        started_at_ms=now_ms,
        ended_at_ms=now_ms,
    )
    waits = Park(schedule.tiers[0], history)
    return [route(waits, event, destination_id, now_ms=now_ms), route_receipt(receipt)]
