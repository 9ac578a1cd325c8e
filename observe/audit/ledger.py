"""The minutes of a stream, with their offsets according to the gateway's ledger and the log.

A closed minute keeps its offsets for a day, so that it can be opened again for late events and for
destinations that are added later.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import msgspec
from msgspec import Struct

from observe.audit.evidence import Claim, unite
from shared.event.times import MINUTE_MS
from shared.proof.intervals import Offsets

# Pipelines and restores may write old events, also several times for the same minute. Such minutes
# are kept for a time after they were closed: this many at most over all streams, 1 KB each.
_LATE_MAX = 50_000


class LedgerMinute(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The offsets that one event-time minute of a stream has, by Kafka partition."""

    acked: dict[int, Offsets] = {}
    # Offsets [first, end) that Kafka gave to two acknowledged events: the first one is gone.
    overwritten: list[tuple[int, int, int]] = []
    # When the newest of its events was accepted, or when it was opened again.
    accepted_at_ms: int = 0
    # The records of the ledger that name its events, by Kafka partition of the ledger.
    ledger: dict[int, Offsets] = {}
    # When a loss was first reported, by destination.
    told: dict[str, int] = {}
    # The numbers of delivered and dead events, by destination for which at least a part of the
    # minute is checked. If there is no entry, all were delivered.
    ended: dict[str, tuple[int, int]] = {}
    # The number of its events that pipelines wrote, so that no gateway acknowledged them.
    derived: int = 0
    # Offsets at which the log has another event than the ledger: the ledger's event is gone.
    misplaced: list[tuple[int, int, int]] = []
    # The number of its events that were found in the log with the ledger's id.
    compared: int = 0
    # The number of further events whose offsets are no longer known; and the offsets of events that
    # only the log names.
    unplaced: int = 0
    in_log: dict[int, Offsets] = {}

    @property
    def gone(self) -> list[tuple[int, int, int]]:
        """The offsets that hold other events than the acknowledged ones."""
        return [*self.overwritten, *self.misplaced]

    @property
    def count(self) -> int:
        gone = sum(end - first for _, first, end in self.gone)
        return sum(len(offsets) for offsets in self.acked.values()) + gone + self.unplaced

    def owed(self, begins: Mapping[int, int]) -> int | None:
        """Return the number of its events at or after these offsets; None if unknown."""
        if not any(begins.values()):
            return self.count
        if self.unplaced:
            return None
        placed = sum(
            len(offsets.from_offset(begins.get(at, 0))) for at, offsets in self.acked.items()
        )
        return placed + sum(
            max(0, end - max(first, begins.get(at, 0))) for at, first, end in self.gone
        )

    def quiet_since_ms(self, minute_ms: int) -> int:
        """Return when the minute was over and its last event had come."""
        over_ms = minute_ms + MINUTE_MS if minute_ms >= 0 else 0
        return max(over_ms, self.accepted_at_ms)


class ClosedMinute(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The record of a closed minute: counts, offsets of its events, and records of the ledger."""

    acked: int = 0
    # The numbers of delivered and dead events, by destination.
    outcomes: dict[str, tuple[int, int]] = {}
    ledger: dict[int, Offsets] = {}
    derived: int = 0
    # Its events that only the log names.
    in_log: dict[int, Offsets] = {}
    # When it was closed.
    at_ms: int = 0
    offsets: dict[int, Offsets] = {}
    compared: int = 0
    # Like `outcomes`, for destinations that were removed before the whole minute was checked for
    # them.
    parts: dict[str, tuple[int, int]] = {}
    # The same as in the open minute.
    overwritten: list[tuple[int, int, int]] = []
    misplaced: list[tuple[int, int, int]] = []

    @property
    def unplaced(self) -> int:
        """The number of its events whose offset is no longer known."""
        gone = sum(end - first for _, first, end in (*self.overwritten, *self.misplaced))
        return self.acked - gone - sum(map(len, self.offsets.values()))


def late_ones(
    closed: Mapping[tuple[str, int], ClosedMinute],
    others: AbstractSet[tuple[str, int]],
    old_ms: int,
) -> set[tuple[str, int]]:
    """Return recently closed minutes, without `others`, for which the log may get more events."""
    late = [
        key
        for key, one in closed.items()
        if key not in others and one.in_log and one.at_ms >= old_ms
    ]
    return set(sorted(late, key=lambda key: -closed[key].at_ms)[:_LATE_MAX])


_MINUTE = msgspec.msgpack.Decoder(LedgerMinute)


class Ledger(Struct, forbid_unknown_fields=True):
    """Every open minute of one stream, and the claimed offsets of its Kafka partitions."""

    minutes: dict[int, LedgerMinute] = {}
    claimed: dict[int, Offsets] = {}
    # Offsets that only the log claims, as the gateway's ledger did not name them.
    from_log: dict[int, Offsets] = {}
    # By destination: the numbers of minutes that are checked for it, but open for another.
    checked: dict[str, Offsets] = {}
    # Old minutes, packed, which takes a tenth of the memory; there are few, except after an outage.
    packed: dict[int, bytes] = {}
    # By Kafka partition: a lower bound of the offsets of packed minutes.
    lowest: dict[int, int] = {}
    # Offsets claimed by rows of the ledger, whose ids are not yet compared with the log's.
    uncompared: dict[int, Offsets] = {}

    def __contains__(self, minute_ms: int) -> bool:
        return minute_ms in self.minutes or minute_ms in self.packed

    def times_ms(self) -> list[int]:
        """Return the times of all open minutes, in ascending order."""
        return sorted([*self.minutes, *self.packed])

    def look(self, minute_ms: int) -> LedgerMinute:
        """Return an open minute for reading only."""
        packed = self.packed.get(minute_ms)
        return self.minutes[minute_ms] if packed is None else _MINUTE.decode(packed)

    def unpack(self, minute_ms: int) -> LedgerMinute:
        """Return an open minute that may be changed."""
        if minute_ms in self.packed:
            self.minutes[minute_ms] = _MINUTE.decode(self.packed.pop(minute_ms))
        return self.minutes[minute_ms]

    def pack(self, minute_ms: int) -> None:
        minute = self.minutes.pop(minute_ms)
        if not self.packed:
            self.lowest.clear()
        for partition, offsets in minute.acked.items():
            self.lowest[partition] = min(offsets.start, self.lowest.get(partition, offsets.start))
        self.packed[minute_ms] = msgspec.msgpack.encode(minute)

    def enter(self, claim: Claim, *, is_from_log: bool = False) -> Offsets:
        """Enter one claim; return those of its offsets that another event had before."""
        if claim.minute not in self:
            self.minutes[claim.minute] = LedgerMinute()
        minute = self.unpack(claim.minute)
        self._reopen(claim.minute)
        fresh, taken = self._told_apart(claim, minute, is_from_log=is_from_log)
        for first, end in taken:
            self._overwrite(claim.partition, first, end, is_misplaced=is_from_log)
        self.claimed[claim.partition].add(claim.first, claim.end)
        offsets = minute.acked.setdefault(claim.partition, Offsets())
        for first, end in fresh:
            offsets.add(first, end)
            if is_from_log:
                self.from_log[claim.partition].add(first, end)
            if claim.is_derived:
                minute.derived += end - first
        minute.accepted_at_ms = max(minute.accepted_at_ms, claim.accepted_at_ms)
        number, low, high = claim.ledger
        if number >= 0:
            minute.ledger.setdefault(number, Offsets()).add(low, high + 1)
        return taken

    def _told_apart(
        self, claim: Claim, minute: LedgerMinute, *, is_from_log: bool
    ) -> tuple[Offsets, Offsets]:
        """Return the claim's offsets that the minute gets, and those that another event had."""
        fresh = Offsets.of([(claim.first, claim.end)])
        claimed = self.claimed.setdefault(claim.partition, Offsets())
        from_log = self.from_log.setdefault(claim.partition, Offsets())
        uncompared = self.uncompared.setdefault(claim.partition, Offsets())
        again = fresh.both(claimed)
        if is_from_log:
            self.uncompared[claim.partition] = uncompared.minus(fresh)
            return fresh, again.minus(from_log)
        known = again.both(from_log)
        if known:
            # The earlier entry from the log is the same event, whose row has come now. If that
            # entry is in another minute, the log has another event there.
            here = minute.acked.get(claim.partition, Offsets())
            others = known.minus(here)
            minute.misplaced += [(claim.partition, low, high) for low, high in others]
            self.from_log[claim.partition] = from_log.minus(known.minus(others))
            fresh = fresh.minus(others)
        for first, end in fresh:
            uncompared.add(first, end)
        return fresh.minus(known), again.minus(known)

    def first_claimed(self, partition: int, end: int) -> int:
        """Return the lowest claimed offset; the end if none is claimed."""
        claimed = self.claimed.get(partition)
        return claimed.start if claimed else end

    def only_in_log(self, minute: LedgerMinute) -> dict[int, Offsets]:
        """Return the events of a minute that no row of the ledger names."""
        logged = {
            partition: offsets.both(self.from_log.get(partition, Offsets()))
            for partition, offsets in minute.acked.items()
        }
        unite(logged, minute.in_log)
        return {partition: offsets for partition, offsets in logged.items() if offsets}

    def only_in_rows(self, minute: LedgerMinute) -> dict[int, Offsets]:
        """Return the events of a minute that were not yet looked up in the log."""
        uncompared = {
            partition: offsets.both(self.uncompared.get(partition, Offsets()))
            for partition, offsets in minute.acked.items()
        }
        return {partition: offsets for partition, offsets in uncompared.items() if offsets}

    def note_compared(self, minute_ms: int, count: int) -> None:
        """Note that `count` of a minute's events were compared, and none are left to compare."""
        minute = self.unpack(minute_ms)
        minute.compared += count
        for partition, offsets in self.only_in_rows(minute).items():
            self.uncompared[partition] = self.uncompared[partition].minus(offsets)

    def uncheck(self, destination: str, minute_ms: int) -> None:
        """Have a minute checked again for one destination, and keep its outcomes so far."""
        number, checked = number_of(minute_ms), self.checked.get(destination, Offsets())
        if number in checked:
            minute = self.unpack(minute_ms)
            minute.ended.setdefault(destination, (minute.count, 0))
            checked.discard(number, number + 1)

    def _reopen(self, minute_ms: int) -> None:
        """Have a minute checked again for all destinations, as it may have more events."""
        for destination in self.checked:
            self.uncheck(destination, minute_ms)

    def _overwrite(self, partition: int, first: int, end: int, *, is_misplaced: bool) -> None:
        """Note that the events that had these offsets before are gone, in those events' minutes."""
        lost = Offsets.of([(first, end)])
        for minute_ms in self.times_ms():
            acked = self.look(minute_ms).acked.get(partition, Offsets())
            here = acked.both(lost)
            if here:
                self._reopen(minute_ms)
                minute = self.unpack(minute_ms)
                gone = minute.misplaced if is_misplaced else minute.overwritten
                gone += [(partition, low, high) for low, high in here]
                minute.acked[partition] = acked.minus(lost)


def number_of(minute_ms: int) -> int:
    """Return the number of a minute since the epoch; implausible times have -1."""
    return minute_ms // MINUTE_MS
