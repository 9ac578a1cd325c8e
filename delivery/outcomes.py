"""Makes the rows of a decided batch: its undelivered events, and its receipts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from delivery.batches import Batch, TriedEvent
from delivery.courier import Exchange
from delivery.opening import OpenedRows
from shared.event.record import Origin, RecordOut
from shared.proof.last_answer import share_room
from shared.proof.receipt import Facts, ReceiptOutcome, facts_of, make_receipt
from shared.retry.decision import FILTERED, DeadLetter, Final, Hop, Park, RetryLater, Success
from shared.retry.lifecycle import MOVE_OF, State, next_state
from shared.retry.routing import route, route_malformed, route_receipt

# At most this many unsent events share a receipt: each may need an interval of its own, with its
# topic's name of up to 249 bytes, and Kafka takes records of up to 2 MiB.
_UNSENT_EVENTS_MAX = 1_000

# The reason for events that a destination took from a batch whose report names others as failed.
PARTLY_TAKEN = "status_partial"

# The facts that many events can share in one receipt: outcome, reason, attempts, redrives.
Kind: TypeAlias = tuple[ReceiptOutcome, str, int, int]


def outcomes_of(
    destination_id: str,
    decided: Sequence[tuple[TriedEvent, Final | Hop]],
    exchange: Exchange,
    *,
    read_at: Origin | None,
) -> list[RecordOut]:
    """Return a row for each undelivered event, and one receipt for each kind of outcome.

    `read_at` is the first record that the task read, if the position of a lane shows whether these
    rows are stored.
    """
    outcomes: list[RecordOut] = []
    kinds: dict[Kind, list[TriedEvent]] = {}
    # First attempts share one history, and successes one decision: compute their kind once.
    known: dict[tuple[int, int], Kind] = {}
    for tried, decision in decided:
        if not isinstance(decision, Success):
            outcomes.append(
                route(decision, tried.envelope, destination_id, now_ms=exchange.ended_at_ms)
            )
        if isinstance(decision, Hop):
            # The event only changes its tier: an earlier receipt already says that it waits.
            continue
        same = (id(tried.history), id(decision))
        kind = known.get(same) or known.setdefault(same, _kind(tried, decision))
        kinds.setdefault(kind, []).append(tried)
    tries = share_room(exchange.failed_tries, receipt_count=len(kinds))
    for kind, events in kinds.items():
        # For the events that were taken, the last answer is not a refusal.
        failed = tries[:-1] if kind[1] == PARTLY_TAKEN else tries
        facts = facts_of([tried.envelope for tried in events])
        own = replace(exchange, failed_tries=failed)
        outcomes.append(_receipt(destination_id, kind, facts, own, read_at))
    return outcomes


def outcomes_of_unsent(
    opened: OpenedRows, *, at_ms: int, read_at: Origin | None
) -> list[RecordOut]:
    """Return the rows of events that are not sent; their receipts have no exchange."""
    outcomes = [route_malformed(record, now_ms=at_ms) for record in opened.malformed]
    exchange = Exchange("", at_ms, at_ms)
    for name, decided in opened.unsent.items():
        for first in range(0, len(decided), _UNSENT_EVENTS_MAX):
            part = decided[first : first + _UNSENT_EVENTS_MAX]
            outcomes += outcomes_of(name, part, exchange, read_at=read_at)
    return outcomes


def receipt_of(
    destination_id: str, batch: Batch, delivered: Success, exchange: Exchange
) -> list[RecordOut]:
    """Return the receipts of a batch that was delivered whole: one, unless its attempts differ."""
    counts = {(history.attempt_count, history.redrive_count) for history in batch.histories}
    if len(counts) > 1:
        pairs = [(tried, delivered) for tried in batch.tried()]
        return outcomes_of(destination_id, pairs, exchange, read_at=None)
    attempt_count, redrive_count = counts.pop()
    kind = (ReceiptOutcome.DELIVERED, delivered.reason, attempt_count + 1, redrive_count)
    if exchange.failed_tries:
        exchange = replace(exchange, failed_tries=share_room(exchange.failed_tries))
    return [_receipt(destination_id, kind, batch.facts, exchange, None)]


def _kind(tried: TriedEvent, decision: Final) -> Kind:
    """Return the receipt's facts on an event; the lifecycle's table decides its next state."""
    came_from = State.STORED if tried.envelope.history is None else State.WAITING
    outcome = ReceiptOutcome(next_state(came_from, MOVE_OF[type(decision)]).value)
    match decision:
        case Success(reason=reason):
            # Filtered events were not sent.
            attempt_count = tried.history.attempt_count + (reason != FILTERED)
        case DeadLetter(reason=reason, history=history):
            attempt_count = history.attempt_count
        case RetryLater(history=history) | Park(history=history):
            reason, attempt_count = history.cause, history.attempt_count
    return outcome, reason, attempt_count, tried.history.redrive_count


def _receipt(
    destination_id: str, kind: Kind, facts: Facts, exchange: Exchange, read_at: Origin | None
) -> RecordOut:
    outcome, reason, attempt_count, redrive_count = kind
    receipt = make_receipt(
        facts,
        destination_id=destination_id,
        outcome=outcome,
        reason=reason,
        batch_id=exchange.batch_id,
        attempt=attempt_count,
        redrive_count=redrive_count,
        started_at_ms=exchange.started_at_ms,
        ended_at_ms=exchange.ended_at_ms,
        # A delivered event stays delivered, even if the task fails.
        read_at=None if outcome is ReceiptOutcome.DELIVERED else read_at,
        failed_tries=exchange.failed_tries,
    )
    return route_receipt(receipt)
