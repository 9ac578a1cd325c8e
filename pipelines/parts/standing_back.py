"""Has who is late anyway take nothing from those who are not.

Where processors are short, a task rests so many times as long as it had to wait for one, and at
most so many times as long as it had one (ADR 0086, 0097).
"""

from shared.runtime.spark.processor_time import processor_time

_REST = 10


class StandingBack:
    """Of the thread in which it was made."""

    def __init__(self) -> None:
        self._before = processor_time()

    def rest_s(self) -> float:
        """How long to rest now, after what was done since it was asked last."""
        now = processor_time()
        had = now.since(self._before)
        self._before = now
        return _REST * min(had.delayed_s, had.ran_s)
