"""Pipelines are judged with the same words as destinations."""

from dataclasses import replace
from typing import Any

import pytest

from observe.lag.pipeline_verdict import STALLED_AFTER_S, pipeline_verdict
from observe.lag.progress import Progress
from shared.config.pipeline_state import PipelineState
from shared.proof.balance import Balance
from shared.proof.overview import MinuteBooks, MinuteState, OverdueMinutes, Stage, StreamVerdict
from shared.proof.receipt import CoveredOffsets, Receipt, ReceiptOutcome
from tests.support.console.console_fixtures import destination_view, quantiles

LANE = replace(
    destination_view("orders", "pipeline:p", at_ms=0),
    minutes=(),
    oldest_age_s=None,
    silent_s=0.0,
    overdue=OverdueMinutes(),
)
RUNS = PipelineState("f", "running")
LOST = MinuteBooks(
    "orders", LANE.destination_id, 0, MinuteState.LOSS, 3, 2, 0, 0, 0, {Stage.PIPELINE: 1}
)


@pytest.mark.parametrize(
    ("lane", "more", "verdict", "says"),
    [
        ({}, {}, StreamVerdict.OK, ""),
        ({"minutes": (LOST,)}, {"problem": "away"}, StreamVerdict.LOSING, "at the stage pipeline"),
        ({}, {"problem": "Kafka is away"}, StreamVerdict.CANNOT_TELL, "Kafka is away"),
        (
            {},
            {"state": PipelineState("f", "refused", "no such column", "/steps/0/where")},
            StreamVerdict.DISABLED,
            "it is refused: no such column (/steps/0/where)",
        ),
        (
            {"silent_s": STALLED_AFTER_S, "balance": Balance(acked=7, queued=7)},
            {},
            StreamVerdict.STALLED,
            "7 events are queued and none has moved for 90 s",
        ),
        (
            {},
            {"rates": {"passed": 1.0, "dead": 3.0}},
            StreamVerdict.REJECTING,
            "75 % of the events",
        ),
        ({}, {"rates": {"passed": 3.0, "dead": 1.0}}, StreamVerdict.OK, ""),
        ({}, {"blindness": "the audit hangs"}, StreamVerdict.CANNOT_TELL, "the audit hangs"),
        (
            {"overdue": OverdueMinutes(2, 0, "its lane has not reached 2 of its events")},
            {},
            StreamVerdict.CANNOT_TELL,
            "2 minutes are not checked",
        ),
        ({"oldest_age_s": 31.0}, {}, StreamVerdict.SLOW, "the oldest event is 31 s old"),
        ({"since_accepted": quantiles(40_000)}, {}, StreamVerdict.SLOW, "95 % of events"),
    ],
)
def test_the_worst_that_holds_is_said_with_why(
    lane: dict[str, Any], more: dict[str, Any], verdict: StreamVerdict, says: str
) -> None:
    shown = replace(LANE, **{"since_accepted": None, **lane})
    asked = {"state": RUNS, "rates": {}, **more}
    state, rates = asked.pop("state"), asked.pop("rates")
    found = pipeline_verdict(shown, state, rates, slow_after_s=30.0, **asked)
    assert found.verdict is verdict
    assert says in found.reason


def test_what_became_of_events_of_the_last_minute_is_told_by_the_second() -> None:
    def receipt(outcome: ReceiptOutcome, count: int, at_ms: int, **more: Any) -> Receipt:
        return Receipt(
            destination_id="orders/pipeline:p",
            outcome=outcome,
            reason="",
            batch_id="b",
            event_count=count,
            covered=(CoveredOffsets("hifi.stream.orders", 0, 0, count),),
            minutes={},
            event_time_ms_min=0,
            accepted_at_ms_min=0,
            attempt=1,
            started_at_ms=at_ms,
            ended_at_ms=at_ms,
            **more,
        )

    now_ms = 10_000_000
    known = Progress("orders/pipeline:p")
    filtered = {"filtered": {0: 50, 60_000: 40}, "late": {0: 6}}
    delivered, dead = ReceiptOutcome.DELIVERED, ReceiptOutcome.DEAD
    known.take(receipt(delivered, 120, now_ms - 5_000, not_passed=filtered), now_ms=now_ms)
    known.take(receipt(delivered, 36, now_ms - 5_000), now_ms=now_ms)
    known.take(receipt(dead, 12, now_ms - 25_000), now_ms=now_ms)
    known.take(receipt(delivered, 999, now_ms - 120_000), now_ms=now_ms)
    rates = known.recent.rates(now_ms=now_ms)
    assert rates == {"passed": 1.0, "filtered": 1.5, "late": 0.1, "dead": 0.2}
    assert known.recent.rates(now_ms=now_ms + 200_000) == {}
