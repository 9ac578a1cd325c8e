"""Tracks the broker's time up to which all Kafka partitions have been read. Pure.

Event times cannot be used: one wild clock would close everybody's windows. Each record has the time
at which its broker stored it; within a Kafka partition these times only grow. For a log that was
read to its end, the time is that of the request for the end. Without an answer to this request, the
time does not advance, so no window closes that may still get events.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from shared.event.record import KafkaPartition

# The clocks of several brokers differ.
MARGIN_MS = 1_000
# The brokers' clock may seem to go back. If the last answer is at most this old, the new one was
# late; otherwise the clock was set back.
_HEARD_S = 60.0


@dataclass(slots=True)
class Frontier:
    """The frontier of one pipeline."""

    read_ms: dict[KafkaPartition, int] = field(default_factory=dict)

    def read(self, until_ms: Mapping[KafkaPartition, int]) -> None:
        """Note that these Kafka partitions have been read up to those times."""
        for where, at_ms in until_ms.items():
            self.read_ms[where] = max(at_ms, self.read_ms.get(where, 0))

    def at_ms(self, places: Collection[KafkaPartition]) -> int:
        """The time up to which all of them have been read; 0 while one is not known."""
        return max(0, min(self.read_ms.get(where, 0) for where in places) - MARGIN_MS)


@dataclass(slots=True)
class BrokerClock:
    """The brokers' time as known from their answers: exact, or slightly early."""

    # How far the brokers' clock is ahead of ours, and when we measured that.
    _ahead_ms: float | None = None
    _heard_s: float = 0.0

    def heard(self, stored_ms: int, now_s: float) -> None:
        """Note when a record was stored, and when we got that answer, by a monotonic clock."""
        ahead_ms = stored_ms - 1000 * now_s
        is_old = now_s - self._heard_s > _HEARD_S
        if self._ahead_ms is None or ahead_ms >= self._ahead_ms or is_old:
            self._ahead_ms, self._heard_s = ahead_ms, now_s

    def now_ms(self, now_s: float) -> int:
        """The brokers' time now; 0 if they have not answered yet."""
        return 0 if self._ahead_ms is None else int(self._ahead_ms + 1000 * now_s)
