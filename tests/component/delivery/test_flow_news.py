"""Machines exchange news of destinations, with real files and real HTTP."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from delivery.flow_news import NewsRound
from delivery.flow_store import FlowStore
from delivery.sending import Sending, worker_of
from shared.event.record import RecordOut
from shared.event.topics import STATE
from shared.flow.breaker import Breaker, BreakerState
from shared.flow.flow import ChangeCounts, Flow, FlowState, SendLimits
from shared.flow.flow_record import FlowRecord, folded, open_flow_record
from shared.flow.neighbours import StoreNews
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from tests.support.delivery.deliver_runs import events, plan_for, rows_for, sample
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.servers.scripted_destination import Reply, scripted_destination

SCHEDULE = RetrySchedule()


def test_news_does_not_wait_for_a_request_that_hangs(tmp_path: Path) -> None:
    told: list[tuple[bool, FlowRecord]] = []
    is_over = False

    async def tell(rows: Sequence[RecordOut]) -> None:
        for row in rows:
            assert (row.topic, row.key) == (STATE, b"demo/sample")
            record = open_flow_record(row.value)
            assert record is not None
            told.append((is_over, record))

    with scripted_destination(lambda *_: Reply(delay_s=0.5)) as destination:
        to = sample(destination)
        plan, worker = plan_for(to, flow_folder=tmp_path), worker_of(allows_private=True)

        async def settle() -> list[RecordOut]:
            nonlocal is_over
            sending = Sending(plan, worker, tell=tell)
            outcomes = await sending.settle(rows_for(plan, events(1)))
            is_over = True
            sending.leave()
            return outcomes

        worker.loop.run_until_complete(settle())
    ((was_over, record),) = told
    assert not was_over
    assert record.flow.neighbours.mine.wants == 1, "others must hear of the request before it ends"


def test_what_kafka_does_not_take_is_no_fault_of_the_destinations(tmp_path: Path) -> None:
    async def refuse(_: Sequence[RecordOut]) -> None:
        raise ConnectionError("no Kafka")

    with scripted_destination(lambda *_: Reply(delay_s=0.2)) as destination:
        plan, worker = plan_for(sample(destination), flow_folder=tmp_path), worker_of(
            allows_private=True
        )  # fmt: skip
        sending = Sending(plan, worker, tell=refuse)
        outcomes = worker.loop.run_until_complete(sending.settle(rows_for(plan, events(3))))
        sending.leave()
        assert len(destination.accepted_ids) == 3
    assert outcomes


@pytest.fixture
def limits() -> SendLimits:
    with scripted_destination() as destination:
        return SendLimits(sample(destination), SCHEDULE)


def told_by(store: str, flow: Flow, *, has: int = 1) -> FlowRecord:
    at_ms = now_ms()
    mine = StoreNews(at_ms, wants=4, has=has)
    flow = replace(flow, neighbours=replace(flow.neighbours, mine=mine))
    return FlowRecord(flow, store=store, updated_at_ms=at_ms, published_at_ms=at_ms)


def test_a_round_lets_a_file_hear_of_others_and_tells_what_is_due(
    tmp_path: Path, limits: SendLimits
) -> None:
    name, to = limits.to.id, {limits.to.id: limits.to}
    store, news = FlowStore(tmp_path), NewsRound(FlowStore(tmp_path), SCHEDULE)
    with store.lock(limits, now_ms=now_ms()) as locked:
        locked.ask("a task", running_count=0)
        locked.runs("a task", 1)
        ours = locked.to_publish()
    assert ours is not None
    alone = folded(None, ours, now_ms=now_ms())
    assert news.go({name: alone}, to) == []
    # Another machine has found the destination dead.
    shut = Breaker(BreakerState.OPEN, open_count=1, until_ms=now_ms() + 30_000)
    dead = Flow(breaker=shut, changes=ChangeCounts(breaker=1))
    both = folded(alone, told_by("there", dead), now_ms=now_ms())
    news.go({name: both}, to)
    with store.lock(limits, now_ms=now_ms()) as locked:
        assert locked.record.state is FlowState.OPEN
        assert locked.flow.neighbours.active.keys() == {"there"}
        # The task sends nothing more, and reports that.
        locked.leave("a task")
    file = tmp_path / "demo.sample.json"
    wants: list[int] = []

    def has_left() -> bool:
        later = folded(both, told_by("there", dead), now_ms=now_ms())
        told = news.go({name: later}, to)
        wants.extend(each.flow.neighbours.mine.wants for _, each in told)
        return wants[-1:] == [0]

    wait_until(has_left, what="others hear that the task has left")
    later = folded(both, told_by("there", dead), now_ms=now_ms())
    news.go({name: later}, to)
    # From then on the file is not written until this machine sends again.
    written_ns = file.stat().st_mtime_ns
    for _ in range(3):
        again = folded(later, told_by("there", dead), now_ms=now_ms())
        assert news.go({name: again}, to) == []
    assert file.stat().st_mtime_ns == written_ns


def test_a_round_makes_no_file_where_nobody_sends(tmp_path: Path, limits: SendLimits) -> None:
    name, news = limits.to.id, NewsRound(FlowStore(tmp_path), SCHEDULE)
    first = folded(None, told_by("here", Flow()), now_ms=now_ms())
    both = folded(first, told_by("there", Flow()), now_ms=now_ms())
    assert news.go({name: both, "gone/to": both}, {name: limits.to}) == []
    assert list(tmp_path.iterdir()) == []
