"""A destination blocked by an event is held; its state names the event and the hold's times."""

from dataclasses import replace

from shared.config.destination import Destination
from shared.flow.flow import (
    NOTHING,
    Blocking,
    EndedRequest,
    Flow,
    FlowState,
    SendLimits,
    after_attempt,
    blocked,
    permits_of,
    state_of,
)
from shared.flow.flow_record import FlowRecord, open_flow_record
from shared.flow.resuming import resumed
from shared.retry.attempt import Response, classify
from shared.retry.schedule import RetrySchedule

TO = Destination("s", "d", "https://1.1.1.1/", order="stream", parallel_max=8)
LIMITS = SendLimits(TO, RetrySchedule())
HELD_UP = Blocking(offset=17, since_ms=1_000, until_ms=31_000, attempts=3)


def ended(status: int) -> EndedRequest:
    attempt = Response(status)
    return EndedRequest(
        attempt, classify(attempt, retry_on=frozenset()), 1, 5.0, 5.0, is_probe=False
    )


def test_it_is_held_until_it_takes_something() -> None:
    flow = blocked(Flow(), HELD_UP)
    assert state_of(flow, now_ms=99_000) is FlowState.HELD
    failed = after_attempt(flow, LIMITS, ended(503), now_ms=2_000, roll=0.0)
    assert failed.blocking == HELD_UP
    taken = after_attempt(failed, LIMITS, ended(200), now_ms=2_000, roll=0.0)
    assert taken.blocking == NOTHING
    assert state_of(taken, now_ms=2_000) is FlowState.CLOSED


def test_a_persons_word_ends_it() -> None:
    anew = SendLimits(replace(TO, resumed_at_ms=5), RetrySchedule())
    assert not resumed(blocked(Flow(), HELD_UP), anew).is_blocked


def test_others_hear_of_it_at_once_and_what_older_ones_write_has_none() -> None:
    record = FlowRecord(Flow()).with_flow(blocked(Flow(), HELD_UP), now_ms=2_000)
    assert record.is_to_publish(now_ms=2_000)
    assert (record.state, record.until_ms) == (FlowState.HELD, 31_000)
    assert open_flow_record(record.to_json()) == record
    old = FlowRecord(Flow()).to_json().replace(b',"blocking":{}', b"")
    assert old != FlowRecord(Flow()).to_json()
    assert open_flow_record(old) == FlowRecord(Flow())


def test_one_request_is_under_way_whatever_else_is_set() -> None:
    assert TO.requests_at_once_max == 1
    assert permits_of(Flow(), LIMITS) == 1
    assert replace(TO, order="key").requests_at_once_max == 8
