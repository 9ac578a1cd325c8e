"""Sums a destination up in one word for people, and a sentence that says why."""

from collections.abc import Sequence
from dataclasses import dataclass

from shared.proof.balance import Balance
from shared.proof.overview import MinuteBooks, MinuteState, Quantiles, StreamVerdict

# A lane that has work and gives no sign for so long hangs; a busy one gives several a second.
STALLED_AFTER_S = 4.0


@dataclass(frozen=True, slots=True)
class Signs:
    """What a verdict rests on."""

    balance: Balance
    # How long there has been work and no sign of it being done.
    silent_s: float
    oldest_age_s: float | None
    since_accepted: Quantiles | None
    # The latest hour, as far as the audit has come.
    minutes: Sequence[MinuteBooks]
    # Why something could not be read; empty when all was.
    problem: str = ""
    # A person has said to wait.
    is_paused: bool = False


def stream_verdict(signs: Signs, *, slow_after_s: float) -> tuple[StreamVerdict, str]:
    """The worst that holds, and why."""
    lost = sum(minute.lost_count for minute in signs.minutes)
    if lost:
        nodes = sorted({node.value for minute in signs.minutes for node in minute.lost})
        return (
            StreamVerdict.LOSING,
            f"{lost:,} events were lost in the last hour, at {' and '.join(nodes)}",
        )
    if signs.silent_s >= STALLED_AFTER_S and not signs.is_paused:
        pending = signs.balance.pending
        return (
            StreamVerdict.STALLED,
            f"{pending:,} events are there and none has moved for {signs.silent_s:.0f} s",
        )
    blind = [minute for minute in signs.minutes if minute.state is MinuteState.CANNOT_TELL]
    if signs.problem or blind:
        return StreamVerdict.CANNOT_TELL, signs.problem or blind[0].problem
    return _pace(signs, slow_after_s)


def _pace(signs: Signs, slow_after_s: float) -> tuple[StreamVerdict, str]:
    """Whether what is there moves as it should, once nothing worse is known."""
    backlog = signs.balance.pending + signs.balance.waiting
    if signs.is_paused and backlog:
        return StreamVerdict.SLOW, f"it is paused, and {backlog:,} events wait"
    if signs.oldest_age_s is not None and signs.oldest_age_s >= slow_after_s:
        waiting = signs.balance.waiting
        what = f"{waiting:,} wait for a retry, " if waiting else ""
        return StreamVerdict.SLOW, f"{what}the oldest event is {signs.oldest_age_s:,.0f} s old"
    p95_s = signs.since_accepted.p95_ms / 1000 if signs.since_accepted else 0.0
    if p95_s >= slow_after_s:
        return StreamVerdict.SLOW, f"95 % of events arrive within {p95_s:,.1f} s, not sooner"
    return StreamVerdict.OK, ""
