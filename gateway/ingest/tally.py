"""Counts the events of requests, and the time that Kafka takes to store them, for the metrics.

A metric's counter takes a lock and checks its labels at each call. So it is called only once for
many requests, while Kafka is busy.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from shared.metric_names import GATEWAY_ACK_SECONDS, GATEWAY_BODY_BYTES, GATEWAY_EVENTS
from shared.runtime.metrics import Metrics

# More streams than a deployment has; a dropped stream's counters are looked up again.
_STREAMS_REMEMBERED = 10_000


class Tally:
    """Counts since the last update of the metrics. `meanwhile` schedules the next update."""

    def __init__(self, metrics: Metrics, meanwhile: Callable[[Callable[[], None]], None]) -> None:
        remember = lru_cache(maxsize=_STREAMS_REMEMBERED)
        self._events_of: Any = remember(metrics.counter(GATEWAY_EVENTS).labels)
        self._bytes_of: Any = remember(metrics.counter(GATEWAY_BODY_BYTES).labels)
        self._seconds_of: Any = remember(metrics.histogram(GATEWAY_ACK_SECONDS).labels)
        self._meanwhile = meanwhile
        self._is_told = True
        self._events: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._bytes: defaultdict[str, int] = defaultdict(int)
        self._seconds: list[tuple[str, float]] = []

    def body(self, stream: str, byte_count: int) -> None:
        self._bytes[stream] += byte_count
        self._tell_soon()

    def outcomes(self, stream: str, counts: Mapping[str, int]) -> None:
        for word, count in counts.items():
            if count:
                self._events[stream, word] += count
        self._tell_soon()

    def acknowledged(self, stream: str, within_s: float) -> None:
        self._seconds.append((stream, within_s))
        self._tell_soon()

    def _tell_soon(self) -> None:
        if self._is_told:
            self._is_told = False
            self._meanwhile(self._tell)

    def _tell(self) -> None:
        self._is_told = True
        for stream_and_word, count in self._events.items():
            self._events_of(*stream_and_word).inc(count)
        for stream, byte_count in self._bytes.items():
            self._bytes_of(stream).inc(byte_count)
        for stream, within_s in self._seconds:
            self._seconds_of(stream).observe(within_s)
        self._events.clear()
        self._bytes.clear()
        self._seconds.clear()
