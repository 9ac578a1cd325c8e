"""Keeps the audit's last findings and their age, so that people see when the audit has stopped."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from shared.event.times import HOUR_MS
from shared.proof.overview import AuditHealth, MinuteBooks, OverdueMinutes

_ELSEWHERE = "another observer runs the audit, and has its findings"

# By destination, newest first.
Minutes: TypeAlias = Mapping[str, Sequence[MinuteBooks]]


@dataclass(slots=True)
class AuditStatus:
    """The state of the audit: the auditor writes it, and the sampler reads it in the same loop."""

    started_ms: int
    interval_s: float
    overdue_after_s: float
    is_on: bool = True
    health: AuditHealth = field(default_factory=AuditHealth)
    minutes: Minutes = field(default_factory=dict)
    # By destination. From a restart until the first run, these are from the last run before it.
    overdue: Mapping[str, OverdueMinutes] = field(default_factory=dict)
    # Whether another observer runs the audit, and when that was last seen.
    is_elsewhere: Callable[[], bool] = lambda: False
    elsewhere_ms: int = 0

    def failed(self, problem: str) -> None:
        self.health = replace(self.health, problem=problem)

    def health_at(self, now_ms: int) -> AuditHealth:
        """Return the last reported health, and how late the next run is."""
        if self.is_elsewhere():
            self.elsewhere_ms = now_ms
            return AuditHealth(problem=_ELSEWHERE, is_elsewhere=True)
        if not self.is_on:
            return AuditHealth(problem="the audit is switched off")
        since_ms = max(self.health.last_run_ms or self.started_ms, self.elsewhere_ms)
        behind_s = (now_ms - since_ms) / 1000 - self.interval_s
        return replace(self.health, behind_s=max(0.0, behind_s))

    def blindness(self, now_ms: int) -> str:
        """Return why losses are not checked; empty if they are, or if no audit is due here."""
        if not self.is_on or self.is_elsewhere():
            return ""
        behind_s = self.health_at(now_ms).behind_s
        if behind_s < self.overdue_after_s:
            return ""
        return f"the audit is {behind_s:,.0f} s behind: {self.health.problem or 'it hangs'}"


def is_news(books: MinuteBooks, now_ms: int) -> bool:
    """Return whether to show a minute: for an hour, and an hour after its loss was reported."""
    return books.minute_ms is None or max(books.minute_ms, books.told_at_ms) > now_ms - HOUR_MS
