"""Balances the books: acked = delivered + waiting + dead + queued + unaccounted.

Only this module decides which events are queued and which are unaccounted, for all pages and
audits. It is set arithmetic over offsets, so a duplicate can never hide a loss.
"""

from dataclasses import dataclass, replace

from shared.proof.intervals import Offsets


@dataclass(frozen=True, slots=True)
class Balance:
    """The number of events in each state. `unaccounted` above 0 is a loss until explained."""

    acked: int = 0
    delivered: int = 0
    waiting: int = 0
    dead: int = 0
    # The lane has not reached them yet, or it has, but it is unknown whether their outcomes are
    # stored.
    queued: int = 0
    unaccounted: int = 0

    @property
    def come_to(self) -> "Balance":
        """The same without queued events: a removed destination gets no more events."""
        return replace(self, acked=self.acked - self.queued, queued=0)

    def __add__(self, other: "Balance") -> "Balance":
        return Balance(
            self.acked + other.acked,
            self.delivered + other.delivered,
            self.waiting + other.waiting,
            self.dead + other.dead,
            self.queued + other.queued,
            self.unaccounted + other.unaccounted,
        )


@dataclass(frozen=True, slots=True)
class Gaps:
    """Acknowledged events of one Kafka partition without an outcome; no event is in two sets."""

    queued: Offsets
    # Unaccounted events: the lane has passed them, or the log does not have them (any more).
    passed: Offsets
    not_in_log: Offsets

    def balance(self, acked_count: int, *, waiting: int, dead: int) -> Balance:
        """Return the counts; all other acknowledged events are delivered."""
        queued, unaccounted = len(self.queued), len(self.passed) + len(self.not_in_log)
        delivered = acked_count - waiting - dead - queued - unaccounted
        return Balance(acked_count, delivered, waiting, dead, queued, unaccounted)


def with_archives(log: tuple[int, int], position: int | None) -> tuple[int, int]:
    """The log of a lane that may read earlier events from an archive.

    It skips events that the archive does not have either.
    """
    first, end = log
    return (first if position is None else min(first, position)), end


def gaps_of(
    no_outcome: Offsets, *, unconfirmed: Offsets, position: int, log: tuple[int, int]
) -> Gaps:
    """Separate events that are still to be read from lost ones, among those without an outcome.

    Events past the lane's position are queued, and those before it are unaccounted, unless an
    outcome is `unconfirmed`. No lane can read events that the log, [first, end), does not have.
    """
    in_log = no_outcome.cut(*log)
    queued = in_log.from_offset(position).union(no_outcome.both(unconfirmed))
    return Gaps(queued, in_log.minus(queued), no_outcome.minus(in_log).minus(queued))
