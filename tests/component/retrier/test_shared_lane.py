"""Destinations share the retrier's micro-batches: none holds up due events of the others."""

import asyncio
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from delivery.courier import _within
from delivery.sending import Plan
from retrier.due_gate import bounded
from retrier.lane import lanes, plan_of
from retrier.settings import RetrierSettings
from shared.config.destination import Destination
from shared.event.record import KafkaPartition, Origin, RecordIn, RecordOut
from shared.event.topics import RETRIER, RETRIER_SLOW, is_of_parked, retry_topic
from shared.flow.breaker import Breaker, BreakerState
from shared.flow.flow import QUICK_ANSWERS, Flow
from shared.flow.flow_record import FlowRecord
from shared.proof.receipt import ReceiptOutcome
from shared.retry.attempt import Attempt, Response
from shared.runtime.clock import now_ms
from tests.support.delivery.deliver_runs import (
    covered,
    opened,
    receipts,
    run,
    sample,
    waiting_record,
)
from tests.support.servers.scripted_destination import Reply, scripted_destination

HEALTHY = 49
TIERS = retry_topic("")
# The answer takes longer than a shared lane waits, but far less than the destination's timeout.
# The lane waits for longer than usual here: a busy machine may need a second for fifty connections.
PATIENCE_S, ANSWER_S = 2.5, 6.0
TIMEOUT_S = 60.0


def plans(folder: Path, *destinations: Destination) -> tuple[Plan, Plan]:
    """Return the plans of the two lanes, as the retrier makes them."""
    settings = RetrierSettings(folder=folder, allow_private=True)
    known = {to.id: to for to in destinations}
    shared, slow = (
        replace(plan_of(lanes(settings)[name], settings), destinations=known)
        for name in (RETRIER, RETRIER_SLOW)
    )
    return shared, slow


def waiting(topic: str, outcomes: list[RecordOut]) -> list[RecordIn]:
    """Return the records of a topic, as the due gate releases them."""
    return [
        RecordIn(Origin(topic, 0, offset), 0, row.key, row.value, row.headers)
        for offset, row in enumerate(row for row in outcomes if row.topic == topic)
    ]


def test_a_hanging_destination_holds_up_nobody_and_is_delivered_when_it_answers(
    tmp_path: Path,
) -> None:
    with (
        scripted_destination() as well,
        scripted_destination(lambda _, __: Reply(delay_s=ANSWER_S)) as hanging,
    ):
        healthy = [replace(sample(well), name=f"well{n}") for n in range(HEALTHY)]
        slow = replace(sample(hanging, timeout_s=TIMEOUT_S), name="slow")
        shared, patient = plans(tmp_path, slow, *healthy)
        shared = replace(shared, patience_s=PATIENCE_S)
        due = [waiting_record(to.id) for to in (slow, *healthy)]
        begun_s = time.monotonic()
        outcomes = run(due, shared)
        took_s = time.monotonic() - begun_s
        assert took_s < ANSWER_S
        assert sum(r.outcome is ReceiptOutcome.DELIVERED for r in receipts(outcomes)) == HEALTHY
        # Its event is parked for the slow lane, labelled as a possible repeat, and not charged.
        (again,) = waiting(retry_topic("30s", is_parked=True), outcomes)
        history = opened(RecordOut(again.origin.topic, b"", again.value, again.headers))
        assert (history.cause, history.is_ambiguous) == ("slow_answer", True)
        assert history.attempt_count == 1
        # The next time the shared lane does not wait for it at all.
        seen = len(hanging.requests)
        moved = run([again], shared)
        assert len(hanging.requests) == seen
        assert receipts(moved) == []
        delivered = run(waiting(retry_topic("slow"), moved), patient)
        assert len(covered(delivered, ReceiptOutcome.DELIVERED)) == 1
        assert hanging.requests[-1].headers["hifi-maybe-duplicate"] == "1"


def test_an_answer_that_came_while_the_worker_was_busy_counts() -> None:
    async def answer() -> Attempt:
        await asyncio.sleep(0.01)
        return Response(200)

    async def scenario() -> Attempt:
        waits = asyncio.create_task(_within(answer(), 0.1))
        await asyncio.sleep(0)
        # Reading thousands of events blocks the loop like this.
        time.sleep(0.3)  # noqa: ASYNC251 - it is to be heard by nobody
        return await waits

    assert asyncio.run(scenario()) == Response(200)


def test_who_answers_quickly_again_is_served_with_the_others_again(tmp_path: Path) -> None:
    with scripted_destination(
        lambda number, _: Reply(delay_s=1.5 if number == 0 else 0.0)
    ) as destination:
        to = sample(destination, timeout_s=TIMEOUT_S)
        shared, patient = plans(tmp_path, to)
        run([waiting_record(to.id)], shared)
        for _ in range(QUICK_ANSWERS):
            assert waiting(retry_topic("slow"), run([waiting_record(to.id)], shared))
            run([waiting_record(to.id)], patient)
        outcomes = run([waiting_record(to.id)], shared)
        assert len(covered(outcomes, ReceiptOutcome.DELIVERED)) == 1


def test_a_slow_destination_that_is_shut_parks_like_any_other(tmp_path: Path) -> None:
    """Otherwise its many events would come before due events of other slow destinations."""
    at_ms = now_ms()
    shut = Breaker(BreakerState.OPEN, open_count=1, until_ms=at_ms + 30_000)
    known = FlowRecord(Flow(breaker=shut, slow_left=QUICK_ANSWERS), updated_at_ms=at_ms)
    with scripted_destination() as destination:
        to = sample(destination)
        shared, _ = plans(tmp_path, to)
        outcomes = run([waiting_record(to.id)], replace(shared, flows={to.id: known}))
        assert destination.requests == []
    assert len(waiting(retry_topic("30s", is_parked=True), outcomes)) == 1


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_parked_crowd_waits_beside_what_was_tried(tmp_path: Path, *, is_paused: bool) -> None:
    with scripted_destination(lambda _, __: Reply(503)) as destination:
        to = sample(destination, batch_count_max=1, is_paused=is_paused)
        shared, _ = plans(tmp_path, to)
        outcomes = run([waiting_record(to.id, attempt_count=0) for _ in range(1_000)], shared)
    topics = Counter(is_of_parked(row.topic) for row in outcomes if row.topic.startswith(TIERS))
    # Only events that were in a request wait among the tried ones.
    assert topics[False] <= len(destination.requests) <= 20
    assert topics[True] == 1_000 - topics[False]


def test_a_parked_crowd_leaves_most_of_a_micro_batch_to_what_was_tried() -> None:
    tried = KafkaPartition(retry_topic("30s"), 0)
    other = KafkaPartition(retry_topic("5m"), 0)
    parked = KafkaPartition(retry_topic("30s", is_parked=True), 0)
    start = {tried: 0, other: 0, parked: 0}
    both = bounded(start, dict.fromkeys(start, 10**6), events_max=5_000)
    assert both == {tried: (0, 5_000), other: (0, 5_000), parked: (0, 500)}
    few = bounded(start, {tried: 10, parked: 10**6}, events_max=5_000)
    assert few == {tried: (0, 10), parked: (0, 5_000)}
