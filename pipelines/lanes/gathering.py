"""Says how a sink's events are gathered. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gathering:
    """How a sink's events are gathered, before a job hands them over: by time, and by number."""

    # How long news may wait for more.
    linger_s: float
    # Of each Kafka partition; so many do not wait.
    events_max: int
    # A job that takes longer has less the next time.
    time_box_s: float
    # Events per second at the most, over all Kafka partitions together.
    rate_per_s: float | None = None

    @property
    def most(self) -> int:
        """What a job has of each Kafka partition at the most: of a slow one a second's worth."""
        if self.rate_per_s is None:
            return self.events_max
        return max(1, min(self.events_max, int(self.rate_per_s)))

    def rests_s(self, count: int) -> float:
        """How long after a job with so many events has begun the next one may begin."""
        return count / self.rate_per_s if self.rate_per_s else 0.0
