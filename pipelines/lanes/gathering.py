"""Defines how a sink's events are gathered. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gathering:
    """How a sink's events are gathered, before a job hands them over: by time, and by number."""

    # How long new events may wait for more.
    linger_s: float
    # With this many events of one Kafka partition, they no longer wait.
    events_max: int
    # After a job that takes longer, the next has fewer events.
    time_box_s: float
    # The maximum number of events per second, over all Kafka partitions together.
    rate_per_s: float | None = None

    @property
    def most(self) -> int:
        """How many events of each Kafka partition a job takes; with a rate, one second's worth."""
        if self.rate_per_s is None:
            return self.events_max
        return max(1, min(self.events_max, int(self.rate_per_s)))

    def rests_s(self, count: int) -> float:
        """The time from the start of a job with this many events to the start of the next."""
        return count / self.rate_per_s if self.rate_per_s else 0.0
