"""Reads Kafka records as evidence: claims, outcomes, waiting and dead records.

Evidence is small, however many records it comes from. Parts of it add up, so that several tasks can
read at the same time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from shared.event.envelope import DESTINATION, ORIGIN_OFFSET, ORIGIN_PARTITION, ORIGIN_TOPIC
from shared.event.record import Headers
from shared.proof.acked import AckedRow
from shared.proof.intervals import Offsets
from shared.proof.receipt import Receipt, receipts_of


class Layers(msgspec.Struct, array_like=True):
    """Offsets with their counts: set n has the offsets that were added at least n + 1 times."""

    _sets: list[Offsets] = []

    def add(self, first: int, end: int) -> None:
        """Add each offset once more."""
        rest = Offsets.of([(first, end)])
        for layer in self._sets:
            if not len(rest):
                return
            already = rest.both(layer)
            for start, stop in rest:
                layer.add(start, stop)
            rest = already
        if len(rest):
            self._sets.append(rest)

    def remove(self, first: int, end: int) -> None:
        """Take each offset out once; ignore offsets that are not present."""
        rest = Offsets.of([(first, end)])
        for at in range(len(self._sets) - 1, -1, -1):
            layer = self._sets[at]
            taken = rest.both(layer)
            self._sets[at] = layer.minus(taken)
            rest = rest.minus(taken)
        while self._sets and not len(self._sets[-1]):
            self._sets.pop()

    def forget(self, gone: Offsets) -> None:
        """Take offsets out completely, however often they were added."""
        kept = [layer.minus(gone) for layer in self._sets]
        self._sets = [layer for layer in kept if len(layer)]

    @property
    def present(self) -> Offsets:
        """The offsets with a count of at least one."""
        return self._sets[0] if self._sets else Offsets()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield intervals that give the same content when they are added one by one."""
        for layer in self._sets:
            yield from layer


K = TypeVar("K")
S = TypeVar("S", Offsets, Layers)


def unite(to: dict[K, S], more: Mapping[K, S]) -> None:
    """Add the offsets of each key to the present ones."""
    for key, offsets in more.items():
        offsets_of = to.setdefault(key, type(offsets)())
        for first, end in offsets:
            offsets_of.add(first, end)


def add_counts(to: dict[K, dict[str, int]], more: Mapping[K, Mapping[str, int]]) -> None:
    """Add the counts of each key to the present ones."""
    for key, counts in more.items():
        known = to.setdefault(key, {})
        for what, count in counts.items():
            known[what] = known.get(what, 0) + count


def life(outcome: str, redrive_count: int) -> str:
    """Return the name in `Evidence.outcomes` of an outcome after `redrive_count` redrives."""
    return f"{outcome}@{redrive_count}"


@dataclass(frozen=True, slots=True)
class Claim:
    """Consecutive offsets of one minute that the gateway acknowledged."""

    topic: str
    partition: int
    minute: int
    first: int
    end: int
    # The latest moment at which one of them was accepted.
    accepted_at_ms: int
    # Their place in the ledger: its Kafka partition, and the first and last record.
    ledger: tuple[int, int, int]
    # Whether a pipeline wrote them, so that no gateway acknowledged them.
    is_derived: bool = False


@dataclass(slots=True)
class Evidence:
    claims: list[Claim] = field(default_factory=list)
    # By destination, outcome (or `life`) and Kafka partition of the stream.
    outcomes: dict[tuple[str, str, str, int], Offsets] = field(default_factory=dict)
    # By kind (written to a tier, passed in a tier, or in dead letters), destination and origin.
    records: dict[tuple[str, str, str, int], Layers] = field(default_factory=dict)
    # Events that a pipeline reached but did not pass on, counted by its lane, their minute and
    # outcome (such as filtered). Each counts once: receipts and position are written together.
    not_passed: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict)
    # The number of unreadable records, by the kind expected in their topic.
    unreadable: dict[str, int] = field(default_factory=dict)
    # The index in `claims` of the newest claim of each Kafka partition.
    _newest: dict[tuple[str, int], int] = field(default_factory=dict, repr=False, compare=False)

    def take_ledger(self, value: bytes, *, partition: int, offset: int) -> None:
        """Enter a row of the ledger; rows come in order."""
        try:
            row = AckedRow.from_bytes(value, with_ids=False)
        except ValueError:
            self._note_unreadable("ledger")
            return
        where = (partition, offset, offset)
        for span in row.slices:
            for minute, first, end in span.claims():
                self._claim(
                    Claim(row.topic, row.partition, minute, first, end, span.accepted_at_ms, where)
                )

    def take_sheet(self, sheet: bytes) -> None:
        """Enter the receipts of a record."""
        for receipt in receipts_of(sheet):
            if receipt is None:
                self._note_unreadable("receipt")
            else:
                self._take_receipt(receipt)

    def _take_receipt(self, receipt: Receipt) -> None:
        outcomes = [receipt.outcome.value]
        if receipt.redrive_count:
            outcomes.append(life(receipt.outcome.value, receipt.redrive_count))
        for span in receipt.covered:
            for outcome in outcomes:
                key = (receipt.destination_id, outcome, span.topic, span.partition)
                self.outcomes.setdefault(key, Offsets()).add(span.first, span.end)
        for outcome, minutes in receipt.not_passed.items():
            for minute, count in minutes.items():
                add_counts(self.not_passed, {(receipt.destination_id, minute): {outcome: count}})

    def take_record(self, kind: str, headers: Headers) -> None:
        """Enter a record of a tier or of dead letters under its event's origin."""
        by_name = dict(headers)
        try:
            destination = by_name[DESTINATION].decode()
            topic = by_name[ORIGIN_TOPIC].decode()
            partition, offset = int(by_name[ORIGIN_PARTITION]), int(by_name[ORIGIN_OFFSET])
        except (ValueError, KeyError):
            # A foreign or malformed record, which proves nothing about any event.
            self._note_unreadable(kind)
            return
        key = (kind, destination, topic, partition)
        self.records.setdefault(key, Layers()).add(offset, offset + 1)

    def merge(self, other: "Evidence") -> None:
        for claim in other.claims:
            self._claim(claim)
        unite(self.outcomes, other.outcomes)
        unite(self.records, other.records)
        add_counts(self.not_passed, other.not_passed)
        for kind, count in other.unreadable.items():
            self._note_unreadable(kind, count)

    def _note_unreadable(self, kind: str, count: int = 1) -> None:
        self.unreadable[kind] = self.unreadable.get(kind, 0) + count

    def _claim(self, new: Claim) -> None:
        """Append a claim, or extend the one before it if they belong together."""
        where = (new.topic, new.partition)
        last = self.claims[self._newest[where]] if where in self._newest else None
        if last is None or (last.minute, last.end, last.ledger[0]) != (
            new.minute, new.first, new.ledger[0],
        ):  # fmt: skip
            self._newest[where] = len(self.claims)
            self.claims.append(new)
            return
        self.claims[self._newest[where]] = replace(
            last,
            end=new.end,
            accepted_at_ms=max(last.accepted_at_ms, new.accepted_at_ms),
            ledger=(*last.ledger[:2], new.ledger[2]),
        )
