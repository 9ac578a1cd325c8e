"""Sends spans to a collector in a separate thread, so that callers never wait for it.

The number of waiting spans is limited, in all and for each tenant or destination. Spans without
room, and spans that the collector does not accept, are dropped and counted.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from time import monotonic

import msgspec
import structlog

from shared.runtime.http_client import HttpClient, NoHttpAnswerError
from shared.runtime.setup_error import UsageError
from shared.runtime.tracing.spans import TraceSpan, as_otlp

log = structlog.get_logger()

# The maximum number of waiting spans, about 2 MB. One tenant or destination may fill a quarter in a
# round.
WAITING_MAX = 4_096
SHARE_MAX = WAITING_MAX // 4
_REQUEST_SPANS_MAX = 512
_EVERY_S = 0.5
_TIMEOUT_S = 5.0
_SAY_EVERY_S = 60.0
_OK = range(200, 300)


class SpanExporter:
    """Sends the spans of one process to `url`; `count` gets their outcomes."""

    def __init__(
        self,
        url: str,
        resource: Mapping[str, str],
        *,
        headers: Mapping[str, str],
        count: Callable[[str, int], None] | None = None,
    ) -> None:
        self._url = url
        self._headers = {"content-type": "application/json", **headers}
        self._resource = resource
        self._count = count
        self._lock = threading.Lock()
        self._waiting: list[TraceSpan] = []
        self._shares: Counter[str] = Counter()
        self._dropped_count = 0
        self._said_at_s = -_SAY_EVERY_S
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def offer(self, span: TraceSpan, *, whose: str) -> None:
        """Accept a span if there is room for another one of its owner."""
        with self._lock:
            has_room = len(self._waiting) < WAITING_MAX and self._shares[whose] < SHARE_MAX
            if has_room:
                self._shares[whose] += 1
                self._waiting.append(span)
            else:
                self._dropped_count += 1
        if not has_room and self._count is not None:
            self._count("dropped", 1)

    def close(self) -> None:
        """Send the waiting spans, within the time limit of a request."""
        self._is_over.set()
        self._thread.join(_TIMEOUT_S)

    def _run(self) -> None:
        while not self._is_over.wait(_EVERY_S):
            self._send_all()
        self._send_all()

    def _send_all(self) -> None:
        with self._lock:
            spans, self._waiting = self._waiting, []
            self._shares.clear()
        problem = ""
        for first in range(0, len(spans), _REQUEST_SPANS_MAX):
            part = spans[first : first + _REQUEST_SPANS_MAX]
            # After a failure, each further request would only take as long again.
            problem = problem or self._send(part)
            if problem:
                with self._lock:
                    self._dropped_count += len(part)
            if self._count is not None:
                self._count("dropped" if problem else "sent", len(part))
        self._say(problem)

    def _send(self, spans: list[TraceSpan]) -> str:
        """Send them in one request; return the problem, if any."""
        body = msgspec.json.encode(as_otlp(self._resource, spans))
        try:
            with HttpClient(self._url, timeout_s=_TIMEOUT_S) as collector:
                status = collector.ask("POST", headers=self._headers, body=body).status
        except (NoHttpAnswerError, UsageError) as error:
            return str(error)
        return "" if status in _OK else f"status {status}"

    def _say(self, problem: str) -> None:
        if self._dropped_count and monotonic() - self._said_at_s >= _SAY_EVERY_S:
            self._said_at_s = monotonic()
            with self._lock:
                count, self._dropped_count = self._dropped_count, 0
            log.warning("spans.dropped", count=count, detail=problem or "too many at once")
