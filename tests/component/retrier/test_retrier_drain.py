"""A dead destination comes back while 20,000 events wait: all arrive, but not as a storm."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from delivery import flow_store
from shared.event.envelope import History, open_stream_record, retry_headers
from shared.event.record import Origin, RecordIn, RecordOut
from shared.event.topics import retry_topic
from shared.retry.attempt import Failure, NoResponse
from shared.retry.decision import Park, RetryLater, Situation
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from tests.support.delivery.deliver_runs import events, opened, plan_for, run, sample
from tests.support.servers.scripted_destination import Reply, Request, always, scripted_destination
from tests.support.suite.samples import decided

WAITING = 20_000
# The due gate releases this many from a Kafka partition at a time.
MICRO_BATCH = 5_000
REPLY_S = 0.01
PATIENCE_S = 120.0
# The breaker opens for half a minute.
LOOK_MS = 10_000
PARALLEL_MAX = 4


def waiting(count: int, destination_id: str) -> list[RecordIn]:
    """Return events that failed once, as the due gate releases them."""
    history = History.fresh(now_ms=now_ms(), deadline_s=RetrySchedule().deadline_s)
    situation = Situation(
        batch_count=1,
        may_retry_locally=False,
        local_attempt_count=3,
        budget_s=0.0,
        now_ms=now_ms(),
        roll=0.0,
    )
    failed = decided(history, NoResponse(Failure.CONNECT_REFUSED), RetrySchedule(), situation)
    assert isinstance(failed, RetryLater | Park)
    return [
        released(
            RecordOut(
                retry_topic("30s"),
                b"k",
                event.value,
                retry_headers(
                    open_stream_record(event), destination_id, failed.history, now_ms=now_ms()
                ),
            ),
            offset,
        )
        for offset, event in enumerate(events(count))
    ]


def released(row: RecordOut, offset: int) -> RecordIn:
    return RecordIn(Origin(row.topic, 0, offset), now_ms(), row.key, row.value, row.headers)


def back(outcomes: Sequence[RecordOut]) -> list[RecordIn]:
    """Return the events that wait again, as their tier releases them."""
    rows = [one for one in outcomes if one.topic.startswith("hifi.retry.")]
    return [released(row, offset) for offset, row in enumerate(rows)]


def side_by_side(requests: Sequence[Request]) -> list[int]:
    """Return, for each request, how many came within the time that a reply takes."""
    times = sorted(request.received_s for request in requests)
    return [sum(at - REPLY_S < other <= at for other in times) for at in times]


def test_20_000_waiting_events_drain_without_a_storm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead_ms = breaker_ahead_ms = 0

    def clock() -> int:
        return now_ms() + ahead_ms

    # The breaker uses another clock: this machine's.
    monkeypatch.setattr(flow_store, "now_ms", lambda: now_ms() + breaker_ahead_ms)
    with scripted_destination(always(503)) as destination:
        to = sample(destination, parallel_max=PARALLEL_MAX, batch_count_max=100)
        plan = replace(
            plan_for(to),
            reads="retry",
            schedule=RetrySchedule(local_delays_s=(0.0,)),
            flow_folder=tmp_path,
            clock=clock,
        )
        left = waiting(WAITING, to.id)
        parked: list[RecordIn] = []
        for start in range(0, WAITING, MICRO_BATCH):
            parked += back(run(left[start : start + MICRO_BATCH], plan))
        # While the destination is dead, it gets a dozen requests; nearly all events wait unsent.
        assert len(destination.requests) <= 14
        assert len(parked) == WAITING
        down = len(destination.requests)
        destination.script = lambda _, __: Reply(delay_s=REPLY_S)
        left = parked
        until_s = time.monotonic() + PATIENCE_S
        while left and time.monotonic() < until_s:
            # The tier's time passes.
            ahead_ms += 60_000
            again: list[RecordIn] = []
            for start in range(0, len(left), MICRO_BATCH):
                again += back(run(left[start : start + MICRO_BATCH], plan))
            if len(again) == len(left):
                # Nothing was sent, as the breaker is still open: advance its clock.
                breaker_ahead_ms += LOOK_MS
            left = again
        assert destination.accepted_ids == Counter(f"e{n}" for n in range(WAITING))
        beside = side_by_side(destination.requests[down:])
    # Requests come singly at first, and never more at once than the destination's owner allows.
    assert max(beside[:3]) == 1
    assert max(beside) <= PARALLEL_MAX + 1
    assert len(beside) >= WAITING // 100


def test_what_a_dead_destination_parks_is_not_charged(tmp_path: Path) -> None:
    with scripted_destination(always(503)) as destination:
        to = sample(destination, batch_count_max=100)
        plan = replace(
            plan_for(to),
            reads="retry",
            schedule=RetrySchedule(local_delays_s=()),
            flow_folder=tmp_path,
        )
        outcomes = run(waiting(MICRO_BATCH, to.id), plan)
    histories = [opened(one) for one in outcomes if one.topic.startswith("hifi.retry.")]
    assert len(histories) == MICRO_BATCH
    charged = [one for one in histories if one.attempt_count > 1]
    # Only events that the breaker let through before it opened are charged.
    assert 0 < len(charged) <= 14 * 100
    assert {one.park_count for one in histories} == {0, 1}
