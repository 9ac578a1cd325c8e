"""`deliver` as real time uses it: a few records at a time, for as long as an interval lasts."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from delivery import deliver as module
from delivery import flow_store
from delivery.deliver import Plan, deliver
from shared.event.record import RecordIn, RecordOut
from shared.event.topics import RECEIPTS, STATE
from shared.flow.flow import FlowState
from shared.flow.flow_record import FlowRecord, open_flow_record
from shared.proof.receipt import ReceiptOutcome
from tests.support.deliver_runs import (
    covered,
    events,
    events_only,
    plan_for,
    receipts,
    rows_of,
    sample,
)
from tests.support.scripted_destination import Reply, scripted_destination


def one_by_one(count: int, *, first: int = 0) -> Iterator[Sequence[RecordIn]]:
    for number in range(first, first + count):
        yield events(1, first=number)


def run(plan: Plan, count: int, *, first: int = 0) -> list[RecordOut]:
    return rows_of(deliver(one_by_one(count, first=first), plan))


def kept(folder: Path) -> FlowRecord:
    record = open_flow_record((folder / "demo.sample.json").read_bytes())
    assert record is not None
    return record


def test_outcomes_wait_for_the_end_of_the_interval_in_one_piece() -> None:
    """Spark would not take them before, and a full pipe would hold up the events behind them."""
    with scripted_destination() as destination:
        plan = plan_for(sample(destination), is_realtime=True)
        pieces = list(deliver(one_by_one(20), plan))
        assert len(destination.requests) == 20
    assert len(pieces) == 1
    outcomes = rows_of(pieces)
    assert [receipt.event_count for receipt in receipts(outcomes)] == [1] * 20
    assert list(covered(outcomes, ReceiptOutcome.DELIVERED)) == [(0, 20)]


def test_more_outcomes_than_memory_has_room_for_leave_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_KEPT_BYTES_MAX", 1)
    with scripted_destination() as destination:
        plan = plan_for(sample(destination), is_realtime=True)
        pieces = list(deliver(one_by_one(3), plan))
    assert [len(events_only(rows_of([piece]))) for piece in pieces] == [1, 1, 1]


def test_a_destination_that_is_well_is_looked_up_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CALM_S", 60.0)
    looks = 0
    read = flow_store._read

    def counted(file: flow_store._File) -> FlowRecord | None:
        nonlocal looks
        looks += 1
        return read(file)

    monkeypatch.setattr(flow_store, "_read", counted)
    with scripted_destination() as destination:
        plan = plan_for(sample(destination), is_realtime=True, flow_folder=tmp_path)
        outcomes = run(plan, 50)
    assert list(covered(outcomes, ReceiptOutcome.DELIVERED)) == [(0, 50)]
    # Before the first request, after it, and at the end, when the other 49 are told.
    assert looks == 3
    assert kept(tmp_path).flow.attempts == {"ok": 50}
    assert kept(tmp_path).flow.tasks == {}
    assert {one.topic for one in outcomes} == {RECEIPTS, STATE}


def test_the_first_failure_is_told_at_once_and_the_breaker_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CALM_S", 60.0)
    with scripted_destination(lambda number, _: Reply(200 if number < 5 else 503)) as destination:
        to = sample(destination)
        plan = plan_for(to, is_realtime=True, flow_folder=tmp_path)
        outcomes = run(plan, 60)
        assert len(destination.requests) < 30
    assert list(covered(outcomes, ReceiptOutcome.DELIVERED)) == [(0, 5)]
    assert list(covered(outcomes, ReceiptOutcome.WAITING)) == [(5, 60)]
    assert kept(tmp_path).state is FlowState.OPEN
    assert kept(tmp_path).flow.attempts["ok"] == 5


def test_an_owners_rate_is_asked_for_each_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CALM_S", 60.0)
    with scripted_destination() as destination:
        to = sample(destination, rate_per_s=1.0)
        plan = plan_for(to, is_realtime=True, flow_folder=tmp_path, time_box_s=0.1)
        outcomes = run(plan, 10)
        assert len(destination.requests) < 5
    delivered = covered(outcomes, ReceiptOutcome.DELIVERED)
    assert len(delivered.union(covered(outcomes, ReceiptOutcome.WAITING))) == 10
