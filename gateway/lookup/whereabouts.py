"""Says where each event is on its way to each destination, and since when.

What several receipts say of one event is weighed as in every balance (see `OutcomeSets`). What was
not read to its end is unknown, not undelivered.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Any

from pydantic import BaseModel, Field

from shared.event.record import Origin
from shared.event.topics import tier_of
from shared.proof.outcome_sets import weight
from shared.proof.receipt import Receipt, ReceiptOutcome
from shared.proof.trail import Kept, Trail
from shared.retry.dead_letter import Place
from shared.retry.schedule import RetrySchedule


class At(Enum):
    DELIVERED = "delivered"
    WAITING = "waiting"
    DEAD = "dead"
    # Nothing has been said of it yet.
    PENDING = "pending"
    # There was more to read than time allowed, so that something may have been said.
    UNKNOWN = "unknown"


class ShownWhereabouts(BaseModel):
    """Where an event is on its way to one destination; what does not apply is left out."""

    state: At
    at_ms: int = Field(default=0, description="When its latest attempt ended.")
    reason: str = Field(default="", description="status_200, status_503, filtered, ...")
    attempts: int = 0
    last_status: int | None = None
    last_detail: str = Field(default="", description="What the destination said to it.")
    tier: str = Field(default="", description="The retry queue (tier) in which it waits.")
    due_at_ms: int = Field(default=0, description="Not tried before that.")
    deadline_at_ms: int = Field(default=0, description="Given up after that.")
    place: str = Field(default="", description="Where it lies in dead letters.")

    def fields(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_unset=True)


# By destination, then by where the event was stored.
ByDestination = Mapping[str, Mapping[Origin, ShownWhereabouts]]
# What a receipt and its record agree in: destination, event, how often it had been re-driven. The
# dead letter of an earlier life is no record of what was said in a later one.
_Life = tuple[str, Origin, int]


def whereabouts(
    trail: Trail, origins: Collection[Origin], destinations: Iterable[str], schedule: RetrySchedule
) -> ByDestination:
    """Of each event at each destination: those that are asked about, and those that were told of.

    The schedule says how long a tier lasts.
    """
    kept = {
        ReceiptOutcome.WAITING: _newest(trail.retries),
        ReceiptOutcome.DEAD: _newest(trail.dead),
    }
    last = _last_receipts(trail, kept)
    untold = ShownWhereabouts(state=At.PENDING if trail.is_whole else At.UNKNOWN)

    def of(destination: str, origin: Origin) -> ShownWhereabouts:
        receipt = last.get((destination, origin))
        if receipt is None:
            return untold
        story: dict[str, Any] = {
            "state": At(receipt.outcome.value),
            "at_ms": receipt.ended_at_ms,
            "reason": receipt.reason,
            "attempts": receipt.attempt,
        }
        if receipt.outcome not in kept:
            return ShownWhereabouts(**story)
        record = kept[receipt.outcome].get((destination, origin, receipt.redrive_count))
        if record is None:
            return ShownWhereabouts(state=At.UNKNOWN)
        _, history = record.envelope.travel
        story |= {"last_status": history.last_status, "last_detail": history.last_detail}
        topic, partition, offset = record.place
        if receipt.outcome is ReceiptOutcome.DEAD:
            return ShownWhereabouts(**story, place=str(Place(partition, offset)))
        tier, stored_at_ms = tier_of(topic), record.stored_at_ms
        return ShownWhereabouts(
            **story,
            tier=tier,
            due_at_ms=schedule.due_at_ms(tier, stored_at_ms, not_before_ms=history.not_before_ms),
            deadline_at_ms=history.deadline_at_ms,
        )

    named = sorted({*destinations, *(destination for destination, _ in last)})
    return {
        destination: {origin: of(destination, origin) for origin in origins}
        for destination in named
    }


def counts_of(places: Mapping[Origin, ShownWhereabouts]) -> dict[str, int]:
    """How many events are where."""
    counts = Counter(where.state for where in places.values())
    return {at.value: counts[at] for at in At}


def _last_receipts(
    trail: Trail, kept: Mapping[ReceiptOutcome, Mapping[_Life, Kept]]
) -> dict[tuple[str, Origin], Receipt]:
    """The receipt that counts for each event at each destination.

    One that tells of waiting or dead counts with its record only: a task that could not write the
    record has failed, whatever receipts it left, and the event is where it was (see `Unsure`). If
    the record may just not have been read, the receipt counts, and where the event is is unknown.
    """
    last: dict[tuple[str, Origin], Receipt] = {}
    for receipt in trail.receipts:
        destination, redrive_count = receipt.destination_id, receipt.redrive_count
        records = kept.get(receipt.outcome) if trail.is_whole else None
        for (topic, partition), first, end in trail.named(receipt):
            for offset in range(first, end):
                origin = Origin(topic, partition, offset)
                if records is not None and (destination, origin, redrive_count) not in records:
                    continue
                key = (destination, origin)
                last[key] = max(last.get(key, receipt), receipt, key=_weight)
    return last


def _weight(receipt: Receipt) -> tuple[tuple[bool, int, bool], int]:
    """Which of two receipts counts; of two deliveries the first, as it arrived then."""
    is_delivered = receipt.outcome is ReceiptOutcome.DELIVERED
    ended_ms = receipt.ended_at_ms
    said = weight(receipt.outcome, receipt.redrive_count)
    return said, -ended_ms if is_delivered else ended_ms


def _newest(kept: Iterable[Kept]) -> dict[_Life, Kept]:
    newest: dict[_Life, Kept] = {}
    for letter in kept:
        destination, history = letter.envelope.travel
        key = (destination, letter.envelope.origin, history.redrive_count)
        newest[key] = max(newest.get(key, letter), letter, key=lambda each: each.stored_at_ms)
    return newest
