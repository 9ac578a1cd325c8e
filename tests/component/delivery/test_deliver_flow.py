"""`deliver` with destinations in trouble: no storm, no lost event, no delay for others."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from delivery.http.partial_reply import PARTIAL_TYPE
from delivery.sending import TROUBLE_WAIT_S
from shared.config.destination import Destination
from shared.config.selection import Condition
from shared.event.record import RecordIn, RecordOut
from shared.event.topics import DEAD, RECEIPTS, STATE, retry_topic
from shared.flow.flow_record import FlowRecord, open_flow_record
from shared.proof.receipt import ReceiptOutcome
from shared.retry.schedule import RetrySchedule
from tests.support.delivery.deliver_runs import (
    QUICK,
    covered,
    events,
    events_only,
    opened,
    plan_for,
    receipts,
    run,
    sample,
    waiting_record,
)
from tests.support.servers import scripted_destination as servers
from tests.support.servers.scripted_destination import Reply, Request, always, in_turn


def causes(outcomes: list[RecordOut]) -> Counter[str]:
    """Return how many events wait, by cause."""
    return Counter(opened(one).cause for one in outcomes if one.topic.startswith("hifi.retry."))


def state(outcomes: list[RecordOut]) -> FlowRecord:
    """Return the last record of the destination's state."""
    record = open_flow_record([one for one in outcomes if one.topic == STATE][-1].value)
    assert record is not None
    return record


def settled(outcomes: list[RecordOut]) -> int:
    """Return how many events have an outcome; none may have two."""
    sets = [covered(outcomes, outcome) for outcome in ReceiptOutcome]
    union = sets[0]
    for one in sets[1:]:
        assert not any(True for start, end in one for _ in union.within(start, end))
        union = union.union(one)
    return len(union)


def test_a_dead_destination_gets_a_dozen_requests_and_every_event_waits(tmp_path: Path) -> None:
    with servers.scripted_destination(always(503)) as destination:
        to = sample(destination, batch_count_max=10)
        plan = replace(plan_for(to), schedule=RetrySchedule(), flow_folder=tmp_path)
        first = run(events(1_000), plan)
        assert len(destination.requests) <= 14
        # The next micro-batch sends no request, whichever worker runs it.
        seen = len(destination.requests)
        second = run(events(1_000, first=1_000), plan)
        assert len(destination.requests) == seen
    assert settled(first) == settled(second) == 1_000
    assert causes(second) == {"breaker_open": 1_000}
    parked = [one for one in second if one.topic == retry_topic("30s", is_parked=True)]
    assert [opened(one).attempt_count for one in parked] == [0] * 1_000
    assert state(first).state.value == "open"
    assert state(first).flow.parks["breaker_open"] == causes(first)["breaker_open"]


def test_a_retry_does_not_wait_for_a_breaker_as_others_are_due_too(tmp_path: Path) -> None:
    # The breaker opens for 3 to 3.6 s.
    schedule = RetrySchedule().scaled(0.1)
    with servers.scripted_destination(always(503)) as dead, servers.scripted_destination() as well:
        to_dead, to_well = sample(dead), replace(sample(well), name="well")
        plan = replace(plan_for(to_dead), schedule=schedule, flow_folder=tmp_path)
        while "breaker_open" not in causes(run(events(10), replace(plan, time_box_s=0.5))):
            pass
        waiting = [waiting_record(to.id) for to in (to_dead, to_well)]
        both = {to.id: to for to in (to_dead, to_well)}
        begun_s = time.monotonic()
        retrier = replace(plan, reads="retry", trouble_wait_s_max=TROUBLE_WAIT_S)
        outcomes = run(waiting, replace(retrier, destinations=both))
        assert time.monotonic() - begun_s < 2.8
        assert causes(outcomes) == {"breaker_open": 1}
        assert len(well.accepted_ids) == 1
        # The destination's own lane holds up no others, so it waits for the probe.
        seen = len(dead.requests)
        run(events(10), plan)
        assert len(dead.requests) == seen + 1


def test_nobody_there_is_found_out_quickly_and_costs_no_attempt_after_that(tmp_path: Path) -> None:
    with servers.scripted_destination() as destination:
        url = destination.url
    to = Destination("demo", "sample", url, batch_count_max=10)
    started_s = time.monotonic()
    plan = replace(plan_for(to), schedule=RetrySchedule(), flow_folder=tmp_path)
    outcomes = run(events(1_000), plan)
    assert time.monotonic() - started_s < 10
    assert causes(outcomes)["connect_refused"] <= 140
    assert settled(outcomes) == 1_000


def test_after_an_outage_one_probe_goes_first_and_then_all_of_it_arrives(tmp_path: Path) -> None:
    quick = RetrySchedule().scaled(0.01)  # the breaker opens for 0.3 s
    with servers.scripted_destination(lambda n, _: Reply(503 if n < 16 else 200)) as destination:
        to = sample(destination, batch_count_max=10)
        plan = replace(plan_for(to), schedule=quick, flow_folder=tmp_path, time_box_s=20.0)
        outcomes = run(events(500), plan)
        probes = [r for r in destination.requests if len(r.events) == 1]
        assert len(probes) >= 3
        assert settled(outcomes) == 500
        assert len(covered(outcomes, ReceiptOutcome.DELIVERED)) >= 400
    assert state(outcomes).state.value == "closed"


def test_a_429_closes_the_gate_for_all_that_follows(tmp_path: Path) -> None:
    with servers.scripted_destination(always(429, retry_after="600")) as destination:
        to = sample(destination, batch_count_max=10)
        plan = replace(plan_for(to), schedule=RetrySchedule(), flow_folder=tmp_path)
        outcomes = run(events(500), plan)
        # Only requests that were under way at the same time.
        assert len(destination.requests) <= 2
        again = run(events(10, first=500), plan)
        assert len(destination.requests) <= 2
    assert causes(again) == {"over_rate": 10}
    parked = [one for one in again if one.topic == retry_topic("5m", is_parked=True)]
    assert len(parked) == 10
    assert all(opened(one).not_before_ms > 590_000 for one in parked)
    assert settled(outcomes) == 500
    assert state(outcomes).state.value == "rate-limited"


def test_the_owners_rate_is_kept(tmp_path: Path) -> None:
    with servers.scripted_destination() as destination:
        to = sample(destination, batch_count_max=10, rate_per_s=50.0)
        plan = replace(plan_for(to), flow_folder=tmp_path, time_box_s=2.0)
        outcomes = run(events(500), plan)
        # A second's worth at once, then fifty per second, and one batch beyond the budget.
        assert 100 <= sum(destination.accepted_ids.values()) <= 50 + 2 * 50 + 10
    assert settled(outcomes) == 500
    assert set(causes(outcomes)) <= {"over_rate", "budget_used_up"}


def test_the_time_box_bounds_a_micro_batch_whatever_the_destination_does() -> None:
    with servers.scripted_destination(lambda _, __: Reply(delay_s=0.4)) as destination:
        to = sample(destination, batch_count_max=1)
        started_s = time.monotonic()
        outcomes = events_only(run(events(200), plan_for(to, time_box_s=0.5)))
        took_s = time.monotonic() - started_s
        assert took_s < 0.5 + 0.4 + 3.0
    delivered = len(covered(outcomes, ReceiptOutcome.DELIVERED))
    assert delivered >= 2
    assert causes(outcomes) == {"budget_used_up": 200 - delivered}
    assert all(opened(one).attempt_count == 0 for one in outcomes if one.topic != RECEIPTS)


def test_what_was_tried_when_the_box_ended_is_charged() -> None:
    slow_schedule = replace(QUICK, local_delays_s=(5.0, 5.0))
    with servers.scripted_destination(always(500)) as destination:
        to = sample(destination)
        plan = replace(plan_for(to), schedule=slow_schedule, time_box_s=6.0)
        outcomes = run(events(1), replace(plan, time_box_s=1.0))
    (waiting,) = [one for one in outcomes if one.topic == retry_topic("30s")]
    assert (opened(waiting).attempt_count, opened(waiting).cause) == (1, "status_500")


def test_dripping_bytes_end_at_the_deadline() -> None:
    with servers.scripted_destination(lambda _, __: Reply(delay_s=30)) as destination:
        to = sample(destination, timeout_s=0.3, batch_count_max=10)
        started_s = time.monotonic()
        outcomes = events_only(run(events(200), plan_for(to, time_box_s=0.5)))
        assert time.monotonic() - started_s < 10
    assert settled(outcomes) == 200
    assert causes(outcomes)["read_timeout"] >= 10


@pytest.fixture
def two_destinations() -> Iterator[tuple[Destination, Destination, list[float]]]:
    """Start a destination that never answers, and one that answers and records request times."""
    with (
        servers.scripted_destination(lambda _, __: Reply(delay_s=20)) as slow,
        servers.scripted_destination() as well,
    ):
        times_s: list[float] = []

        def note(_: int, request: Request) -> Reply:
            times_s.append(request.received_s)
            return Reply()

        well.script = note
        yield (
            replace(sample(slow, timeout_s=1.0, batch_count_max=1), name="slow"),
            replace(sample(well), name="well"),
            times_s,
        )


def test_one_destinations_crowd_does_not_stand_before_anothers_few(
    two_destinations: tuple[Destination, Destination, list[float]],
) -> None:
    slow, well, times_s = two_destinations
    crowd = [waiting_record(slow.id) for _ in range(500)]
    few = [waiting_record(well.id) for _ in range(10)]
    plan = replace(
        plan_for(slow), reads="retry", destinations={slow.id: slow, well.id: well}, time_box_s=1.0
    )
    started_s = time.monotonic()
    outcomes = run(crowd + few, plan)
    assert len(times_s) == 1
    assert times_s[0] - started_s < 0.8
    assert causes(outcomes)["budget_used_up"] >= 490


def test_what_a_task_met_is_told_when_it_ends(tmp_path: Path) -> None:
    with servers.scripted_destination(always(401)) as destination:
        to = sample(destination, batch_count_max=1)
        outcomes = run(events(6), replace(plan_for(to), flow_folder=tmp_path))
        # The next event may be hours away, so the state must be published now.
        (told,) = [open_flow_record(each.value) for each in outcomes if each.topic == STATE]
        assert told is not None
        assert told.flow.failures_in_row == len(destination.requests) == 6
        assert told.flow.last_refusal is not None
        assert (told.flow.last_refusal.reason, told.flow.last_refusal.text) == ("status_401", "ok")


def test_a_gone_destination_is_disabled_until_a_person_resumes_it(tmp_path: Path) -> None:
    with servers.scripted_destination(in_turn(410, 200)) as destination:
        to = sample(destination, batch_count_max=1)
        plan = replace(plan_for(to), flow_folder=tmp_path)
        run(events(1), plan)
        outcomes = run(events(20, first=1), plan)
        assert len(destination.requests) == 1
        reasons = Counter(dict(o.headers)["reason"] for o in outcomes if o.topic == DEAD)
        assert reasons == {b"endpoint_disabled": 20}
        assert len(covered(outcomes, ReceiptOutcome.DEAD)) == 20
        resumed = replace(to, resumed_at_ms=round(time.time() * 1000) + 1)
        again = run(events(20, first=21), replace(plan, destinations={to.id: resumed}))
        assert len(covered(again, ReceiptOutcome.DELIVERED)) == 20


def test_a_destination_may_refuse_a_message_for_good_or_all_of_them(tmp_path: Path) -> None:
    def script(number: int, _: Request) -> Reply:
        return Reply(503, {"webhook-delivery": "disable" if number else "abort-message"})

    with servers.scripted_destination(script) as destination:
        to = sample(destination, batch_count_max=2)
        plan = replace(plan_for(to), flow_folder=tmp_path)
        # Batches are neither halved nor tried again in place.
        found = [run(events(2, first=2 * n), plan) for n in range(3)]
        assert len(destination.requests) == 2
    reasons = [[dict(o.headers)["reason"] for o in each if o.topic == DEAD] for each in found]
    assert reasons == [
        [b"asked_abort-message"] * 2,
        [b"asked_disable"] * 2,
        [b"endpoint_disabled"] * 2,
    ]


def test_a_storm_of_401_holds_the_stream_where_that_is_asked_for(tmp_path: Path) -> None:
    with servers.scripted_destination(always(401)) as destination:
        literal = sample(destination, batch_count_max=1)
        plan = replace(plan_for(literal), flow_folder=tmp_path / "literal")
        assert len(covered(run(events(200), plan), ReceiptOutcome.DEAD)) == 200
        holding = replace(literal, hold_on_rejects=True)
        plan = replace(plan_for(holding), flow_folder=tmp_path / "holding", time_box_s=1.0)
        outcomes = run(events(200), plan)
    dead = len(covered(outcomes, ReceiptOutcome.DEAD))
    assert dead < 50
    assert settled(outcomes) == 200
    assert causes(outcomes)["held"] + causes(outcomes)["status_401"] == 200 - dead
    assert state(outcomes).state.value == "held"


def test_a_restart_goes_on_from_what_the_state_topic_says(tmp_path: Path) -> None:
    with servers.scripted_destination(always(503)) as destination:
        to = sample(destination, batch_count_max=10)
        plan = replace(plan_for(to), schedule=RetrySchedule(), flow_folder=tmp_path / "one")
        known = state(run(events(300), plan))
        seen = len(destination.requests)
        other_host = replace(plan, flow_folder=tmp_path / "other", flows={to.id: known})
        outcomes = run(events(300, first=300), other_host)
        assert len(destination.requests) == seen
    assert causes(outcomes) == {"breaker_open": 300}


@pytest.mark.parametrize("torn", [b"", b"{", b"\0" * 4096, b'{"state":"closed"}' * 500])
def test_a_file_that_says_nothing_is_a_new_start(tmp_path: Path, torn: bytes) -> None:
    (tmp_path / "demo.sample.json").write_bytes(torn)
    with servers.scripted_destination() as destination:
        outcomes = run(events(5), replace(plan_for(sample(destination)), flow_folder=tmp_path))
    assert len(covered(outcomes, ReceiptOutcome.DELIVERED)) == 5
    assert open_flow_record((tmp_path / "demo.sample.json").read_bytes()) is not None


# --- order = "key" ---


def keyed(count: int, *, key_count: int) -> list[RecordIn]:
    return [
        replace(record, key=b"k%d" % (record.origin.offset % key_count)) for record in events(count)
    ]


def test_events_of_a_key_arrive_in_their_order_and_never_side_by_side() -> None:
    under_way: Counter[str] = Counter()
    worst: list[int] = []
    lock = threading.Lock()

    def look(_: int, request: Request) -> Reply:
        keys = {f"k{int(event['id'][1:]) % 7}" for event in request.events}
        with lock:
            under_way.update(keys)
            worst.append(max(under_way[key] for key in keys))
        time.sleep(0.01)
        with lock:
            under_way.subtract(keys)
        return Reply()

    with servers.scripted_destination(look) as destination:
        to = sample(destination, order="key", batch_count_max=3, parallel_max=4)
        run(keyed(200, key_count=7), plan_for(to))
        arrived = [int(event["id"][1:]) for r in destination.accepted for event in r.events]
    assert max(worst) == 1
    for key in range(7):
        mine = [number for number in arrived if number % 7 == key]
        assert mine == sorted(mine)
        assert len(mine) == len(range(key, 200, 7))


def test_what_follows_a_retried_event_of_its_key_waits_behind_it() -> None:
    def refuse_three(_: int, request: Request) -> Reply:
        return Reply(503 if any(event["id"] == "e3" for event in request.events) else 200)

    with servers.scripted_destination(refuse_three) as destination:
        to = sample(destination, order="key", batch_count_max=1)
        outcomes = run(keyed(40, key_count=4), plan_for(to))
        arrived = {int(name[1:]) for name in destination.accepted_ids}
    assert arrived == {n for n in range(40) if n % 4 != 3}
    assert causes(outcomes) == {"status_503": 1, "key_waits": 9}
    assert settled(outcomes) == 40


# --- filter, fields, partial success, repeats ---


def test_an_event_that_is_not_wanted_is_accounted_for_and_not_sent() -> None:
    with servers.scripted_destination() as destination:
        wanted = Condition("/id", "one_of", ("e3", "e5"))
        outcomes = run(events(30), plan_for(sample(destination, filter=(wanted,))))
        assert destination.accepted_ids == Counter(["e3", "e5"])
    assert len(covered(outcomes, ReceiptOutcome.DELIVERED)) == 30
    reasons = Counter({r.reason: r.event_count for r in receipts(outcomes)})
    assert reasons == {"filtered": 28, "status_200": 2}


def partial(status: int, **headers: str) -> Reply:
    said = {"failed": [{"id": "e2", "status": 503}, {"index": 4, "status": 400}]}
    return Reply(status, headers, json.dumps(said).encode())


@pytest.mark.parametrize("reply", [partial(207), partial(200, **{"content-type": PARTIAL_TYPE})])
def test_a_reply_that_names_failed_events_is_taken_at_its_word(reply: Reply) -> None:
    with servers.scripted_destination(lambda _, __: reply) as destination:
        outcomes = run(events(30), plan_for(sample(destination)))
        assert len(destination.requests) == 1
    assert list(covered(outcomes, ReceiptOutcome.WAITING)) == [(2, 3)]
    assert list(covered(outcomes, ReceiptOutcome.DEAD)) == [(4, 5)]
    assert len(covered(outcomes, ReceiptOutcome.DELIVERED)) == 28
    said = {r.outcome: r.failed_tries for r in receipts(outcomes)}
    assert said[ReceiptOutcome.DELIVERED] == ()
    assert [tried.text for tried in said[ReceiptOutcome.DEAD]] == [reply.body.decode()]


def test_a_report_that_nobody_can_read_leaves_all_of_it_in_doubt() -> None:
    reply = Reply(200, {"content-type": PARTIAL_TYPE}, b"{")
    with servers.scripted_destination(lambda _, __: reply) as destination:
        outcomes = run(events(3), plan_for(sample(destination)))
    waiting = [one for one in outcomes if one.topic == retry_topic("30s")]
    assert [opened(one).cause for one in waiting] == ["response_unreadable"] * 3
    assert all(opened(one).is_ambiguous for one in waiting)


def test_another_try_of_a_task_labels_all_that_it_sends() -> None:
    with servers.scripted_destination() as destination:
        run(events(25), plan_for(sample(destination, batch_count_max=10)), is_again=True)
        labels = [r.headers.get("hifi-maybe-duplicate") for r in destination.requests]
    assert labels == ["1"] * 3
