"""The worst that holds decides the word, and its reason is told."""

from dataclasses import replace

import pytest

from observe.lag.verdict import STALLED_AFTER_S, stream_verdict
from shared.proof.balance import Balance
from shared.proof.overview import (
    DestinationView,
    MinuteBooks,
    MinuteState,
    Node,
    Quantiles,
    StreamVerdict,
    Unsettled,
)
from tests.support.console_fixtures import destination_view
from tests.support.samples import log_buckets

BALANCE = Balance(100, 90, 3, 2, 5, 0)


def minute(state: MinuteState, lost: int = 0) -> MinuteBooks:
    return MinuteBooks(
        "s", "s/d", 0, state, 10, 10 - lost, 0, 0, 0, {Node.KAFKA: lost} if lost else {},
        problem="the lane has not come to it",
    )  # fmt: skip


LOSING = minute(MinuteState.LOSING, 2)
BLIND = minute(MinuteState.CANNOT_TELL)
WELL = minute(MinuteState.COMPLETE)
SLOW = Quantiles.of(log_buckets([60_000]))
FAST = Quantiles.of(log_buckets([60]))

# silent_s, oldest_age_s, since_accepted, minutes, problem -> verdict, a part of the reason
TABLE = [
    (0.0, None, None, [], "", StreamVerdict.OK, ""),
    (0.0, 1.0, FAST, [WELL], "", StreamVerdict.OK, ""),
    (STALLED_AFTER_S, 99.0, SLOW, [LOSING, BLIND], "x", StreamVerdict.LOSING, "2 events"),
    (STALLED_AFTER_S, 99.0, SLOW, [BLIND], "x", StreamVerdict.STALLED, "none has moved"),
    (0.0, 99.0, SLOW, [BLIND], "", StreamVerdict.CANNOT_TELL, "has not come to it"),
    (0.0, 99.0, SLOW, [WELL], "Kafka is away", StreamVerdict.CANNOT_TELL, "Kafka is away"),
    (0.0, 99.0, FAST, [], "", StreamVerdict.SLOW, "3 wait for a retry"),
    (0.0, 1.0, SLOW, [], "", StreamVerdict.SLOW, "95 %"),
    (0.0, None, SLOW, [], "", StreamVerdict.SLOW, "95 %"),
]


def a_view(
    silent_s: float, age_s: float | None, lag: Quantiles | None, minutes: list[MinuteBooks]
) -> DestinationView:
    return replace(
        destination_view("s", "d", at_ms=0),
        balance=BALANCE, backlog_events=8, silent_s=silent_s, oldest_age_s=age_s,
        since_accepted=lag, minutes=tuple(minutes),
        unsettled=Unsettled(12, 0, BLIND.problem) if BLIND in minutes else Unsettled(),
    )  # fmt: skip


def test_what_a_person_has_paused_does_not_stand_still_by_itself() -> None:
    view = a_view(99.0, 99.0, None, [WELL])
    found, reason = stream_verdict(view, is_paused=True, slow_after_s=30)
    assert (found, reason) == (StreamVerdict.SLOW, "it is paused, and 8 events wait")
    idle = replace(
        view, balance=Balance(1, 1, 0, 0, 0, 0), backlog_events=0, oldest_age_s=None
    )  # fmt: skip
    assert stream_verdict(idle, is_paused=True, slow_after_s=30) == (StreamVerdict.OK, "")


def test_a_loss_names_who_lost() -> None:
    found = stream_verdict(a_view(0, None, None, [LOSING]), slow_after_s=30)
    assert found[1] == "2 events were lost in the last hour, at kafka"


@pytest.mark.parametrize(("silent", "age", "lag", "minutes", "problem", "verdict", "why"), TABLE)
def test_the_worst_that_holds_decides(  # noqa: PLR0917 - a table
    silent: float,
    age: float | None,
    lag: Quantiles | None,
    minutes: list[MinuteBooks],
    problem: str,
    verdict: StreamVerdict,
    why: str,
) -> None:
    view = a_view(silent, age, lag, minutes)
    found, reason = stream_verdict(view, problem=problem, slow_after_s=30)
    assert found is verdict
    assert why in reason
    assert bool(reason) == (verdict is not StreamVerdict.OK)


@pytest.mark.parametrize(
    ("unsettled", "words"),
    [
        (Unsettled(1, 0, "why"), "1 minute is not settled; 1970-01-01 00:00 UTC: why"),
        (
            Unsettled(2_000, None, "why"),
            "2,000 minutes are not settled; events with a wild time: why",
        ),
    ],
)
def test_what_is_not_settled_is_told_however_old_it_is(unsettled: Unsettled, words: str) -> None:
    view = replace(a_view(0.0, None, None, []), unsettled=unsettled)
    assert stream_verdict(view, slow_after_s=30) == (StreamVerdict.CANNOT_TELL, words)
