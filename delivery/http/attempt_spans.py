"""Makes the spans of attempts and of dead letters: one in each trace of their events.

At most 16 traces of a batch get a span of the attempt; a dead letter always gets its span.
"""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from shared.config.destination import Destination
from shared.event.envelope import ATTEMPT, DESTINATION, REASON, TRACEPARENT, trace_of
from shared.event.record import RecordOut
from shared.event.topics import DEAD, stream_and_name
from shared.retry.attempt import Attempt, Outcome, Response, Verdict
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
    """Makes spans for one worker process's attempts, and for the events that it gives up."""

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
        """Make the spans of an attempt that has just ended; `headers` are its request's."""
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
        if isinstance(attempt, Response):
            attributes["http.response.status_code"] = attempt.status
        times = ended_ns - int(latency_ms * 1_000_000), ended_ns
        name, is_error = f"deliver {destination.id}", verdict.outcome is not Outcome.OK
        for parent in parents:
            fields = new_span_id(), name, SpanKind.CLIENT, *times, attributes, is_error
            self.exporter.offer(TraceSpan(parent, *fields), whose=destination.id)

    def note_dead(self, outcomes: Iterable[RecordOut]) -> None:
        """Make the spans of dead letters: in each trace, one for each outcome of its events."""
        ends: Counter[_End] = Counter()
        for row in outcomes:
            headers = dict(row.headers) if row.topic == DEAD else {}
            parent = sampled_parent(trace_of(headers.get(TRACEPARENT)))
            # A record that nobody could open has no known destination.
            if parent is not None and DESTINATION in headers:
                destination_id, reason = (
                    headers[header].decode() for header in (DESTINATION, REASON)
                )
                ends[_End(parent, destination_id, reason, int(headers[ATTEMPT]))] += 1
        at_ns = time.time_ns()
        for end, event_count in ends.items():
            attributes: dict[str, str | int] = {
                "hifi.destination": end.destination_id,
                "messaging.destination.name": stream_and_name(end.destination_id)[0],
                "hifi.events": event_count,
                "hifi.attempt": end.attempt_count,
                "hifi.outcome": "dead",
                "hifi.reason": end.reason,
            }
            name = f"dead letter {end.destination_id}"
            fields = new_span_id(), name, SpanKind.INTERNAL, at_ns, at_ns, attributes, True
            self.exporter.offer(TraceSpan(end.parent, *fields), whose=end.destination_id)


class _End(NamedTuple):
    """The final outcome of events of one trace."""

    parent: SpanParent
    destination_id: str
    reason: str
    attempt_count: int


def _parents(traceparents: Iterable[str]) -> list[SpanParent]:
    """Return the first few requests that are traced, each once."""
    parents: dict[SpanParent, None] = {}
    for traceparent in traceparents:
        parent = sampled_parent(traceparent)
        if parent is not None:
            parents[parent] = None
            if len(parents) == TRACES_MAX:
                break
    return list(parents)
