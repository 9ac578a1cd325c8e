"""Logs all requests of the control plane, but only failures elsewhere, so that people can read it.

Thousands of requests with events may arrive each second. Metrics count them, and the ledger names
each one that stored something. Logging a request would cost more than handling it.
"""

from collections import Counter
from time import monotonic

import structlog
from starlette.types import Scope

log = structlog.get_logger()

# A limit for each kind and status: a flood of refusals must not fill a disk.
LINES_PER_MINUTE_MAX = 60
_MINUTE_S = 60
# The server's own errors begin here (RFC 9110).
_SERVER_ERROR = 500


class AccessLog:
    """The access log of one gateway process, with a limit for each minute."""

    def __init__(self) -> None:
        self._minute = 0
        self._line_counts: Counter[tuple[str, int]] = Counter()

    def note(
        self, kind: str, scope: Scope, *, status: int, request_id: str, begun_s: float
    ) -> None:
        """Log an answered request; `begun_s` is a time of time.monotonic."""
        now_s = monotonic()
        if int(now_s) // _MINUTE_S != self._minute:
            self._minute = int(now_s) // _MINUTE_S
            self._line_counts.clear()
        self._line_counts[kind, status] += 1
        if self._line_counts[kind, status] > LINES_PER_MINUTE_MAX:
            return
        say = log.warning if status >= _SERVER_ERROR else log.info
        say(
            "request.answered",
            kind=kind,
            method=scope["method"],
            # The query is left out: it may contain a key.
            path=scope["path"][:200],
            status=status,
            request_id=request_id,
            took_ms=round((now_s - begun_s) * 1000, 1),
        )
