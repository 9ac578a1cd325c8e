"""Finds the state of each event at each destination, and since when.

Receipts that disagree about an event are weighed as in every balance (see `OutcomeSets`). After an
incomplete read, an event without a receipt is unknown, not undelivered.
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
from shared.proof.trail import KeptRecord, Trail
from shared.retry.dead_letter import Place
from shared.retry.schedule import RetrySchedule


class At(Enum):
    DELIVERED = "delivered"
    WAITING = "waiting"
    DEAD = "dead"
    # No receipt names it yet.
    QUEUED = "queued"
    # Not everything could be read in time, so a receipt may be missing.
    UNKNOWN = "unknown"


class ShownWhereabouts(BaseModel):
    """An event's state at one destination; members that do not apply are omitted."""

    state: At
    at_ms: int = Field(default=0, description="When its latest attempt ended.")
    reason: str = Field(default="", description="status_200, status_503, filtered, ...")
    attempts: int = 0
    last_status: int | None = None
    last_detail: str = Field(default="", description="The destination's last answer.")
    tier: str = Field(default="", description="The retry tier where the event waits.")
    due_at_ms: int = Field(default=0, description="Earliest time of the next attempt.")
    deadline_at_ms: int = Field(default=0, description="Time after which it is given up.")
    place: str = Field(default="", description="Place of its dead letter.")

    def fields(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_unset=True)


# Destination -> place in the log -> whereabouts.
ByDestination = Mapping[str, Mapping[Origin, ShownWhereabouts]]
# A receipt and its record agree in destination, event and number of redrives. A dead letter from
# before a redrive is not the record of a receipt from after it.
_Life = tuple[str, Origin, int]


def whereabouts(
    trail: Trail, origins: Collection[Origin], destinations: Iterable[str], schedule: RetrySchedule
) -> ByDestination:
    """Return each event's state at the given destinations, and at those that the trail names.

    The schedule has the delay of each tier.
    """
    kept = {
        ReceiptOutcome.WAITING: _newest(trail.retries),
        ReceiptOutcome.DEAD: _newest(trail.dead),
    }
    last = _last_receipts(trail, kept)
    untold = ShownWhereabouts(state=At.QUEUED if trail.is_whole else At.UNKNOWN)

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
    """Count the events in each state."""
    counts = Counter(where.state for where in places.values())
    return {at.value: counts[at] for at in At}


def _last_receipts(
    trail: Trail, kept: Mapping[ReceiptOutcome, Mapping[_Life, KeptRecord]]
) -> dict[tuple[str, Origin], Receipt]:
    """Return the receipt that counts for each event at each destination.

    A receipt that says waiting or dead counts only with its record. A task that could not write the
    record has failed, whatever receipts it left, and the event's state is as before (see
    `Unsure`). If not all records were read, the receipt counts, and the state is unknown.
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
    """Rank a receipt among the others of its event; the earliest delivery wins over later ones."""
    is_delivered = receipt.outcome is ReceiptOutcome.DELIVERED
    ended_ms = receipt.ended_at_ms
    rank = weight(receipt.outcome, receipt.redrive_count)
    return rank, -ended_ms if is_delivered else ended_ms


def _newest(kept: Iterable[KeptRecord]) -> dict[_Life, KeptRecord]:
    newest: dict[_Life, KeptRecord] = {}
    for letter in kept:
        destination, history = letter.envelope.travel
        key = (destination, letter.envelope.origin, history.redrive_count)
        newest[key] = max(newest.get(key, letter), letter, key=lambda each: each.stored_at_ms)
    return newest
