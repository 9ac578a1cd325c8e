"""Says where each event is on its way to each destination, and since when.

What several receipts say of one event is weighed as in every balance (see `OutcomeSets`). What was
not read to its end is unknown, not undelivered.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

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


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where one event is on its way to one destination."""

    at: At
    receipt: Receipt | None = None
    # Its record in a retry tier or in dead letters.
    kept: Kept | None = None
    due_at_ms: int | None = None

    def fields(self) -> dict[str, Any]:
        """By the names that people know; what does not apply is left out."""
        fields: dict[str, Any] = {"state": self.at.value}
        if self.receipt is not None:
            fields |= {
                "at_ms": self.receipt.ended_at_ms,
                "reason": self.receipt.reason,
                "attempts": self.receipt.attempt,
            }
        if self.kept is None:
            return fields
        _, history = self.kept.envelope.travel
        fields |= {"last_status": history.last_status, "last_detail": history.last_detail}
        place = self.kept.place
        if self.at is At.DEAD:
            return {**fields, "place": str(Place(place.partition, place.offset))}
        return {
            **fields,
            "tier": tier_of(place.topic),
            "due_at_ms": self.due_at_ms,
            "deadline_at_ms": history.deadline_at_ms,
        }


# By destination, then by where the event was stored.
ByDestination = Mapping[str, Mapping[Origin, Whereabouts]]
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
    delays_ms = {tier.name: round(tier.delay_s * 1000) for tier in schedule.tiers}
    untold = Whereabouts(At.PENDING if trail.is_whole else At.UNKNOWN)

    def of(destination: str, origin: Origin) -> Whereabouts:
        receipt = last.get((destination, origin))
        if receipt is None:
            return untold
        at = At(receipt.outcome.value)
        if receipt.outcome not in kept:
            return Whereabouts(at, receipt)
        letter = kept[receipt.outcome].get((destination, origin, receipt.redrive_count))
        if letter is None:
            return Whereabouts(At.UNKNOWN)
        return Whereabouts(
            at, receipt, letter, _due_ms(letter, delays_ms) if at is At.WAITING else None
        )

    named = sorted({*destinations, *(destination for destination, _ in last)})
    return {
        destination: {origin: of(destination, origin) for origin in origins}
        for destination in named
    }


def counts_of(places: Mapping[Origin, Whereabouts]) -> dict[str, int]:
    """How many events are where."""
    counts = Counter(where.at for where in places.values())
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


def _due_ms(kept: Kept, delays_ms: Mapping[str, int]) -> int:
    """When it may be tried again: after its tier, and not before the destination wants it."""
    _, history = kept.envelope.travel
    after_tier_ms = kept.stored_at_ms + delays_ms.get(tier_of(kept.place.topic), 0)
    return max(after_tier_ms, history.not_before_ms)
