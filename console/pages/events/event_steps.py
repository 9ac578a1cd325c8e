"""The steps that an event has gone through, from its records in the log."""

from collections.abc import Iterator
from dataclasses import dataclass

from console.pages.events.sent_request import SentRequest
from observe.lag.trouble import words_of
from shared import wording
from shared.event.envelope import DEAD_AT, REASON
from shared.event.record import Origin
from shared.event.topics import tier_of
from shared.proof.last_answer import SHOWN_CHARS_MAX
from shared.proof.receipt import Receipt, ReceiptOutcome
from shared.proof.trail import KeptRecord
from shared.retry.dead_letter import REDRIVEN_REASON
from shared.retry.resend import RESENT_REASON
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka.lookup.event_search import FoundEvent


@dataclass(frozen=True, slots=True)
class TrailStep:
    """One thing that happened to an event."""

    at_ms: int
    stage: str
    kind: str
    what: str
    facts: tuple[tuple[str, str], ...] = ()
    # The request that led to this step.
    sent: SentRequest | None = None


def steps_of(found: FoundEvent, schedule: RetrySchedule) -> list[TrailStep]:
    """Return all known steps of an event, in order."""
    envelope = found.envelope
    stored = "Stored in Kafka; the sender got a 2xx answer"
    if found.restored_by:
        stored = f"Put back from an archive by the restore {found.restored_by}"
    steps = [
        TrailStep(envelope.accepted_at_ms, "gateway", "neutral", "POST accepted by the gateway"),
        TrailStep(
            found.stored_at_ms,
            "queue",
            "neutral",
            stored,
            (_place(envelope.origin),),
        ),
    ]
    for receipt in found.trail.receipts:
        # The last request's failure and its consequence have the same time.
        steps += [*_failed_tries(receipt), _attempt(receipt)]
    delays_s = {tier.name: tier.delay_s for tier in schedule.tiers}
    for kept in found.trail.retries:
        delay_s = delays_s.get(tier_of(kept.place.topic), 0.0)
        due = wording.moment(due_at_ms(kept, schedule))
        facts = (_place(kept.place), ("due", due), *_history(kept))
        steps.append(
            TrailStep(kept.stored_at_ms, "retrier", "warn",
                 f"Waits {wording.duration(delay_s)} for its next attempt at"
                 f" {kept.envelope.destination_id}", facts)
        )  # fmt: skip
    for kept in found.trail.dead:
        reason = _header(kept, REASON)
        facts = (_place(kept.place), ("dead since", _when(_header(kept, DEAD_AT))), *_history(kept))
        steps.append(
            TrailStep(kept.stored_at_ms, "retrier", "bad",
                 f"Dead letter for {kept.envelope.destination_id}: {reason}", facts)
        )  # fmt: skip
    # The clocks of two machines differ, but storing always comes before any attempt.
    return steps[:2] + sorted(steps[2:], key=lambda step: step.at_ms)


def due_at_ms(kept: KeptRecord, schedule: RetrySchedule) -> int:
    history = kept.envelope.history
    not_before_ms = history.not_before_ms if history else 0
    tier = tier_of(kept.place.topic)
    return schedule.due_at_ms(tier, kept.stored_at_ms, not_before_ms=not_before_ms)


def _failed_tries(receipt: Receipt) -> Iterator[TrailStep]:
    """Yield each refused request of a round, with the text of its answer."""
    for index, failed in enumerate(receipt.failed_tries):
        answer = failed.text[:SHOWN_CHARS_MAX]
        facts = (
            ("status", str(failed.status) if failed.status else "no answer"),
            ("took", wording.duration(failed.took_ms / 1000)),
            ("answer" if failed.status else "what happened", answer),
            *((name, value[:SHOWN_CHARS_MAX]) for name, value in failed.headers.items()),
            ("batch", receipt.batch_id),
        )
        yield TrailStep(
            failed.at_ms,
            "destination",
            "bad",
            f"Not taken by {receipt.destination_id}: {words_of(failed.reason)}",
            tuple((name, value) for name, value in facts if value),
            SentRequest.of_failed(receipt, index),
        )


def _attempt(receipt: Receipt) -> TrailStep:
    if receipt.reason == REDRIVEN_REASON:
        what = f"Sent again to {receipt.destination_id} by a person, from dead letters"
        return TrailStep(receipt.ended_at_ms, "dead letters", "neutral", what)
    if receipt.reason == RESENT_REASON:
        what = f"Sent again to {receipt.destination_id} by a person"
        return TrailStep(receipt.ended_at_ms, "retrier", "neutral", what)
    took = wording.duration((receipt.ended_at_ms - receipt.started_at_ms) / 1000)
    whose = receipt.destination_id
    # A parked event, or one that Hifi refused without trying, has had no request.
    is_tried = bool(receipt.batch_id)
    waits = f"Not {'delivered to' if is_tried else 'tried at'} {whose}; waits for another attempt"
    what, kind = {
        ReceiptOutcome.DELIVERED: (f"Delivered to {whose}", "good"),
        ReceiptOutcome.WAITING: (waits, "warn"),
        ReceiptOutcome.DEAD: (f"Given up for {whose}", "bad"),
    }[receipt.outcome]
    together = wording.plural(receipt.event_count, "event")
    facts = (
        [
            ("attempt", str(receipt.attempt)),
            ("took", took),
            ("batch", f"{receipt.batch_id}, {together}"),
        ]
        if is_tried
        else [("together", together)]
    )
    if receipt.reason:
        facts.insert(0, ("reason", receipt.reason))
    sent = SentRequest.of_last(receipt)
    return TrailStep(receipt.ended_at_ms, "destination", kind, what, tuple(facts), sent)


def _place(at: Origin) -> tuple[str, str]:
    return "place", f"{at.topic}, partition {at.partition}, offset {at.offset}"


def _history(kept: KeptRecord) -> tuple[tuple[str, str], ...]:
    history = kept.envelope.history
    if history is None:
        return ()
    status = "" if history.last_status is None else str(history.last_status)
    pairs = (
        ("cause", history.cause),
        ("last status", status),
        ("last answer", history.last_detail),
        ("attempts", str(history.attempt_count)),
        ("given up after", wording.moment(history.deadline_at_ms)),
    )
    return tuple((name, value) for name, value in pairs if value)


def _header(kept: KeptRecord, name: str) -> str:
    return kept.headers.get(name, b"").decode(errors="replace")


def _when(text: str) -> str:
    return wording.moment(int(text)) if text.isdecimal() and len(text) < 16 else text  # noqa: PLR2004
