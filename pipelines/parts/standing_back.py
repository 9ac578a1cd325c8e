"""Lets tasks that are late anyway yield their processor to others.

Where processors are scarce, a task rests ten times as long as it waited for one, and at most ten
times as long as it ran on one (ADR 0086, 0097).
"""

from shared.runtime.spark.processor_time import processor_time

_REST = 10


class StandingBack:
    """Computes the rests of the thread in which it was made."""

    def __init__(self) -> None:
        self._before = processor_time()

    def rest_s(self) -> float:
        """How long to rest now, after the work since the last call."""
        now = processor_time()
        had = now.since(self._before)
        self._before = now
        return _REST * min(had.delayed_s, had.ran_s)
