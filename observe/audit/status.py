"""Keeps the audit's last findings and their age, so that an audit that has stopped shows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from shared.event.times import HOUR_MS
from shared.proof.overview import AuditHealth, MinuteBooks, OverdueMinutes

_ELSEWHERE = "another observer runs the audit, and has what it found"

# By destination, newest first.
Minutes: TypeAlias = Mapping[str, Sequence[MinuteBooks]]


@dataclass(slots=True)
class AuditStatus:
    """Written by the auditor, read by the sampler, both in one event loop."""

    started_ms: int
    interval_s: float
    overdue_after_s: float
    is_on: bool = True
    health: AuditHealth = field(default_factory=AuditHealth)
    minutes: Minutes = field(default_factory=dict)
    # By destination; from the last run before a restart, until there is one after it.
    overdue: Mapping[str, OverdueMinutes] = field(default_factory=dict)
    # Another observer runs the audit; and when it was last seen to be so.
    is_elsewhere: Callable[[], bool] = lambda: False
    elsewhere_ms: int = 0

    def failed(self, problem: str) -> None:
        self.health = replace(self.health, problem=problem)

    def health_at(self, now_ms: int) -> AuditHealth:
        """The health that was last reported, and how late the next run is."""
        if self.is_elsewhere():
            self.elsewhere_ms = now_ms
            return AuditHealth(problem=_ELSEWHERE, is_elsewhere=True)
        if not self.is_on:
            return AuditHealth(problem="the audit is switched off")
        since_ms = max(self.health.last_run_ms or self.started_ms, self.elsewhere_ms)
        behind_s = (now_ms - since_ms) / 1000 - self.interval_s
        return replace(self.health, behind_s=max(0.0, behind_s))

    def blindness(self, now_ms: int) -> str:
        """Why the audit's results are unreliable; empty if they are not, or none are due here."""
        if not self.is_on or self.is_elsewhere():
            return ""
        behind_s = self.health_at(now_ms).behind_s
        if behind_s < self.overdue_after_s:
            return ""
        return f"the audit is {behind_s:,.0f} s behind: {self.health.problem or 'it hangs'}"


def is_news(books: MinuteBooks, now_ms: int) -> bool:
    """Whether to show a minute: for an hour, and for another after a loss of it is reported."""
    return books.minute_ms is None or max(books.minute_ms, books.told_at_ms) > now_ms - HOUR_MS
