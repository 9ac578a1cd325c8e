"""Logs attempts, few enough to read: one a minute for each destination, and each change of fortune.

Receipts say what became of every event; these lines say to whoever reads the log of a worker that
a destination is being sent to, and when and how it began to fail or to recover.
"""

from dataclasses import dataclass, field
from time import monotonic

import structlog

from shared.retry.attempt import Attempt, Failed, Outcome, Responded, Verdict

log = structlog.get_logger()

# A destination that flaps changes its fortune with each request.
LINES_PER_MINUTE_MAX = 10
_MINUTE_S = 60


@dataclass(slots=True)
class _Minute:
    number: int
    reason: str
    lines_left: int = LINES_PER_MINUTE_MAX
    attempts_unsaid: int = 0


@dataclass(slots=True)
class AttemptLog:
    """What one worker process has logged of each destination."""

    _minutes: dict[str, _Minute] = field(default_factory=dict)

    def note(
        self, destination_id: str, attempt: Attempt, verdict: Verdict, *, batch_id: str
    ) -> None:
        """Log an attempt if it is the minute's first, or ends otherwise than the one before."""
        number = int(monotonic()) // _MINUTE_S
        minute = self._minutes.get(destination_id)
        if minute is None or minute.number != number:
            unsaid = 0 if minute is None else minute.attempts_unsaid
            minute = self._minutes[destination_id] = _Minute(number, verdict.reason)
            minute.attempts_unsaid = unsaid
        elif verdict.reason == minute.reason or not minute.lines_left:
            minute.attempts_unsaid += 1
            return
        say = log.info if verdict.outcome is Outcome.OK else log.warning
        say(
            "delivery.attempted",
            destination=destination_id,
            batch_id=batch_id,
            outcome=verdict.outcome.value,
            reason=verdict.reason,
            status=attempt.status if isinstance(attempt, Responded) else None,
            detail=attempt.detail if isinstance(attempt, Failed) else attempt.excerpt,
            attempts_unsaid=minute.attempts_unsaid,
        )
        minute.reason, minute.attempts_unsaid = verdict.reason, 0
        minute.lines_left -= 1
