"""A destination's state survives its file and the state topic, and nonsense in both."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.flow.flow import EndedRequest, Flow, FlowState, SendLimits, after_attempt, parked
from shared.flow.flow_record import FlowRecord, going_on, open_flow_record
from shared.flow.starting import may_start
from shared.retry.attempt import Attempt, Failure, NoResponse, Response, classify
from tests.support.suite.samples import NOW_MS
from tests.unit.flow.test_flow import AWAY, HOLDING, LIMITS, limits_with, told

attempts: st.SearchStrategy[Attempt] = st.sampled_from(
    [
        Response(200),
        Response(503),
        Response(429, "3"),
        Response(401),
        Response(410),
        NoResponse(Failure.READ_TIMEOUT),
        NoResponse(Failure.SECRET_UNAVAILABLE),
    ]
)


@st.composite
def flows(draw: st.DrawFn) -> Flow:
    """Draw any state that a destination can reach."""
    flow, now_ms = Flow(), NOW_MS
    for attempt, count in draw(st.lists(st.tuples(attempts, st.integers(1, 12)), max_size=6)):
        for _ in range(count):
            now_ms += draw(st.integers(0, 400))
            flow, _ = may_start(flow, HOLDING, task="1.a", running_count=0, now_ms=now_ms)
            ended = EndedRequest(
                attempt, classify(attempt), 7, 31.5, 31.5, is_probe=bool(count % 2)
            )
            flow = after_attempt(flow, HOLDING, ended, now_ms=now_ms, roll=0.5)
    return parked(flow, "held", 3)


@given(flows())
def test_a_record_is_the_same_after_its_json(flow: Flow) -> None:
    record = FlowRecord(Flow()).with_flow(flow, now_ms=NOW_MS)
    assert open_flow_record(record.to_json()) == record
    assert open_flow_record(record.to_json().ljust(4096)) == record


def test_the_first_members_are_for_people() -> None:
    record = FlowRecord(Flow()).with_flow(told(Flow(), *[AWAY] * 10), now_ms=NOW_MS)
    said = json.loads(record.to_json())
    assert {name: said[name] for name in list(said)[:4]} == {
        "state": "open",
        "since_ms": NOW_MS,
        "until_ms": NOW_MS + 30_000,
        "limit": 2,
    }


@pytest.mark.parametrize(
    "raw",
    [None, b"", b"null", b"[]", b"{}", b'{"state":"open"}', b"\xff", b"[" * 100_000, b'{"flow":1}'],
)
def test_what_cannot_be_read_is_nothing(raw: bytes | None) -> None:
    assert open_flow_record(raw) is None


def test_any_part_that_is_missing_makes_it_nothing() -> None:
    whole = json.loads(FlowRecord(Flow()).to_json())
    assert open_flow_record(json.dumps(whole).encode()) == FlowRecord(Flow())
    flow = whole["flow"]
    # An older version does not write these members.
    for name in ("neighbours", "changes", "blocking", "batch_size"):
        kept = flow.pop(name)
        assert open_flow_record(json.dumps(whole).encode()) == FlowRecord(Flow())
        flow[name] = kept
    for holder in (flow, flow["concurrency"], flow["concurrency"]["window"], flow["breaker"]):
        for name in holder.keys() - {"neighbours", "changes", "blocking", "batch_size"}:
            kept = holder.pop(name)
            assert open_flow_record(json.dumps(whole).encode()) is None
            holder[name] = kept


def test_a_member_of_a_newer_version_is_passed_by() -> None:
    whole = json.loads(FlowRecord(Flow()).to_json())
    more = {**whole, "mood": 1, "flow": {**whole["flow"], "mood": 1}}
    assert open_flow_record(json.dumps(more).encode()) == FlowRecord(Flow())


def test_when_the_next_request_may_go_follows_from_the_state() -> None:
    def until_ms(flow: Flow) -> int:
        return FlowRecord(Flow()).with_flow(flow, now_ms=NOW_MS).until_ms

    assert until_ms(Flow()) == 0
    assert until_ms(told(Flow(), Response(429, "9"))) == NOW_MS + 9_000
    assert until_ms(told(Flow(), *[Response(401)] * 50, limits=HOLDING)) == NOW_MS + 30_000
    assert until_ms(told(Flow(), Response(410))) == 0


def test_trouble_lasts_when_nothing_may_be_sent_and_nothing_was_delivered_for_long() -> None:
    def lasts(flow: Flow, after_ms: int) -> bool:
        record = FlowRecord(Flow()).with_flow(flow, now_ms=NOW_MS)
        return record.is_in_lasting_trouble(now_ms=NOW_MS + after_ms, after_s=5.0)

    dead = told(Flow(), *[AWAY] * 10)
    assert (lasts(dead, 4_000), lasts(dead, 6_000)) == (False, True)
    limiting = told(Flow(), Response(429, "9"))
    assert (lasts(limiting, 4_000), lasts(limiting, 6_000)) == (False, True)
    # The rate gate has opened, and no request has been answered yet.
    tries = replace(limiting, concurrency=replace(limiting.concurrency, limit=3))
    opened = FlowRecord(limiting).with_flow(tries, now_ms=NOW_MS + 20_000)
    assert opened.state is FlowState.CLOSED
    assert opened.is_in_lasting_trouble(now_ms=NOW_MS + 20_000, after_s=5.0)
    # The destination accepted something in between, or Hifi may still send to it.
    assert not lasts(told(Flow(), Response(429, "9"), Response(200)), 60_000)
    assert not lasts(told(Flow(), Response(503)), 60_000)
    assert not lasts(Flow(), 60_000)
    assert lasts(told(Flow(), Response(410)), 0)


def test_a_change_of_state_is_told_at_once_and_anything_else_now_and_then() -> None:
    record = FlowRecord(Flow())
    assert not record.is_to_publish(now_ms=NOW_MS)
    well = record.with_flow(told(Flow(), Response(200)), now_ms=NOW_MS)
    assert well.is_to_publish(now_ms=NOW_MS)
    said = well.published(now_ms=NOW_MS)
    assert not said.is_to_publish(now_ms=NOW_MS + 5_000)
    more = said.with_flow(told(well.flow, Response(200)), now_ms=NOW_MS + 1)
    assert not more.is_to_publish(now_ms=NOW_MS + 999)
    assert more.is_to_publish(now_ms=NOW_MS + 1_000)
    assert not more.is_to_publish(now_ms=NOW_MS + 4_999, every_ms=5_000)
    assert more.is_to_publish(now_ms=NOW_MS + 5_000, every_ms=5_000)
    slow = said.with_flow(told(well.flow, Response(200), latency_ms=1_500.0), now_ms=NOW_MS + 1)
    assert slow.state is well.state
    assert slow.is_to_publish(now_ms=NOW_MS + 1, every_ms=5_000)
    gone = said.with_flow(told(well.flow, Response(410)), now_ms=NOW_MS + 1)
    assert (gone.state, gone.since_ms) == (FlowState.DISABLED, NOW_MS + 1)
    assert gone.is_to_publish(now_ms=NOW_MS + 1)
    assert more.since_ms == well.since_ms


def test_whether_it_takes_anything_and_why_not_is_told_at_once() -> None:
    said = FlowRecord(Flow()).with_flow(told(Flow(), Response(200)), now_ms=NOW_MS)
    said = said.published(now_ms=NOW_MS)
    # A new kind of answer is published even if the state is the same: the next one may be hours
    # away.
    refused = said.with_flow(told(said.flow, Response(401)), now_ms=NOW_MS)
    assert refused.state is said.state
    assert refused.is_to_publish(now_ms=NOW_MS)
    refused = refused.published(now_ms=NOW_MS)
    same = refused.with_flow(told(refused.flow, Response(401)), now_ms=NOW_MS)
    assert not same.is_to_publish(now_ms=NOW_MS)
    for answer in (Response(403), Response(200)):
        assert same.with_flow(told(same.flow, answer), now_ms=NOW_MS).is_to_publish(now_ms=NOW_MS)


def go_on(
    kept: FlowRecord | None, published: FlowRecord | None, limits: SendLimits = LIMITS
) -> FlowRecord:
    return going_on(kept, published, limits, store="ours", now_ms=NOW_MS + 3)


def test_our_own_record_is_gone_on_from_unless_another_machine_knows_more() -> None:
    assert go_on(None, None) == FlowRecord(Flow(), store="ours")
    early = FlowRecord(parked(Flow(), "held", 5), store="here", updated_at_ms=NOW_MS)
    gone = FlowRecord(Flow(), store="there").with_flow(
        told(Flow(), Response(410)), now_ms=NOW_MS + 1
    )
    assert go_on(early, None) is early
    assert go_on(gone, early) is gone
    learned = go_on(early, gone)
    assert (learned.state, learned.store) == (FlowState.DISABLED, "here")
    # Each machine counts its own attempts.
    assert (learned.flow.attempts, learned.flow.parks) == ({}, {"held": 5})
    assert go_on(None, gone).store == "ours"


def test_a_persons_word_comes_first() -> None:
    gone = FlowRecord(Flow()).with_flow(told(Flow(), Response(410)), now_ms=NOW_MS + 1)
    again = go_on(gone, None, limits_with(resumed_at_ms=NOW_MS + 2))
    assert (again.state, again.since_ms) == (FlowState.CLOSED, NOW_MS + 3)
