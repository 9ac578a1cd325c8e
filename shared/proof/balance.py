"""Balances the books: acked = delivered + waiting + dead + pending + unaccounted.

This is the only place that says what is pending and what is unaccounted, for whoever shows or
judges it. It is set arithmetic over offsets, so a duplicate can never hide a loss.
"""

from dataclasses import astuple, dataclass, replace
from operator import add

from shared.proof.intervals import Offsets


@dataclass(frozen=True, slots=True)
class Balance:
    """How many events are where. `unaccounted` above 0 is a loss until explained."""

    acked: int = 0
    delivered: int = 0
    waiting: int = 0
    dead: int = 0
    # The lane has not come to them yet. Or it has, and what became of them is not known to be
    # stored.
    pending: int = 0
    unaccounted: int = 0

    @property
    def come_to(self) -> "Balance":
        """Without what is pending: of a destination that was removed nothing is on its way."""
        return replace(self, acked=self.acked - self.pending, pending=0)

    def __add__(self, other: "Balance") -> "Balance":
        return Balance(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class PartitionBooks:
    """What became of acknowledged events of one Kafka partition; no event is in two sets."""

    acked_count: int
    waiting: Offsets
    dead: Offsets
    pending: Offsets
    # Unaccounted for: the lane has passed them, or the log does not hold them (any more).
    passed: Offsets
    not_in_log: Offsets

    @property
    def balance(self) -> Balance:
        """The counts. Whatever is in none of the sets is delivered."""
        waiting, dead, pending = len(self.waiting), len(self.dead), len(self.pending)
        unaccounted = len(self.passed) + len(self.not_in_log)
        delivered = self.acked_count - waiting - dead - pending - unaccounted
        return Balance(self.acked_count, delivered, waiting, dead, pending, unaccounted)


def with_archives(log: tuple[int, int], position: int | None) -> tuple[int, int]:
    """The log of a lane that may come to what is before it, out of an archive.

    What is not there either it passes.
    """
    first, end = log
    return (first if position is None else min(first, position)), end


def balanced(
    acked_count: int,
    *,
    waiting: Offsets,
    dead: Offsets,
    no_outcome: Offsets,
    unconfirmed: Offsets,
    position: int,
    log: tuple[int, int],
) -> PartitionBooks:
    """Tell what is still to come from what is lost, among the events that have no outcome.

    What lies past the lane's position is pending, and what lies before it is unaccounted, unless
    an outcome of it is `unconfirmed`. Nobody can come to what the log, [first, end), does not hold.
    """
    in_log = Offsets.of(no_outcome.within(*log))
    pending = in_log.from_offset(position).union(no_outcome.both(unconfirmed))
    return PartitionBooks(
        acked_count,
        waiting=waiting,
        dead=dead,
        pending=pending,
        passed=in_log.minus(pending),
        not_in_log=no_outcome.minus(in_log).minus(pending),
    )
