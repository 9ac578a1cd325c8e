"""Keeps the durations of the last minutes in slots that fall out as time goes on."""

from collections import deque
from dataclasses import dataclass, field

from shared.proof.log_buckets import LogBuckets

# Five minutes smooth out micro-batches and still forget an incident within a coffee.
SLOT_S = 30
SLOTS = 10
WINDOW_MS = SLOTS * SLOT_S * 1000


@dataclass(slots=True)
class Rolling:
    """Durations that were entered within the last SLOTS * SLOT_S seconds."""

    _slots: deque[tuple[int, LogBuckets]] = field(default_factory=lambda: deque(maxlen=SLOTS))

    def merge(self, buckets: LogBuckets, *, now_ms: int) -> None:
        slot = now_ms // (SLOT_S * 1000)
        if not self._slots or self._slots[-1][0] < slot:
            self._slots.append((slot, LogBuckets()))
        self._slots[-1][1].merge(buckets)

    def add(self, value_ms: int, count: int, *, now_ms: int) -> None:
        self.merge(LogBuckets.of_counts({-value_ms: count}, until_ms=0), now_ms=now_ms)

    def read(self, *, now_ms: int) -> LogBuckets:
        """All that is not too old by now."""
        oldest = now_ms // (SLOT_S * 1000) - SLOTS
        total = LogBuckets()
        for slot, buckets in self._slots:
            if slot > oldest:
                total.merge(buckets)
        return total
