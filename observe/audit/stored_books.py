"""The audit's facts about minutes, which are opened, checked, closed, and opened again.

Memory grows with open minutes and those closed within a day, not with all minutes.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from msgspec import Struct

from observe.audit.evidence import Claim, Evidence, add_counts, unite
from observe.audit.findings import NEVER, World
from observe.audit.ledger import ClosedMinute, Ledger, LedgerMinute, late_ones, number_of
from observe.audit.minutes import Outcomes, enter_outcomes
from shared.event.record import KafkaPartition, Position, Ranges
from shared.event.times import DAY_MS, HOUR_MS
from shared.event.topics import topic_of
from shared.proof.acked import WILD
from shared.proof.intervals import Offsets
from shared.proof.overview import MinuteBooks, OverdueMinutes

# How long a closed minute is kept for late events and for destinations that are added later: an
# hour longer than late events are still counted in their minute. A minute with a loss stays open
# this long after the report, as lost events may still turn up. An overdue minute stays open until
# it is checked.
CLOSED_KEPT_MS = DAY_MS + HOUR_MS
# Offsets [first, end) by Kafka partition.
Spans: TypeAlias = Mapping[int, tuple[int, int]]


class StoredBooks(Struct, forbid_unknown_fields=True):
    """The facts about open minutes, and about recently closed ones."""

    ledgers: dict[str, Ledger] = {}
    outcomes: dict[tuple[str, KafkaPartition], Outcomes] = {}
    closed: dict[tuple[str, int], ClosedMinute] = {}
    # Offsets of closed minutes, the same for all destinations.
    done: dict[KafkaPartition, Offsets] = {}
    first_outcome: dict[tuple[str, KafkaPartition], int] = {}
    # The last judgement, by destination.
    overdue: dict[str, OverdueMinutes] = {}
    # The number of events that a pipeline did not pass on, by its lane and minute, and by outcome.
    not_passed: dict[tuple[str, int], dict[str, int]] = {}
    # The first offset of each destination that the audit did not know from the beginning.
    begun: dict[tuple[str, KafkaPartition], int] = {}
    # The destinations of the last run, or None before the first run.
    met: set[str] | None = None

    def take(self, evidence: Evidence) -> None:
        """Enter a run's evidence."""
        for claim in evidence.claims:
            self.claim(claim)
        enter_outcomes(self.outcomes, evidence, self.done, self.met)
        add_counts(self.not_passed, evidence.not_passed)
        for key, first in _first_outcomes(evidence).items():
            self.first_outcome[key] = min(first, self.first_outcome.get(key, first))

    def claim(self, claim: Claim, *, is_from_log: bool = False) -> None:
        """Enter events of a minute, which is opened again if it was closed."""
        ledger = self.ledgers.setdefault(claim.topic, Ledger())
        if (claim.topic, claim.minute) in self.closed:
            self._open_again(claim.topic, claim.minute)
        taken = ledger.enter(claim, is_from_log=is_from_log)
        if taken and not is_from_log:
            # A claim from the log names the event that is there, so known outcomes are about it.
            self._begin_anew(KafkaPartition(claim.topic, claim.partition), taken)

    def _begin_anew(self, where: KafkaPartition, taken: Offsets) -> None:
        """Count offsets with new events as unchecked: known outcomes are those of former events."""
        for known in [known for (_, at), known in self.outcomes.items() if at == where]:
            known.done = known.done.minus(taken)
        self.done[where] = self.done.get(where, Offsets()).minus(taken)
        for (topic, _), closed in self.closed.items():
            if topic == where.topic and where.partition in closed.offsets:
                left = closed.offsets[where.partition].minus(taken)
                closed.offsets[where.partition] = left

    def meet(self, world: World, evidence: Evidence) -> None:
        """Open closed minutes again for destinations that have events in them; call before `take`.

        Such a destination was added later, or began earlier than was known.
        """
        if self.met is None:
            for topic, minute_ms in [key for key in self.closed if self._is_open(*key)]:
                self._open_again(topic, minute_ms)
        first = _first_outcomes(evidence)
        closed_ms: dict[str, list[int]] = defaultdict(list)
        for topic, minute_ms in self.closed:
            closed_ms[topic].append(minute_ms)
        for topic, destinations in world.destinations.items():
            for each in destinations:
                is_new = self.met is not None and each not in self.met
                if is_new or each in world.late:
                    owed = self._newly_owed(each, topic, world, first, is_new=is_new)
                    for minute_ms in closed_ms[topic] if owed else ():
                        if _within(self.closed.get((topic, minute_ms), _NOTHING).offsets, owed):
                            self._open_again(topic, minute_ms, world.now_ms)
                    if owed and not is_new:
                        self._owe(each, topic, owed)
        self.met = {each for ids in world.destinations.values() for each in ids}

    def _newly_owed(
        self,
        destination: str,
        topic: str,
        world: World,
        first: Mapping[tuple[str, KafkaPartition], int],
        *,
        is_new: bool,
    ) -> Spans:
        """Return the spans that are due to a destination, but were not known to be."""
        owed: dict[int, tuple[int, int]] = {}
        for where in map(KafkaPartition._make, world.log):
            if where.topic == topic:
                old = NEVER if is_new else self.begin_of(destination, where, world)
                key = (destination, where)
                self._note_begin(key, world, first.get(key, NEVER))
                if (new := self.begin_of(destination, where, world)) < old:
                    owed[where.partition] = (new, old)
        return owed

    def _is_open(self, topic: str, minute_ms: int) -> bool:
        return minute_ms in self.ledgers.get(topic, _NO_LEDGER)

    def _note_begin(
        self, key: tuple[str, KafkaPartition], world: World, first_outcome: int
    ) -> None:
        destination, where = key
        if destination not in world.late:
            # Events that Kafka deleted before the destination was added were never due to it.
            self.begun.setdefault(key, world.log[where][0])
            return
        # The destination's lane began at its present position or earlier.
        position = world.positions.get(destination, {}).get(where, NEVER)
        begun = min(self.begun.get(key, position), first_outcome)
        if begun != NEVER:
            self.begun[key] = begun

    def begin_of(self, destination: str, where: KafkaPartition, world: World) -> int:
        """Return the first offset of a Kafka partition that is due to a destination."""
        key = (destination, where)
        if destination not in world.late:
            return self.begun.get(key, 0)
        return min(self.begun.get(key, NEVER), self.first_outcome.get(key, NEVER))

    def _owe(self, destination: str, topic: str, owed: Spans) -> None:
        """Have these offsets judged for a destination to which they were not known to be due."""
        ledger = self.ledgers.get(topic, _NO_LEDGER)
        for minute_ms in ledger.times_ms():
            for partition, offsets in _within(ledger.look(minute_ms).acked, owed).items():
                key = (destination, KafkaPartition(topic, partition))
                known = self.outcomes.setdefault(key, Outcomes())
                known.done = known.done.minus(offsets)
                ledger.uncheck(destination, minute_ms)

    def _open_again(self, topic: str, minute_ms: int, at_ms: int = 0) -> None:
        """Restore a closed minute; it stays checked for the destinations it was checked for."""
        closed = self.closed.pop((topic, minute_ms))
        ledger = self.ledgers.setdefault(topic, Ledger())
        is_open, number = minute_ms in ledger, number_of(minute_ms)
        if not is_open:
            ledger.minutes[minute_ms] = LedgerMinute()
        minute = ledger.unpack(minute_ms)
        for destination, checked in ledger.checked.items():
            if number in checked:
                minute.ended.setdefault(destination, (minute.count, 0))
        for destination, (delivered, dead) in (closed.parts | closed.outcomes).items():
            own = minute.ended.get(destination, (0, 0))
            minute.ended[destination] = (own[0] + delivered, own[1] + dead)
        for destination in closed.outcomes:
            if not is_open:
                ledger.checked.setdefault(destination, Offsets()).add(number, number + 1)
            for partition, offsets in closed.offsets.items():
                key = (destination, KafkaPartition(topic, partition))
                known = self.outcomes.setdefault(key, Outcomes())
                known.done = known.done.union(offsets)
        for partition, offsets in closed.offsets.items():
            where = KafkaPartition(topic, partition)
            self.done[where] = self.done.get(where, Offsets()).minus(offsets)
        minute.unplaced += closed.unplaced
        minute.overwritten += closed.overwritten
        minute.misplaced += closed.misplaced
        unite(minute.acked, closed.offsets)
        unite(minute.ledger, closed.ledger)
        unite(
            minute.in_log,
            {
                at: logged.minus(closed.offsets.get(at, Offsets()))
                for at, logged in closed.in_log.items()
            },
        )
        minute.derived += closed.derived
        minute.compared += closed.compared
        minute.accepted_at_ms = max(minute.accepted_at_ms, at_ms)

    def unclaimed(
        self, log: Ranges, *, back_max: int, begins: Position
    ) -> Iterator[tuple[KafkaPartition, int, int]]:
        """Yield unclaimed offsets: their gateway died, or a pipeline or a restore wrote them.

        If the history before the first claim is longer than `back_max`, only its part from
        `begins` on is included.
        """
        for where, (start, end) in log.items():
            ledger = self.ledgers.get(where[0], _NO_LEDGER)
            first = ledger.first_claimed(where[1], end)
            begin = min(first, begins.get(where, first)) if first - start > back_max else start
            claimed = ledger.claimed.get(where[1], Offsets())
            for low, high in Offsets.of([(max(start, begin), end)]).minus(claimed):
                yield KafkaPartition(*where), low, high

    def acked(self, topic: str, minute_ms: int) -> int:
        """Return the number of events of an open minute."""
        return self.ledgers[topic].look(minute_ms).count

    def in_log(self, topic: str, minute_ms: int) -> dict[KafkaPartition, Offsets]:
        """Return the offsets of a minute's events that only the log names."""
        ledger = self.ledgers[topic]
        there = ledger.only_in_log(ledger.look(minute_ms))
        return {KafkaPartition(topic, number): spans for number, spans in there.items()}

    def owed(self, topic: str, minute_ms: int, destination: str, world: World) -> int | None:
        """Return how many events of an open minute are due to a destination; None if unknown."""
        minute = self.ledgers[topic].look(minute_ms)
        places = {*minute.acked, *(partition for partition, _, _ in minute.gone)}
        begins = {
            number: self.begin_of(destination, KafkaPartition(topic, number), world)
            for number in places
        }
        return minute.owed(begins)

    def all_checked(self, world: World) -> Iterator[tuple[str, int]]:
        """Yield the open minutes that are checked for all present destinations."""
        for topic, ledger in self.ledgers.items():
            wanted = world.destinations.get(topic, ())
            checked = [ledger.checked.get(each, Offsets()) for each in wanted]
            for minute_ms in ledger.times_ms() if all(checked) else ():
                if all(number_of(minute_ms) in each for each in checked):
                    yield topic, minute_ms

    def forget_old(self, world: World) -> None:
        """Drop minutes that were closed long ago, and outcomes that are no longer needed."""
        old_ms = world.now_ms - CLOSED_KEPT_MS
        keys = {*self.closed, *((topic_of(lane), at_ms) for lane, at_ms in self.not_passed)}
        known = {
            (topic, at_ms)
            for topic, at_ms in keys
            if at_ms < 0 or at_ms >= old_ms or self._is_open(topic, at_ms)
        }
        known |= late_ones(self.closed, known, old_ms)
        self.closed = {key: closed for key, closed in self.closed.items() if key in known}
        self.not_passed = {
            (lane, minute_ms): counts
            for (lane, minute_ms), counts in self.not_passed.items()
            if (topic_of(lane), minute_ms) in known
        }
        if self.met is not None:
            self._forget_outcomes(self.met)

    def _forget_outcomes(self, wanted: AbstractSet[str]) -> None:
        """Keep, for removed destinations, only the minutes that may still be needed."""
        live: dict[KafkaPartition, Offsets] = {}
        for key, known in list(self.outcomes.items()):
            destination, where = key
            if destination in wanted:
                continue
            if where not in live:
                live[where] = self._kept(where)
            claimed = self.ledgers.get(where.topic, _NO_LEDGER).claimed
            gone = claimed.get(where.partition, Offsets()).minus(live[where])
            known.forget(gone)
            known.done = known.done.minus(gone)
            if not known.end:
                del self.outcomes[key]

    def _kept(self, where: KafkaPartition) -> Offsets:
        """Return the offsets of open and recently closed minutes."""
        ledger = self.ledgers.get(where.topic, _NO_LEDGER)
        parts = [ledger.look(each).acked for each in ledger.times_ms()]
        parts += [
            closed.offsets for (topic, _), closed in self.closed.items() if topic == where.topic
        ]
        return Offsets().union(*(part.get(where.partition, Offsets()) for part in parts))

    def _enter_checked(self, topic: str, minute_ms: int, books: MinuteBooks) -> None:
        """Note a minute as checked for one destination, and drop its offsets there."""
        ledger, destination = self.ledgers[topic], books.destination_id
        minute = ledger.unpack(minute_ms)
        minute.ended[destination] = own = (books.delivered, books.dead)
        if own == (minute.count, 0):
            # Nearly all minutes end this way, so they need no entry.
            del minute.ended[destination]
        number = number_of(minute_ms)
        ledger.checked.setdefault(destination, Offsets()).add(number, number + 1)
        for partition, offsets in minute.acked.items():
            known = self.outcomes[destination, KafkaPartition(topic, partition)]
            for span in offsets:
                known.done.add(*span)
            known.forget(offsets)

    def _close(
        self, topic: str, minute_ms: int, books: Sequence[MinuteBooks], world: World
    ) -> None:
        ledger = self.ledgers[topic]
        ledger.note_compared(minute_ms, 0)
        minute = ledger.unpack(minute_ms)
        del ledger.minutes[minute_ms]
        number = number_of(minute_ms)
        outcomes = {own.destination_id: (own.delivered, own.dead) for own in books}
        for destination, checked in ledger.checked.items():
            # This includes removed destinations, as they may come back.
            if number in checked:
                own = minute.ended.get(destination, (minute.count, 0))
                outcomes.setdefault(destination, own)
                checked.discard(number, number + 1)
        kept = ClosedMinute(
            acked=minute.count,
            outcomes=outcomes,
            ledger=minute.ledger,
            derived=minute.derived,
            in_log=ledger.only_in_log(minute),
            at_ms=world.now_ms,
            offsets=minute.acked,
            compared=minute.compared,
            overwritten=minute.overwritten,
            misplaced=minute.misplaced,
            parts={each: own for each, own in minute.ended.items() if each not in outcomes},
        )
        self.closed[topic, minute_ms] = kept
        for partition, offsets in minute.acked.items():
            where = KafkaPartition(topic, partition)
            unite(self.done, {where: offsets})
            for (destination, at), known in self.outcomes.items():
                if at == where and destination in outcomes:
                    known.forget(offsets)
                    known.done = known.done.minus(offsets)
            if minute_ms == WILD:
                # This minute is never over, but events that the log no longer has can be dropped.
                kept.offsets[partition] = offsets.from_offset(world.log.get(where, (0, 0))[0])


_NO_LEDGER = Ledger()
_NOTHING = ClosedMinute()


def _within(offsets: Mapping[int, Offsets], spans: Spans) -> dict[int, Offsets]:
    kept = {at: Offsets.of(own.within(*spans[at])) for at, own in offsets.items() if at in spans}
    return {at: own for at, own in kept.items() if own}


def _first_outcomes(evidence: Evidence) -> dict[tuple[str, KafkaPartition], int]:
    firsts: dict[tuple[str, KafkaPartition], int] = {}
    for (destination, _, topic, partition), offsets in evidence.outcomes.items():
        key = (destination, KafkaPartition(topic, partition))
        firsts[key] = min(offsets.start, firsts.get(key, offsets.start))
    return firsts
