"""`deliver` without Spark: fetched records in, a real HTTP destination, outcomes out."""

import json
from collections import Counter
from dataclasses import replace
from email.utils import formatdate
from functools import partial

import pytest

from delivery.sending import Plan
from shared.config.destination import Destination
from shared.event.record import KafkaPartition, Origin, RecordIn
from shared.event.topics import DEAD, RECEIPTS, RETRY_PREFIX, retry_topic
from shared.proof.receipt import ReceiptOutcome
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from tests.support.delivery.deliver_runs import (
    TOPIC,
    covered,
    events,
    events_only,
    new_folder,
    opened,
    plan_for,
    receipts,
    replayed,
    run,
    sample,
    waiting_record,
)
from tests.support.servers.scripted_destination import (
    Reply,
    Request,
    always,
    in_turn,
    scripted_destination,
)


def test_every_event_arrives_once_in_batches_of_the_chosen_size() -> None:
    with scripted_destination() as destination:
        outcomes = events_only(
            run(events(1_050), plan_for(sample(destination, batch_count_max=100)))
        )
        assert destination.accepted_ids == Counter(f"e{n}" for n in range(1_050))
        assert sorted(len(request.events) for request in destination.requests) == [50] + [100] * 10
    assert {one.topic for one in outcomes} == {RECEIPTS}
    assert list(covered(outcomes, ReceiptOutcome.DELIVERED)) == [(0, 1_050)]
    assert sum(receipt.event_count for receipt in receipts(outcomes)) == 1_050


def test_the_body_is_the_events_own_bytes() -> None:
    odd = b'{ "id":"a",\n "n": 1.50, "s":"\\u00e9" }'
    record = RecordIn(Origin(TOPIC, 0, 0), 0, None, odd, ())
    with scripted_destination() as destination:
        run([record], plan_for(sample(destination)))
        assert destination.requests[0].body == b"[" + odd + b"]"


def test_a_batch_is_named_alike_when_it_is_sent_again() -> None:
    with scripted_destination() as destination:
        to = sample(destination)
        run(events(3), plan_for(to))
        run(events(3), plan_for(to, replay_until={(TOPIC, 0): 2}))
        first, second = destination.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert "hifi-maybe-duplicate" not in first.headers
    assert second.headers["hifi-maybe-duplicate"] == "1"


def test_what_a_repeat_leaves_waiting_says_that_it_may_come_twice() -> None:
    """The try that died may also have left the event waiting; then both copies are sent."""
    with scripted_destination(always(503)) as destination:
        to = sample(destination)
        first = run(events(2), plan_for(to))
        again = run(events(2), plan_for(to, replay_until={(TOPIC, 0): 2}))
    waiting = [
        [opened(one) for one in outcomes if one.topic == retry_topic("30s")]
        for outcomes in (first, again)
    ]
    assert [[story.is_ambiguous for story in each] for each in waiting] == [
        [False, False],
        [True, True],
    ]


@pytest.mark.parametrize("wait_s", [0, 30], ids=["sent in vain", "moved to another tier"])
def test_what_a_repeat_leaves_waiting_once_more_says_so_too(wait_s: int) -> None:
    """An event that a dead try of the retrier has moved to another tier exists twice."""
    record = waiting_record("demo/sample", not_before_ms=now_ms() + wait_s * 1000)
    with scripted_destination(always(503)) as destination:
        plan = retry_plan(sample(destination))
        stories = [
            opened(one).is_ambiguous
            for is_again in (False, True)
            for one in run([record], plan, is_again=is_again)
            if one.topic.startswith("hifi.retry.")
        ]
    assert stories == [False, True]


def test_what_is_left_of_a_replay_still_says_so() -> None:
    with scripted_destination(always(503)) as destination:
        plan = retry_plan(sample(destination))
        left = [
            waits
            for at, replay_id in enumerate(["r2", "", "r1"])
            for waits in run([replayed(at, replay_id)], plan)
            if waits.topic == retry_topic("30s")
        ]
        first = [request.headers.get("hifi-replay") for request in destination.requests]
        # Each event was tried three times in place.
        assert first == ["r2"] * 3 + [None] * 3 + ["r1"] * 3
    with scripted_destination() as destination:
        records = [
            RecordIn(Origin(one.topic, 0, at), 0, one.key, one.value, one.headers)
            for at, one in enumerate(left)
        ]
        plan = retry_plan(sample(destination))
        run(records, plan)
        run(records[1:2], plan)
        again = [request.headers.get("hifi-replay") for request in destination.requests]
    assert again == ["r1, r2", None]


def test_500_twice_then_200_is_delivered_by_local_retries() -> None:
    with scripted_destination(in_turn(500, 500, 200)) as destination:
        outcomes = events_only(run(events(5), plan_for(sample(destination))))
        assert len(destination.requests) == 3
    assert [one.topic for one in outcomes] == [RECEIPTS]
    assert list(covered(outcomes, ReceiptOutcome.DELIVERED)) == [(0, 5)]
    (receipt,) = receipts(outcomes)
    assert [(each.status, each.text) for each in receipt.failed_tries] == [(500, "ok")] * 2


def test_500_for_ever_goes_to_the_first_tier_with_its_story() -> None:
    with scripted_destination(always(503)) as destination:
        outcomes = run(events(5), plan_for(sample(destination)))
        assert len(destination.requests) == 3
    waiting = [one for one in outcomes if one.topic == retry_topic("30s")]
    assert [json.loads(one.value)["id"] for one in waiting] == [f"e{n}" for n in range(5)]
    story = opened(waiting[0])
    assert (story.attempt_count, story.cause, story.last_status) == (1, "status_503", 503)
    assert not story.is_ambiguous
    assert list(covered(outcomes, ReceiptOutcome.WAITING)) == [(0, 5)]


def test_a_4xx_is_a_dead_letter_at_once() -> None:
    with scripted_destination(always(401)) as destination:
        outcomes = run(events(5), plan_for(sample(destination)))
        assert len(destination.requests) == 1
    dead = [one for one in outcomes if one.topic == DEAD]
    assert len(dead) == 5
    assert dict(dead[0].headers)["reason"] == b"status_401"
    assert list(covered(outcomes, ReceiptOutcome.DEAD)) == [(0, 5)]


def test_one_bad_event_does_not_condemn_the_batch() -> None:
    def refuse_seven(_: int, request: Request) -> Reply:
        return Reply(400 if any(event["id"] == "e7" for event in request.events) else 200)

    with scripted_destination(refuse_seven) as destination:
        outcomes = run(events(20), plan_for(sample(destination)))
        assert destination.accepted_ids == Counter(f"e{n}" for n in range(20) if n != 7)
    assert list(covered(outcomes, ReceiptOutcome.DEAD)) == [(7, 8)]
    assert list(covered(outcomes, ReceiptOutcome.DELIVERED)) == [(0, 7), (8, 20)]


def test_a_reply_that_never_comes_is_ambiguous() -> None:
    with scripted_destination(lambda _, __: Reply(breaks_off=True)) as destination:
        outcomes = run(events(2), plan_for(sample(destination)))
        labels = [request.headers.get("hifi-maybe-duplicate") for request in destination.requests]
    # The first try has no label; each later one follows a try with an unknown result.
    assert labels == [None, "1", "1"]
    waiting = [one for one in outcomes if one.topic == retry_topic("30s")]
    assert all(opened(one).is_ambiguous for one in waiting)


def test_nobody_listening_is_recoverable_and_not_ambiguous() -> None:
    with scripted_destination() as destination:
        url = destination.url
    to = Destination(stream="demo", name="sample", url=url)
    outcomes = run(events(2), plan_for(to))
    waiting = [one for one in outcomes if one.topic == retry_topic("30s")]
    assert [opened(one).cause for one in waiting] == ["connect_refused"] * 2
    assert not any(opened(one).is_ambiguous for one in waiting)


def test_a_slow_reply_ends_at_the_deadline_of_the_exchange() -> None:
    with scripted_destination(lambda _, __: Reply(delay_s=1.0)) as destination:
        to = sample(destination, timeout_s=0.5)
        outcomes = run(events(1), plan_for(to, time_box_s=0.01))
    (waiting,) = [one for one in outcomes if one.topic == retry_topic("30s")]
    assert opened(waiting).cause == "read_timeout"


def test_retry_after_sends_straight_to_a_tier_that_is_long_enough() -> None:
    with scripted_destination(always(429, retry_after="1800")) as destination:
        outcomes = run(
            events(1),
            Plan(
                "stream",
                {"demo/sample": sample(destination)},
                new_folder(),
                RetrySchedule(),
                allows_private=True,
            ),
        )
        assert len(destination.requests) == 1
    assert [one.topic for one in events_only(outcomes) if one.topic != RECEIPTS] == [
        retry_topic("30m")
    ]


def test_what_is_not_delivered_names_the_record_that_its_lane_must_pass() -> None:
    def script(_: int, request: Request) -> Reply:
        return Reply(400 if any(event["id"] == "e7" for event in request.events) else 200)

    with scripted_destination(script) as destination:
        plan = plan_for(sample(destination, batch_count_max=4))
        found = receipts(run(events(8, first=2), plan))
    told = {one.outcome: one.read_at for one in found}
    assert told[ReceiptOutcome.DEAD] == Origin(TOPIC, 0, 2)
    assert told[ReceiptOutcome.DELIVERED] is None


def test_a_redirect_is_not_followed() -> None:
    with scripted_destination() as other:
        redirect = always(307, location=other.url)
        with scripted_destination(redirect) as destination:
            outcomes = run(events(1), plan_for(sample(destination)))
        assert other.requests == []
    assert [one.topic for one in events_only(outcomes) if one.topic != RECEIPTS] == [
        retry_topic("30s")
    ]


def test_a_receiver_sees_which_request_of_which_round_it_gets() -> None:
    with scripted_destination(in_turn(503, 503, 200)) as destination:
        run(events(1), plan_for(sample(destination)))
        told = [
            (request.headers["hifi-attempt"], request.headers.get("hifi-try"))
            for request in destination.requests
        ]
    assert told == [("1", None), ("1", "2"), ("1", "3")]


# --- waiting events, as the retrier's lane reads them ---


def retry_plan(to: Destination) -> Plan:
    return replace(plan_for(to), reads="retry")


def test_a_waiting_event_is_delivered_and_its_receipt_names_its_origin() -> None:
    with scripted_destination() as destination:
        outcomes = run([waiting_record("demo/sample")], retry_plan(sample(destination)))
        assert destination.accepted_ids == Counter(["e0"])
        assert destination.requests[0].headers["hifi-attempt"] == "2"
    (receipt,) = receipts(outcomes)
    assert receipt.outcome is ReceiptOutcome.DELIVERED
    assert (receipt.covered[0].topic, receipt.covered[0].first) == (TOPIC, 0)


@pytest.mark.parametrize(
    ("attempt_count", "topic"),
    [(1, "hifi.retry.5m"), (2, "hifi.retry.30m"), (3, "hifi.retry.2h"), (4, "hifi.retry.8h")],
)
def test_a_waiting_event_that_fails_again_goes_one_tier_up(attempt_count: int, topic: str) -> None:
    with scripted_destination(always(500)) as destination:
        record = waiting_record("demo/sample", attempt_count=attempt_count, deadline_s=1e6)
        outcomes = run([record], retry_plan(sample(destination)))
    assert [one.topic for one in events_only(outcomes) if one.topic != RECEIPTS] == [topic]


def test_what_the_retrier_gives_up_names_its_place_in_the_tier() -> None:
    with scripted_destination(always(400)) as destination:
        outcomes = run([waiting_record("demo/sample")], retry_plan(sample(destination)))
    (receipt,) = receipts(outcomes)
    assert (receipt.outcome, receipt.read_at) == (
        ReceiptOutcome.DEAD,
        Origin(retry_topic("30s"), 1, 9),
    )


@pytest.mark.parametrize(("until", "label"), [(10, "1"), (9, None)])
def test_what_a_lost_life_of_the_retrier_may_have_sent_says_so(
    until: int, label: str | None
) -> None:
    with scripted_destination() as destination:
        record = waiting_record("demo/sample")
        where = KafkaPartition(record.origin.topic, record.origin.partition)
        run([record], replace(retry_plan(sample(destination)), replay_until={where: until}))
        (request,) = destination.requests
    assert record.origin.offset == 9
    assert request.headers.get("hifi-maybe-duplicate") == label


def test_the_thirteenth_failure_is_the_last() -> None:
    with scripted_destination(always(500)) as destination:
        record = waiting_record("demo/sample", attempt_count=12, deadline_s=1e6)
        outcomes = run([record], retry_plan(sample(destination)))
    (dead,) = [one for one in outcomes if one.topic == DEAD]
    assert dict(dead.headers)["reason"] == b"retries_exhausted"


def test_a_waiting_event_past_its_deadline_is_not_sent() -> None:
    with scripted_destination() as destination:
        record = waiting_record("demo/sample", deadline_s=-1)
        outcomes = run([record], retry_plan(sample(destination)))
        assert destination.requests == []
    (dead,) = [one for one in outcomes if one.topic == DEAD]
    assert dict(dead.headers)["reason"] == b"deadline_passed"
    assert receipts(outcomes)[0].outcome is ReceiptOutcome.DEAD


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 0, 3_600_000])
def test_what_is_waited_for_is_told_by_the_clock_of_the_plan(ahead_ms: int) -> None:
    """The broker's clock decides, even if the machine's own is an hour ahead or behind."""
    there_ms = now_ms() + ahead_ms
    with scripted_destination() as destination:
        plan = replace(retry_plan(sample(destination)), clock=lambda: there_ms)
        early = waiting_record("demo/sample", not_before_ms=there_ms + 1, deadline_s=1e6)
        late = waiting_record("demo/sample", not_before_ms=there_ms, deadline_s=1e6)
        (waits,) = run([early], plan)
        assert waits.topic == retry_topic("30s", is_parked=True)
        (receipt,) = receipts(run([late], plan))
    assert receipt.outcome is ReceiptOutcome.DELIVERED
    assert receipt.started_at_ms == receipt.ended_at_ms == there_ms


@pytest.mark.parametrize("ahead_ms", [-10_000, 0, 10_000])
@pytest.mark.parametrize("is_date", [False, True])
def test_a_retry_after_is_kept_whatever_the_clock_of_delivery_says(
    ahead_ms: int, *, is_date: bool
) -> None:
    """RFC 9110, 10.2.3: the number of seconds to delay after the response is received."""
    at_ms = now_ms()
    asked = formatdate(at_ms / 1000 + 60, usegmt=True) if is_date else "60"
    with scripted_destination(always(429, retry_after=asked)) as destination:
        plan = plan_for(sample(destination), clock=lambda: at_ms + ahead_ms)
        plan = replace(plan, schedule=RetrySchedule())
        (row,) = [one for one in run(events(1), plan) if one.topic == retry_topic("30s")]
        # Kafka stamps the record by its own clock, which alone decides when the event is due again.
        waits = RecordIn(Origin(row.topic, 0, 0), at_ms, row.key, row.value, row.headers)
        seen = len(destination.requests)
        for after_ms, is_sent in ((58_900, False), (61_100, True)):
            later = replace(plan, reads="retry", clock=partial(int, at_ms + after_ms))
            run([waits], replace(later, flow_folder=new_folder()))
            assert (len(destination.requests) > seen) == is_sent


def test_a_waiting_event_that_asked_for_longer_hops_on_unsent() -> None:
    with scripted_destination() as destination:
        record = waiting_record("demo/sample", not_before_ms=now_ms() + 30_000)
        outcomes = run([record], retry_plan(sample(destination)))
        assert destination.requests == []
    # QUICK tiers last 0.15, 1.5, 9, 36 and 144 s; the third is the longest below 30 s.
    assert [one.topic for one in outcomes] == [retry_topic("30m", is_parked=True)]


def test_a_waiting_event_whose_destination_is_gone_rests_in_dead_letters() -> None:
    with scripted_destination() as destination:
        plan = replace(retry_plan(sample(destination)), removed={"demo/other"})
        outcomes = run([waiting_record("demo/other")], plan)
        assert destination.requests == []
    (dead,) = [one for one in outcomes if one.topic == DEAD]
    assert dict(dead.headers)["reason"] == b"destination_gone"


def test_a_waiting_event_whose_destination_is_not_known_here_waits_on() -> None:
    """The destination's record may be unreadable (a newer release's), or not have arrived yet."""
    with scripted_destination() as destination:
        plan = retry_plan(sample(destination))
        (waits,) = run([waiting_record("demo/other")], plan)
        (dead,) = [
            one
            for one in run([waiting_record("demo/other", deadline_s=0)], plan)
            if one.topic == DEAD
        ]
        assert destination.requests == []
    assert waits.topic.startswith(RETRY_PREFIX)
    assert dict(dead.headers)["reason"] == b"deadline_passed"


def test_a_retry_record_that_cannot_be_opened_is_kept_with_its_problem() -> None:
    record = RecordIn(Origin(retry_topic("30s"), 0, 4), 0, b"k", b"{}", (("attempt", b"x"),))
    with scripted_destination() as destination:
        outcomes = run([record], retry_plan(sample(destination)))
    (dead,) = outcomes
    assert dead.topic == DEAD
    assert dict(dead.headers)["reason"] == b"malformed_retry_record"
    assert b"is missing" in dict(dead.headers)["last-detail"]
