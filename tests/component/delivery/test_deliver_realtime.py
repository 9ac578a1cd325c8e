"""`deliver` in real time: it gets a few records at a time, until no more come."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from delivery import dispatcher, flow_store, sending
from delivery.event_columns import FetchedRecords
from delivery.sending import Plan, worker_of
from shared.event.record import RecordOut
from shared.event.topics import RECEIPTS, STATE
from shared.flow.flow import FlowState
from shared.flow.flow_record import FlowRecord, open_flow_record
from shared.proof.receipt import ReceiptOutcome
from tests.support.delivery.deliver import deliver
from tests.support.delivery.deliver_runs import (
    covered,
    events,
    plan_for,
    receipts,
    rows_of,
    sample,
)
from tests.support.delivery.fetched_rows import fetched
from tests.support.servers.scripted_destination import Reply, scripted_destination
from tests.support.suite.virtual_time import VirtualTime


@pytest.fixture(autouse=True)
def _a_worker_that_knows_nobody() -> None:
    worker_of(allows_private=True)._calms.clear()


def one_by_one(count: int) -> Iterator[FetchedRecords]:
    for number in range(count):
        yield fetched(events(1, first=number))


def run(plan: Plan, count: int) -> list[RecordOut]:
    return rows_of(deliver(one_by_one(count), plan))


def kept(folder: Path) -> FlowRecord:
    record = open_flow_record((folder / "demo.sample.json").read_bytes())
    assert record is not None
    return record


def test_outcomes_leave_with_their_events_and_wait_for_no_others() -> None:
    with scripted_destination() as destination:
        plan = plan_for(sample(destination), follows_until_s=math.inf)
        for number, piece in enumerate(deliver(one_by_one(20), plan), start=1):
            assert len(destination.requests) == number
            assert [receipt.event_count for receipt in receipts(rows_of([piece]))] == [1]
    assert number == 20


@pytest.mark.parametrize(("follows_until_s", "delivered"), [(math.inf, 3), (0.0, 1)])
def test_what_follows_its_log_has_a_box_for_each_batch_of_rows(
    *, follows_until_s: float, delivered: int
) -> None:
    """A micro-batch has one time box for all rows; rows after its end are parked."""
    clock = VirtualTime()

    def an_hour_apart() -> Iterator[FetchedRecords]:
        for rows in one_by_one(3):
            yield rows
            clock.now_s += 3_600.0

    with scripted_destination() as destination, clock.seen_by(dispatcher, sending):
        plan = plan_for(sample(destination), follows_until_s=follows_until_s, time_box_s=600.0)
        outcomes = rows_of(deliver(an_hour_apart(), plan))
    assert list(covered(outcomes, ReceiptOutcome.DELIVERED)) == [(0, delivered)]
    assert len(covered(outcomes, ReceiptOutcome.WAITING)) == 3 - delivered


def test_a_destination_that_is_well_is_looked_up_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    read = flow_store._read

    def counted(file: flow_store._File) -> FlowRecord | None:
        nonlocal looks
        looks += 1
        return read(file)

    monkeypatch.setattr(flow_store, "_read", counted)
    with scripted_destination() as destination:
        plan = plan_for(
            sample(destination), follows_until_s=math.inf, calm_s=600.0, flow_folder=tmp_path
        )
        outcomes = run(plan, 50)
    assert list(covered(outcomes, ReceiptOutcome.DELIVERED)) == [(0, 50)]
    # The state is read before the first request, after it, and at the end, which records the
    # other 49.
    assert looks == 3
    assert kept(tmp_path).flow.attempts == {"ok": 50}
    assert kept(tmp_path).flow.tasks == {}
    assert {one.topic for one in outcomes} == {RECEIPTS, STATE}


def test_the_first_failure_is_told_at_once_and_the_breaker_opens(
    tmp_path: Path,
) -> None:
    with scripted_destination(lambda number, _: Reply(200 if number < 5 else 503)) as destination:
        to = sample(destination)
        # Each of the 60 rows has its own time box, so no row may wait for the destination.
        plan = plan_for(
            to, follows_until_s=math.inf, calm_s=60.0, flow_folder=tmp_path, trouble_wait_s_max=0.0
        )
        outcomes = run(plan, 60)
        assert len(destination.requests) < 30
    assert list(covered(outcomes, ReceiptOutcome.DELIVERED)) == [(0, 5)]
    assert list(covered(outcomes, ReceiptOutcome.WAITING)) == [(5, 60)]
    assert kept(tmp_path).state is FlowState.OPEN
    assert kept(tmp_path).flow.attempts["ok"] == 5


def test_an_owners_rate_is_asked_for_each_request(
    tmp_path: Path,
) -> None:
    with scripted_destination() as destination:
        to = sample(destination, rate_per_s=1.0)
        plan = plan_for(
            to, follows_until_s=math.inf, calm_s=60.0, flow_folder=tmp_path, time_box_s=0.1
        )
        outcomes = run(plan, 10)
        assert len(destination.requests) < 5
    delivered = covered(outcomes, ReceiptOutcome.DELIVERED)
    assert len(delivered.union(covered(outcomes, ReceiptOutcome.WAITING))) == 10
