"""Makes the spans of requests with events: one for the request, one for storing its events."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import time_ns

from shared.metric_names import GATEWAY_SPANS
from shared.runtime.metrics import Metrics
from shared.runtime.tracing.exporter import SpanExporter
from shared.runtime.tracing.settings import read_tracing
from shared.runtime.tracing.spans import (
    SpanKind,
    SpanParent,
    TraceSpan,
    new_span_id,
    new_trace,
    sampled_parent,
)

_SERVER_ERROR = 500


@dataclass(slots=True)
class RequestSpan:
    """A traced request until its answer."""

    exporter: SpanExporter
    parent: SpanParent
    tenant: str
    stream: str
    span_id: str = field(default_factory=new_span_id)
    begun_ns: int = field(default_factory=time_ns)
    storing_ns: int = 0

    @property
    def traceparent(self) -> str:
        """The header for its events, which makes this span the parent of their attempts."""
        return f"00-{self.parent.trace_id}-{self.span_id}-01"

    def storing(self) -> None:
        """Note that the request's events go to Kafka now."""
        self.storing_ns = time_ns()

    def stored(self, event_count: int, *, is_all: bool) -> None:
        """Note that Kafka has reported on the request's events."""
        above = SpanParent(self.parent.trace_id, self.span_id)
        name, attributes = f"send {self.stream}", {"messaging.system": "kafka"}
        counted = {"messaging.batch.message_count": event_count}
        span_id, kind = new_span_id(), SpanKind.PRODUCER
        times = self.storing_ns, time_ns()
        self._offer(TraceSpan(above, span_id, name, kind, *times, attributes | counted, not is_all))

    def end(self, status: int, *, event_count: int) -> None:
        attributes: dict[str, str | int] = {
            "http.request.method": "POST",
            "http.response.status_code": status,
            "messaging.destination.name": self.stream,
            "hifi.tenant": self.tenant,
            "hifi.events": event_count,
        }
        name, times = f"POST {self.stream}", (self.begun_ns, time_ns())
        kind, is_error = SpanKind.SERVER, status >= _SERVER_ERROR
        self._offer(TraceSpan(self.parent, self.span_id, name, kind, *times, attributes, is_error))

    def _offer(self, span: TraceSpan) -> None:
        self.exporter.offer(span, whose=self.tenant)


@contextmanager
def spans_of(metrics: Metrics) -> Iterator["RequestSpans | None"]:
    """Yield the maker of this process's spans; None if tracing is off."""
    tracing = read_tracing()
    counter = metrics.counter(GATEWAY_SPANS)
    if tracing is None:
        yield None
        return
    exporter = tracing.exporter(
        "hifi-gateway", count=lambda result, count: counter.labels(result).inc(count)
    )
    try:
        yield RequestSpans(exporter, ratio=tracing.ratio)
    finally:
        exporter.close()


class RequestSpans:
    """Decides which requests are traced, by the sender's flag or at random."""

    def __init__(self, exporter: SpanExporter, *, ratio: float) -> None:
        self._exporter = exporter
        self._ratio = ratio
        # Nobody gains by guessing which requests are traced.
        self._dice = random.Random()  # noqa: S311

    def begin(self, traceparent: str | None, *, tenant: str, stream: str) -> RequestSpan | None:
        parent = sampled_parent(traceparent)
        if traceparent is None and self._dice.random() < self._ratio:
            parent = new_trace()
        return RequestSpan(self._exporter, parent, tenant, stream) if parent else None
