"""Counts events in the metrics; each stream's counters are looked up once."""

from functools import lru_cache
from typing import Any

from shared.metric_names import (
    GATEWAY_ACK_SECONDS,
    GATEWAY_BODY_BYTES,
    GATEWAY_EVENTS,
    GATEWAY_REQUESTS,
)
from shared.runtime.metrics import Metrics

# More than a deployment has streams; a forgotten one is looked up again.
_REMEMBERED = 10_000


class EventCounters:
    """The counters of requests, by what they are labelled with."""

    def __init__(self, metrics: Metrics) -> None:
        remember = lru_cache(maxsize=_REMEMBERED)
        self.events_of: Any = remember(metrics.counter(GATEWAY_EVENTS).labels)
        self.bytes_of: Any = remember(metrics.counter(GATEWAY_BODY_BYTES).labels)
        self.seconds_of: Any = remember(metrics.histogram(GATEWAY_ACK_SECONDS).labels)
        self.requests_of: Any = remember(metrics.counter(GATEWAY_REQUESTS).labels)
