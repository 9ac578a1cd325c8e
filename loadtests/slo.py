"""Judges a step: the objective was met or broken, or the generator was too slow to measure it.

A generator that was late has measured only itself. Such a step is invalid, whatever its figures,
and never becomes a rating.
"""

from dataclasses import dataclass
from typing import Literal

Word = Literal["met", "broken", "invalid"]

# Durations count from the due time, so the generator's lateness makes them wrong. This does not
# matter while the lateness is at most a fifth of the objective.
LATE_SHARE_MAX = 0.2
# Above this share, queues form in the generator (a gevent process at 6,000 requests/s had 97 % and
# was 98 ms late; at 4,000 requests/s it had 80 % and was 3.8 ms late).
CPU_SHARE_MAX = 0.85
# A step is invalid if the generator offered less than this share of the planned requests.
OFFERED_SHARE_MIN = 0.99
# With fewer requests there is no 99th percentile.
REQUESTS_MIN = 100
# A constant backlog may seem to grow by this many seconds of traffic in a step, depending on
# whether a micro-batch is on its way at the end.
BACKLOG_GROWTH_S_MAX = 0.6


@dataclass(frozen=True, slots=True)
class Slo:
    """The objectives. Each share is a part of the offered requests; None means no objective."""

    p99_ms: float = 100.0
    error_share: float = 0.001
    unsent_share: float = 0.0
    # Time from an event's due time to its arrival at the destination.
    age_p95_ms: float | None = None
    age_p99_ms: float | None = None
    # Allowed growth of the backlog, as a share of the rate.
    backlog_share: float | None = None


@dataclass(frozen=True, slots=True)
class StepFigures:
    """The results of a step. The generator offered `offered` of the plan's `planned` requests."""

    planned: float
    offered: int
    unsent: int
    failed: int
    due_p99_ms: float
    late_p99_ms: float
    cpu_share: float
    age_p95_ms: float | None = None
    age_p99_ms: float | None = None
    backlog_share: float | None = None
    # Acknowledged events that are neither delivered, waiting nor dead.
    unaccounted: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    word: Word
    reasons: tuple[str, ...] = ()


def judge(slo: Slo, measured: StepFigures) -> Verdict:
    if reasons := tuple(_why_invalid(slo, measured)):
        return Verdict("invalid", reasons)
    if reasons := tuple(_why_broken(slo, measured)):
        return Verdict("broken", reasons)
    return Verdict("met")


def _why_invalid(slo: Slo, measured: StepFigures) -> list[str]:
    late_max_ms = LATE_SHARE_MAX * slo.p99_ms
    reasons = []
    if measured.planned < REQUESTS_MIN:
        reasons.append(
            f"{measured.planned:.0f} requests are too few for a 99th percentile: hold for longer"
        )
    elif measured.offered < OFFERED_SHARE_MIN * measured.planned - 3 * measured.planned**0.5:
        reasons.append(
            f"the generator offered {measured.offered:,} of {measured.planned:,.0f} requests"
        )
    if measured.late_p99_ms > late_max_ms:
        reasons.append(
            f"the generator was late: p99 {measured.late_p99_ms:.1f} ms,"
            f" at most {late_max_ms:.0f} ms are allowed for this objective"
        )
    if measured.cpu_share > CPU_SHARE_MAX:
        reasons.append(
            f"a process of the generator was busy for {measured.cpu_share:.0%} of the time,"
            f" at most {CPU_SHARE_MAX:.0%} is allowed: give it more processes"
        )
    return reasons


def _why_broken(slo: Slo, measured: StepFigures) -> list[str]:
    offered = max(1, measured.offered)
    reasons = []
    if measured.due_p99_ms > slo.p99_ms:
        reasons.append(f"p99 {measured.due_p99_ms:.1f} ms, {slo.p99_ms:.0f} ms promised")
    if measured.failed / offered > slo.error_share:
        reasons.append(f"{measured.failed:,} of {measured.offered:,} requests failed")
    if measured.unsent / offered > slo.unsent_share:
        reasons.append(f"{measured.unsent:,} requests were not sent: too many were unanswered")
    for name, promised, age in (
        ("p95", slo.age_p95_ms, measured.age_p95_ms),
        ("p99", slo.age_p99_ms, measured.age_p99_ms),
    ):
        if promised is not None and (age is None or age > promised):
            text = "nothing" if age is None else f"{name} {age:.0f} ms"
            reasons.append(f"{text} at the destination, {promised:.0f} ms promised")
    if slo.backlog_share is not None and (
        measured.backlog_share is None or measured.backlog_share > slo.backlog_share
    ):
        grows = measured.backlog_share
        text = "unknown" if grows is None else f"{grows:.1%} of the rate"
        reasons.append(f"backlog growth: {text}, {slo.backlog_share:.1%} at most")
    if measured.unaccounted:
        reasons.append(f"{measured.unaccounted:,} acknowledged events are unaccounted for")
    return reasons
