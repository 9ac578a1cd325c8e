"""Logs few enough attempts to read: one a minute for each destination, and each change of result.

Metrics count all of them, and receipts have the outcome of every event. These lines show in
a worker's log when and how a destination began to fail, or recovered.
"""

from dataclasses import dataclass, field
from time import monotonic

import structlog

from shared.retry.attempt import Attempt, Outcome, Response, Verdict

log = structlog.get_logger()

# A destination that flaps changes its result with each request.
LINES_PER_MINUTE_MAX = 10
_MINUTE_S = 60


@dataclass(slots=True)
class AttemptLog:
    """The lines that one worker process has logged about each destination."""

    # By destination: the minute of its last line, that line's reason, and the minute's line count.
    _lines: dict[str, tuple[int, str, int]] = field(default_factory=dict)

    def note(
        self, destination_id: str, attempt: Attempt, verdict: Verdict, *, batch_id: str
    ) -> None:
        """Log an attempt if it is the minute's first, or ends differently from the previous one."""
        minute = int(monotonic()) // _MINUTE_S
        last_minute, reason, line_count = self._lines.get(destination_id, (minute, "", 0))
        if minute != last_minute:
            reason, line_count = "", 0
        if verdict.reason == reason or line_count >= LINES_PER_MINUTE_MAX:
            return
        self._lines[destination_id] = minute, verdict.reason, line_count + 1
        say = log.info if verdict.outcome is Outcome.OK else log.warning
        say(
            "delivery.attempted",
            destination=destination_id,
            batch_id=batch_id,
            outcome=verdict.outcome.value,
            reason=verdict.reason,
            status=attempt.status if isinstance(attempt, Response) else None,
            detail=attempt.detail,
        )
