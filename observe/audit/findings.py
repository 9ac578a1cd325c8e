"""The findings about one minute at one destination: its books, and its missing events."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from observe.audit.ledger import LedgerMinute
from observe.audit.minutes import Rules
from shared.event.record import KafkaPartition, Position, Ranges
from shared.event.topics import stream_of, stream_topic
from shared.proof.acked import WILD
from shared.proof.balance import with_archives
from shared.proof.overview import MinuteBooks, MinuteState, Missing, OverdueMinutes, Stage

NEVER = sys.maxsize


class LostSpan(NamedTuple):
    """Lost offsets [first, end) of a Kafka partition; a whole day of losses fits into one span."""

    stage: Stage
    topic: str
    partition: int
    first: int
    end: int

    def events(self) -> Iterator[Missing]:
        """Yield the lost events one by one; their ids are not known yet."""
        for offset in range(self.first, self.end):
            yield Missing("", self.stage, self.topic, self.partition, offset)


@dataclass(frozen=True, slots=True)
class World:
    """The facts that a judgement needs besides the evidence."""

    # The destinations of each stream's topic; those that began later than the stream are `late`.
    destinations: Mapping[str, Sequence[str]]
    # Lanes' positions, read before the evidence.
    positions: Mapping[str, Position]
    # The first offset and the end of each Kafka partition, read after the evidence.
    log: Ranges
    now_ms: int
    late: frozenset[str] = frozenset()
    # The topics that pipelines write to.
    derived: AbstractSet[str] = frozenset()
    # When the log of each topic that is not in `unasked` was last searched for all events that no
    # ledger names.
    asked_ms: int = NEVER
    unasked: AbstractSet[str] = frozenset()
    # The destinations that may read from an archive the events that the log no longer has.
    archived: AbstractSet[str] = frozenset()

    def log_of(self, destination: str, where: KafkaPartition) -> tuple[int, int]:
        """Return the range that a destination may read, with archives if it reads them."""
        log = self.log.get(where, (0, 0))
        if destination not in self.archived:
            return log
        return with_archives(log, self.positions.get(destination, {}).get(where))

    def is_over(self, topic: str, minute_ms: int, minute: LedgerMinute, rules: Rules) -> bool:
        """Return whether all events of a minute are known: it is over, and was looked up since."""
        due_ms = minute.quiet_since_ms(minute_ms) + rules.check_after_ms
        return self.now_ms >= due_ms and self.is_asked(topic, minute_ms, minute, rules)

    def is_asked(self, topic: str, minute_ms: int, minute: LedgerMinute, rules: Rules) -> bool:
        """Return whether the log was searched for acknowledged events that no ledger names."""
        stored_ms = minute.quiet_since_ms(minute_ms) + rules.ledger_grace_ms
        return self.asked_ms >= stored_ms and topic not in self.unasked


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """The books of one minute at one destination, and its lost offsets."""

    books: MinuteBooks
    losses: tuple[LostSpan, ...] = ()


class ToJudge(NamedTuple):
    """An open minute, and a destination for which it is not checked."""

    topic: str
    minute_ms: int
    minute: LedgerMinute
    destination: str
    # If true, none of its events is known to be passed or deleted from the log, or has an outcome.
    is_untouched: bool
    # The number of minutes that this one represents; it is the oldest of them.
    minute_count: int = 1


def with_more(known: OverdueMinutes, count: int) -> OverdueMinutes:
    return OverdueMinutes(known.minute_count + count, known.oldest_ms, known.problem)


def is_ended(books: MinuteBooks, old_ms: int) -> bool:
    """Return whether the outcomes of a minute's events at a destination are final."""
    if books.state is MinuteState.CHECKED:
        return not books.waiting
    is_told = books.delivered + books.dead + books.lost_count == books.acked
    is_old = books.minute_ms is not None and max(books.minute_ms, books.told_at_ms) < old_ms
    return books.state is MinuteState.LOSS and is_told and is_old


def by_minute(shown: Iterable[MinuteBooks]) -> dict[tuple[str, int], list[MinuteBooks]]:
    """Return the books of all destinations, by topic and minute."""
    books_of: dict[tuple[str, int], list[MinuteBooks]] = {}
    for books in shown:
        minute_ms = WILD if books.minute_ms is None else books.minute_ms
        books_of.setdefault((stream_topic(books.stream), minute_ms), []).append(books)
    return books_of


def books_of(
    one: ToJudge,
    sums: Mapping[str, int],
    losses: Sequence[LostSpan],
    rules: Rules,
    now_ms: int,
    *,
    is_asked: bool,
) -> MinuteBooks:
    """Return the books of a minute; it is CHECKED only once the log was searched (`is_asked`)."""
    minute = one.minute
    due_ms = minute.quiet_since_ms(one.minute_ms) + rules.check_after_ms
    unsure = sums["queued"] + sums["suspected"]
    problem = ""
    if losses:
        state = MinuteState.LOSS
    elif now_ms < due_ms or (unsure and now_ms < due_ms + rules.overdue_ms):
        state = MinuteState.UNCHECKED
    elif unsure:
        state = MinuteState.CANNOT_TELL
        problem = (
            f"its lane has not reached {sums['queued']:,} of its events"
            if sums["queued"]
            else f"the outcomes of {unsure:,} of its events are not certain yet"
        )
    else:
        state = MinuteState.CHECKED if is_asked else MinuteState.UNCHECKED
    if losses:
        minute.told.setdefault(one.destination, now_ms)
    else:
        minute.told.pop(one.destination, None)
    lost: Counter[Stage] = Counter()
    for loss in losses:
        lost[loss.stage] += loss.end - loss.first
    return MinuteBooks(
        stream=stream_of(one.topic),
        destination_id=one.destination,
        minute_ms=one.minute_ms if one.minute_ms >= 0 else None,
        state=state,
        acked=sums["acked"],
        delivered=sums["delivered"],
        waiting=sums["waiting"],
        dead=sums["dead"],
        queued=sums["queued"],
        lost=dict(lost),
        problem=problem,
        told_at_ms=minute.told.get(one.destination, 0),
    )
