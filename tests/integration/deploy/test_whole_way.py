"""The whole way of an event, all of it real: POST, Kafka, Spark, HTTP, retry, dead letters."""

import json
import time
from collections import Counter
from typing import Any

import pytest

from shared.config.destination import Destination
from shared.event.topics import DEAD, retry_topic, stream_topic
from tests.support.deploy.stack_fixtures import PATIENCE_S, TIME_SCALE, RunningHifi, wait_until
from tests.support.kafka.lane_marks import marks_written, may_be_sent, newest
from tests.support.servers.scripted_destination import (
    Reply,
    Request,
    always,
    in_turn,
    scripted_destination,
)
from tests.support.servers.trace_collector import TraceCollector

pytestmark = pytest.mark.integration


def events(count: int) -> list[dict[str, str]]:
    # Three in four events share a key with others, so Kafka partitions fill unevenly, as in
    # production.
    return [{"id": f"e{n}", "partitionkey": f"k{n % 7}", "pad": "x" * 300} for n in range(count)]


def post_all(hifi: RunningHifi, stream: str, count: int, *, batch: int = 500) -> None:
    all_events = events(count)
    for start in range(0, count, batch):
        response = hifi.post(stream, all_events[start : start + batch])
        assert response.status_code == 200, response.text
        assert response.json()["accepted"] == len(all_events[start : start + batch])


def test_10_000_events_arrive_each_once(hifi: RunningHifi) -> None:
    with scripted_destination() as destination:
        hifi.add(Destination(stream="many", name="to", url=destination.url))
        post_all(hifi, "many", 10_000)
        expected = Counter(event["id"] for event in events(10_000))
        assert destination.wait_for(
            lambda: len(destination.accepted_ids) == 10_000, timeout_s=PATIENCE_S
        )
        assert destination.accepted_ids == expected
    # On cold cores a micro-batch's time box may end first; later events then wait for a tier.
    balance = hifi.wait_for_balance(
        "many/to",
        lambda books: books.queued == books.waiting == 0,
        what="every event has its last outcome",
    )
    assert (balance.acked, balance.delivered) == (10_000, 10_000)
    assert (balance.waiting, balance.dead, balance.unaccounted) == (0, 0, 0)


def test_500_twice_then_200_is_delivered_by_local_retries(hifi: RunningHifi) -> None:
    with scripted_destination(in_turn(500, 500, 200)) as destination:
        hifi.add(Destination(stream="twice", name="to", url=destination.url))
        assert hifi.post("twice", events(3)).status_code == 200
        assert destination.wait_for(
            lambda: len(destination.accepted_ids) == 3, timeout_s=PATIENCE_S
        )
    balance = hifi.wait_for_balance(
        "twice/to", lambda books: books.delivered == 3, what="3 delivered"
    )
    assert balance.waiting == balance.dead == balance.unaccounted == 0


def test_a_sender_sees_each_step_of_its_events_in_its_own_trace(
    hifi: RunningHifi, traces: TraceCollector
) -> None:
    trace_id, other_id = f"{time.time_ns():032x}", f"{time.time_ns() + 1:032x}"
    above = "00f067aa0ba902b7"

    def fail_first(_: int, request: Request) -> Reply:
        return Reply(503 if request.headers["hifi-attempt"] == "1" else 200)

    def found(name: str) -> list[dict[str, Any]]:
        return [span for span in traces.spans(trace_id) if span["name"].startswith(name)]

    with scripted_destination(fail_first) as destination:
        hifi.add(Destination(stream="traced", name="to", url=destination.url))
        headers = {"traceparent": f"00-{other_id}-{above}-00"}
        assert hifi.post("traced", [{"id": "unseen"}], headers=headers).status_code == 200
        headers = {"traceparent": f"00-{trace_id}-{above}-01"}
        assert hifi.post("traced", [{"id": "seen"}], headers=headers).status_code == 200

        def is_all_there() -> bool:
            codes = [s["attributes"]["http.response.status_code"] for s in found("deliver")]
            return {200, 503} <= {*codes} and bool(found("POST") and found("send"))

        wait_until(is_all_there, what=lambda: f"all spans: {traces.spans(trace_id)}")
    (request,), (stored,), attempts = found("POST"), found("send"), found("deliver")
    assert request["parentSpanId"] == above
    assert request["attributes"]["http.response.status_code"] == 200
    assert {stored["parentSpanId"], *(a["parentSpanId"] for a in attempts)} == {request["spanId"]}
    failed = [a for a in attempts if a["attributes"]["http.response.status_code"] == 503]
    assert failed
    assert all(a["status"] == {"code": 2} and a["attributes"]["hifi.attempt"] == 1 for a in failed)
    assert {a["attributes"]["hifi.attempt"] for a in attempts if a not in failed} == {2}
    assert traces.spans(other_id) == []


def test_a_sender_sees_in_its_trace_that_an_event_was_given_up(
    hifi: RunningHifi, traces: TraceCollector
) -> None:
    trace_id = f"{time.time_ns():032x}"

    def told(name: str) -> list[dict[str, Any]]:
        return [span for span in traces.spans(trace_id) if span["name"].startswith(name)]

    def ends() -> list[dict[str, Any]]:
        return told("dead letter doomed/to")

    with scripted_destination(always(400)) as destination:
        hifi.add(Destination(stream="doomed", name="to", url=destination.url))
        headers = {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"}
        assert hifi.post("doomed", [{"id": "a"}, {"id": "b"}], headers=headers).is_success
        # Two processes report, each at its own time.
        wait_until(
            lambda: bool(ends() and told("POST")),
            what=lambda: f"the first and the last span: {traces.spans(trace_id)}",
        )
    (request,) = told("POST")
    for end in ends():
        assert end["parentSpanId"] == request["spanId"]
        assert end["status"] == {"code": 2}
        assert end["attributes"]["hifi.reason"] == "status_400"
    assert sum(end["attributes"]["hifi.events"] for end in ends()) <= 2


def test_a_failed_first_attempt_comes_back_through_a_tier_and_not_early(
    hifi: RunningHifi,
) -> None:
    def fail_first(_: int, request: Request) -> Reply:
        return Reply(503 if request.headers["hifi-attempt"] == "1" else 200)

    with scripted_destination(fail_first) as destination:
        hifi.add(Destination(stream="later", name="to", url=destination.url))
        assert hifi.post("later", events(40)).status_code == 200
        assert destination.wait_for(
            lambda: len(destination.accepted_ids) == 40, timeout_s=PATIENCE_S
        )
        assert destination.accepted_ids == Counter(event["id"] for event in events(40))
        failed_s = {
            event["id"]: request.received_s
            for request in destination.requests
            if request.headers["hifi-attempt"] == "1"
            for event in request.events
        }
        again_s = {
            event["id"]: request.received_s
            for request in destination.accepted
            for event in request.events
        }
    # Compare event by event: on a busy machine one batch may be back before another is sent.
    assert min(again_s[event] - failed_s[event] for event in again_s) >= 30 * TIME_SCALE
    balance = hifi.wait_for_balance(
        "later/to", lambda books: books.delivered == 40, what="40 delivered"
    )
    assert balance.waiting == balance.dead == balance.unaccounted == 0
    # The tier is shared: another test leaves records there that have no headers at all.
    streams = [dict(record.headers).get("stream") for record in hifi.records(retry_topic("30s"))]
    assert streams.count(b"later") == 40


def test_400_is_dead_letters_with_the_reason_and_the_very_bytes(hifi: RunningHifi) -> None:
    with scripted_destination(always(400)) as destination:
        hifi.add(Destination(stream="bad", name="to", url=destination.url))
        assert hifi.post("bad", events(5)).status_code == 200
        balance = hifi.wait_for_balance("bad/to", lambda books: books.dead == 5, what="5 dead")
        assert destination.accepted == []
    assert balance.delivered == balance.waiting == balance.unaccounted == 0
    dead = [record for record in hifi.records(DEAD) if record.key == b"bad/to"]
    assert {dict(record.headers)["reason"] for record in dead} == {b"status_400"}
    assert Counter(record.value for record in dead) == Counter(
        record.value for record in hifi.records(stream_topic("bad"))
    )


def test_kill_9_of_delivery_in_mid_batch_loses_nothing(hifi: RunningHifi) -> None:
    """Duplicates come only from the micro-batch in flight, and each is labelled."""
    with scripted_destination() as destination:
        to = Destination(
            stream="killed", name="to", url=destination.url, batch_count_max=50, parallel_max=1
        )
        hifi.add(to)
        post_all(hifi, "killed", 1_000)
        assert destination.wait_for(
            lambda: len(destination.accepted_ids) == 1_000, timeout_s=PATIENCE_S
        )
        hifi.wait_for_balance("killed/to", lambda b: b.queued == 0, what="the first 1,000 settle")
        # Now each reply takes 0.2 s, so that the kill falls between two of them.
        settled = len(destination.requests)
        destination.script = lambda _, __: Reply(delay_s=0.2)
        second = [{**event, "id": f"second-{event['id']}"} for event in events(1_000)]
        assert hifi.post("killed", second).status_code == 200
        assert destination.wait_for(
            lambda: len(destination.accepted) >= settled + 3, timeout_s=PATIENCE_S
        )
        delivery = hifi.stack.children["delivery"]
        delivery.kill()
        # The fault really happened: work was planned, and its end was not marked.
        in_flight = may_be_sent(list(newest(marks_written(hifi.kafka, to.id)).items()))
        assert in_flight
        destination.script = always(200)
        hifi.stack.look_after()
        hifi.wait_for_lane(to.id)
        expected = {event["id"] for event in (*events(1_000), *second)}
        assert destination.wait_for(
            lambda: set(destination.accepted_ids) == expected, timeout_s=PATIENCE_S
        )
        hifi.wait_for_balance("killed/to", lambda b: b.queued == 0, what="all events are settled")
        duplicates = {event for event, count in destination.accepted_ids.items() if count > 1}
        accepted = sorted(destination.accepted, key=lambda request: request.received_s)
    assert duplicates
    assert all(event.startswith("second-") for event in duplicates)
    seen: set[str] = set()
    for request in accepted:
        ids = {event["id"] for event in request.events}
        # A worker may outlive its driver by a moment, and still send events for the first time.
        if ids & seen:
            assert request.headers.get("hifi-maybe-duplicate") == "1"
        seen |= ids
    where = {
        json.loads(record.value)["id"]: (record.topic, record.partition, record.offset)
        for record in hifi.records(stream_topic("killed"))
    }
    for event in duplicates:
        assert where[event] in in_flight
    assert hifi.balance("killed/to").unaccounted == 0


def test_a_lane_goes_on_where_it_was_after_an_orderly_restart(hifi: RunningHifi) -> None:
    with scripted_destination() as destination:
        hifi.add(Destination(stream="again", name="to", url=destination.url))
        assert hifi.post("again", events(10)).status_code == 200
        hifi.wait_for_balance("again/to", lambda b: b.delivered == 10, what="10 delivered")
        delivery = hifi.stack.children["delivery"]
        assert delivery.stop(timeout_s=60), "delivery had to be killed"
        assert delivery.exit_code == 0
        more = [{"id": f"more-{n}"} for n in range(10)]
        assert hifi.post("again", more).status_code == 200
        hifi.stack.look_after()
        wait_until(lambda: len(destination.accepted_ids) == 20, what="20 arrived")
        hifi.wait_for_balance("again/to", lambda b: b.delivered == 20, what="20 delivered")
        assert max(destination.accepted_ids.values()) == 1


def test_waiting_events_outlive_the_kill_of_the_retrier(hifi: RunningHifi) -> None:
    def fail_first(_: int, request: Request) -> Reply:
        return Reply(503 if request.headers["hifi-attempt"] == "1" else 200)

    with scripted_destination(fail_first) as destination:
        hifi.add(Destination(stream="patient", name="to", url=destination.url))
        retrier = hifi.stack.children["retrier"]
        retrier.kill()
        assert hifi.post("patient", events(40)).status_code == 200
        hifi.wait_for_balance("patient/to", lambda b: b.waiting == 40, what="40 waiting")
        # Without a retrier the events stay, long past the 0.6 s of their tier.
        assert destination.accepted == []
        hifi.stack.look_after()
        wait_until(lambda: len(destination.accepted_ids) == 40, what="40 arrived")
        hifi.wait_for_balance("patient/to", lambda b: b.delivered == 40, what="40 delivered")
        assert max(destination.accepted_ids.values()) == 1
    assert hifi.balance("patient/to").unaccounted == 0
