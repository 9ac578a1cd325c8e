"""The worst condition that holds decides the verdict, and gives its reason."""

from dataclasses import replace
from math import inf

import pytest

from observe.lag.verdict import STALLED_AFTER_S, stream_verdict
from shared.flow.concurrency import Concurrency
from shared.flow.flow import Blocking, Flow, blocked
from shared.proof.balance import Balance
from shared.proof.overview import (
    DestinationView,
    Finding,
    MinuteBooks,
    MinuteState,
    OverdueMinutes,
    Quantiles,
    RecentOutcomes,
    Stage,
    StreamVerdict,
)
from tests.support.console.console_fixtures import destination_view
from tests.support.suite.samples import NOW_MS, log_buckets
from tests.unit.flow.test_flow import AWAY, OK, TO, told
from tests.unit.observe.test_trouble import record

BALANCE = Balance(100, 90, 3, 2, 5, 0)


def minute(state: MinuteState, lost: int = 0) -> MinuteBooks:
    return MinuteBooks(
        "s", "s/d", 0, state, 10, 10 - lost, 0, 0, 0, {Stage.QUEUE: lost} if lost else {},
        problem="the lane has not come to it",
    )  # fmt: skip


LOSING = minute(MinuteState.LOSS, 2)
BLIND = minute(MinuteState.CANNOT_TELL)
WELL = minute(MinuteState.CHECKED)
DOWN = record(told(Flow(), *[AWAY] * 10))
SLOW = Quantiles.of(log_buckets([60_000]))
FAST = Quantiles.of(log_buckets([60]))

# silent_s, oldest_age_s, since_accepted, minutes, blindness -> verdict, a part of the reason
TABLE = [
    (0.0, None, None, [], "", StreamVerdict.OK, ""),
    (0.0, 1.0, FAST, [WELL], "", StreamVerdict.OK, ""),
    (STALLED_AFTER_S, 99.0, SLOW, [LOSING, BLIND], "x", StreamVerdict.LOSING, "2 events"),
    (STALLED_AFTER_S, 99.0, SLOW, [BLIND], "x", StreamVerdict.STALLED, "none has moved"),
    (0.0, 99.0, SLOW, [BLIND], "", StreamVerdict.CANNOT_TELL, "has not come to it"),
    (0.0, 99.0, SLOW, [WELL], "the audit is late", StreamVerdict.CANNOT_TELL, "is late"),
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
        overdue=(
            OverdueMinutes(12, 0, BLIND.problem) if BLIND in minutes else OverdueMinutes()
        ),
    )  # fmt: skip


def test_a_loss_names_who_lost() -> None:
    found = stream_verdict(a_view(0, None, None, [LOSING]), TO, slow_after_s=30, now_ms=NOW_MS)
    assert found.reason == "2 events were lost in the last hour, at the stage queue"


@pytest.mark.parametrize(("silent", "age", "lag", "minutes", "blindness", "verdict", "why"), TABLE)
def test_the_worst_that_holds_decides(  # noqa: PLR0917 - a table
    silent: float,
    age: float | None,
    lag: Quantiles | None,
    minutes: list[MinuteBooks],
    blindness: str,
    verdict: StreamVerdict,
    why: str,
) -> None:
    view = a_view(silent, age, lag, minutes)
    found = stream_verdict(view, TO, blindness=blindness, slow_after_s=30, now_ms=NOW_MS)
    assert found.verdict is verdict
    assert why in found.reason
    assert bool(found.reason) == (verdict is not StreamVerdict.OK)


def test_what_cannot_be_read_says_nothing_of_a_destination() -> None:
    view = a_view(99.0, 99.0, SLOW, [WELL])
    found = stream_verdict(view, TO, DOWN, problem="Kafka is away", slow_after_s=30, now_ms=NOW_MS)
    assert found == Finding(StreamVerdict.CANNOT_TELL, "Kafka is away")


def test_a_destination_that_is_down_explains_silence_and_minutes_that_are_not_settled() -> None:
    # A resting lane is silent for seconds, and each probe may take as long as an answer.
    view = a_view(20.0, 99.0, SLOW, [BLIND])
    found = stream_verdict(
        view, TO, DOWN, blindness="the audit is behind", slow_after_s=30, now_ms=NOW_MS
    )
    assert found.verdict is StreamVerdict.FAILING
    hangs = replace(view, silent_s=60.0)
    assert (
        stream_verdict(hangs, TO, DOWN, slow_after_s=30, now_ms=NOW_MS).verdict
        is StreamVerdict.STALLED
    )


def test_a_lane_whose_destination_takes_its_time_does_not_hang() -> None:
    slow = record(Flow(concurrency=Concurrency(limit=2.0, mean_ms=6_000.0)))
    view = a_view(10.0, 45.0, FAST, [])
    found = stream_verdict(view, TO, slow, slow_after_s=30, now_ms=NOW_MS)
    assert (found.verdict, found.cause) == (StreamVerdict.SLOW, "slow_answers")
    assert found.reason.endswith("the oldest event is 45 s old; it takes 6.0 s to answer")


@pytest.mark.parametrize(
    ("flow", "says"),
    [
        (Flow(concurrency=Concurrency(mean_ms=1_500.0)), "it takes 1.5 s to answer"),
        # After a single answer, the usual time is unknown.
        (told(Flow(), OK, latency_ms=1_200.0), "it takes over 1 s to answer"),
        (Flow(concurrency=Concurrency(mean_ms=900.0)), ""),
        (told(Flow(concurrency=Concurrency(mean_ms=90.0)), OK, latency_ms=1_200.0), ""),
    ],
)
def test_who_takes_a_second_to_answer_is_slow_before_any_event_is_late(
    flow: Flow, says: str
) -> None:
    view = replace(a_view(0.0, 1.0, FAST, []), balance=Balance(100, 90, 0, 2, 8, 0))
    found = stream_verdict(view, TO, record(flow), slow_after_s=30, now_ms=NOW_MS)
    wanted = (
        Finding(StreamVerdict.SLOW, says, "slow_answers") if says else Finding(StreamVerdict.OK)
    )
    assert found == wanted
    # The backlog waits in a tier: for at least thirty seconds.
    parked = replace(view, balance=BALANCE)
    found = stream_verdict(parked, TO, record(flow), slow_after_s=30, now_ms=NOW_MS)
    assert found.reason == (f"3 wait for a retry, {says}" if says else "")
    # Once nothing waits, the destination's old answers no longer count.
    long_ago = replace(view, backlog_events=0, lately=RecentOutcomes())
    found = stream_verdict(long_ago, TO, record(flow), slow_after_s=30, now_ms=NOW_MS)
    assert found.verdict is StreamVerdict.OK


def test_behind_one_slow_answer_a_silent_lane_is_waited_for() -> None:
    slow = record(told(Flow(), OK, latency_ms=9_000.0))
    view = a_view(2 * TO.timeout_s, 1.0, FAST, [])
    found = stream_verdict(view, TO, slow, slow_after_s=30, now_ms=NOW_MS)
    assert (found.verdict, found.cause) == (StreamVerdict.SLOW, "slow_answers")


@pytest.mark.parametrize(
    ("drain_s", "reason"),
    [
        (29.0, ""),
        (80.0, "8 events are queued, and at the pace of the last 10 s this backlog takes 80 s"),
        (inf, "8 events are queued, and none has moved for 10 s"),
    ],
)
def test_a_backlog_that_will_be_late_is_slow_before_it_is(drain_s: float, reason: str) -> None:
    view = replace(a_view(0.0, 11.0, FAST, []), balance=Balance(100, 90, 0, 2, 8, 0))
    found = stream_verdict(view, TO, drain_s=drain_s, slow_after_s=30, now_ms=NOW_MS)
    assert (found.reason, found.cause) == (reason, "late" if reason else "")


def test_a_destination_that_is_to_be_tried_now_is_slow_until_it_is() -> None:
    to = replace(TO, resumed_at_ms=NOW_MS + 1)
    found = stream_verdict(a_view(0.0, 45.0, None, []), to, DOWN, slow_after_s=30, now_ms=NOW_MS)
    assert (found.verdict, found.cause) == (StreamVerdict.SLOW, "not_tried_yet")
    assert "a person asked to try it now" in found.reason


@pytest.mark.parametrize(
    ("overdue", "words"),
    [
        (OverdueMinutes(1, 0, "why"), "1 minute is not checked; 1970-01-01 00:00 UTC: why"),
        (
            OverdueMinutes(2_000, None, "why"),
            "2,000 minutes are not checked; events with an implausible time: why",
        ),
    ],
)
def test_what_is_not_settled_is_told_however_old_it_is(overdue: OverdueMinutes, words: str) -> None:
    view = replace(a_view(0.0, None, None, []), overdue=overdue)
    found = stream_verdict(view, TO, slow_after_s=30, now_ms=NOW_MS)
    assert found == Finding(StreamVerdict.CANNOT_TELL, words)


def test_a_lane_that_waits_in_order_is_not_taken_for_one_that_hangs() -> None:
    to = replace(TO, order="stream")
    blocking = Blocking(since_ms=NOW_MS, until_ms=NOW_MS + 300_000, attempts=2)
    heard = record(blocked(told(Flow(), AWAY), blocking))

    def verdict(silent_s: float) -> StreamVerdict:
        view = a_view(silent_s, silent_s, FAST, [])
        return stream_verdict(view, to, heard, slow_after_s=30.0, now_ms=NOW_MS).verdict

    assert verdict(290.0) is StreamVerdict.HELD
    assert verdict(400.0) is StreamVerdict.STALLED
