"""Makes the spans of attempts: one in each trace that a batch has events of, up to a bound."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from shared.config.destination import Destination
from shared.retry.attempt import Attempt, Outcome, Responded, Verdict
from shared.runtime.tracing.exporter import SpanExporter
from shared.runtime.tracing.spans import (
    SpanKind,
    SpanParent,
    TraceSpan,
    new_span_id,
    sampled_parent,
)

# A batch may have as many traces as events.
TRACES_MAX = 16


@dataclass(frozen=True, slots=True)
class AttemptSpans:
    """Tells of the attempts of one worker process."""

    exporter: SpanExporter

    def note(
        self,
        destination: Destination,
        traceparents: Iterable[str],
        verdict: Verdict,
        attempt: Attempt,
        *,
        latency_ms: float,
        headers: dict[str, str],
    ) -> None:
        """Tell of an attempt that has just ended; `headers` are those of its request."""
        parents = _parents(traceparents)
        if not parents:
            return
        ended_ns = time.time_ns()
        attributes: dict[str, str | int] = {
            "http.request.method": "POST",
            "hifi.destination": destination.id,
            "messaging.destination.name": destination.stream,
            "hifi.batch_id": headers["webhook-id"],
            "hifi.events": int(headers["hifi-events"]),
            "hifi.attempt": int(headers["hifi-attempt"]),
            "hifi.try": int(headers.get("hifi-try", 1)),
            "hifi.outcome": verdict.outcome.value,
            "hifi.reason": verdict.reason,
        }
        if isinstance(attempt, Responded):
            attributes["http.response.status_code"] = attempt.status
        times = ended_ns - int(latency_ms * 1_000_000), ended_ns
        name, is_error = f"deliver {destination.id}", verdict.outcome is not Outcome.OK
        for parent in parents:
            told = new_span_id(), name, SpanKind.CLIENT, *times, attributes, is_error
            self.exporter.offer(TraceSpan(parent, *told), whose=destination.id)


def _parents(traceparents: Iterable[str]) -> list[SpanParent]:
    """The first few requests that are traced, each once."""
    found: dict[SpanParent, None] = {}
    for traceparent in traceparents:
        parent = sampled_parent(traceparent)
        if parent is not None:
            found[parent] = None
            if len(found) == TRACES_MAX:
                break
    return list(found)
