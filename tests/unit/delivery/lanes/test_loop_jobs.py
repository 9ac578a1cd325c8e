"""Parts of a job that travel with its tasks, and parts that travel with their function."""

import asyncio
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

from delivery.lanes.marks import Mark
from delivery.lanes.service import _take_part
from delivery.lanes.turns import Turns
from delivery.lanes.units import Job, JobKind, Orders, Span, Strand, StrandEnd, TaskEnd, Unit
from shared.config.configuration import Configuration, Stream
from shared.flow.flow import Flow
from shared.flow.flow_record import FlowRecord
from shared.runtime.spark.processor_time import ProcessorTime
from tests.unit.delivery.lanes.test_loop import TO, A, B, Driver

OTHER = replace(TO, name="b")
MARKS = {Strand(to.id, where): Mark(0, 0) for to in (TO, OTHER) for where in (A, B)}
UNITS = Unit(A, {TO.id: Span(0, 5)}), Unit(B, {TO.id: Span(0, 5), OTHER.id: Span(0, 5)})


class Tasks:
    """Tasks that accept a job as Spark does, and run nothing."""

    def __init__(self) -> None:
        self.jobs: list[Mapping[str, Any]] = []
        self.tasks: Sequence[tuple[Sequence[Unit], Orders]] = ()
        self.goes_on = Event()
        self.goes_on.set()

    def run(self, tasks: Sequence[Any], **job: Any) -> list[TaskEnd]:
        self.jobs.append(job)
        self.tasks = pickle.loads(pickle.dumps(tasks))
        assert self.goes_on.wait(30)
        return [TaskEnd([StrandEnd(Strand(TO.id, A), 5)], HAD), TaskEnd([], HAD)]


HAD = ProcessorTime(0.1, 0.0)


async def submitted(job: Job) -> tuple[Tasks, list[TaskEnd]]:
    driver, tasks = Driver(), Tasks()
    driver.loop.tasks = cast("Any", tasks)
    driver.loop.roster.take(
        Configuration(streams={"s": Stream("s", 2)}, destinations={TO.id: TO, OTHER.id: OTHER})
    )
    driver.loop.states.value = {TO.id: FlowRecord(Flow())}
    orders = driver.loop._orders(
        [Strand(name, unit.where) for unit in UNITS for name in unit.spans], job
    )
    return tasks, driver.loop._submit(job, orders)


def test_a_process_shares_lanes_when_its_workers_are_there() -> None:
    """Lanes assigned before the workers start would stand still: 16 s on a busy machine."""
    driver, tasks, stop = Driver(), Tasks(), asyncio.Event()
    driver.loop.tasks = cast("Any", tasks)
    driver.loop.member = cast("Any", SimpleNamespace(run=asyncio.Event.wait, ours_until_ms=0))
    stop.set()
    tasks.goes_on.clear()

    async def scenario() -> None:
        sharing = asyncio.create_task(_take_part(driver.loop, stop))
        while len(tasks.jobs) < driver.loop.turns.worker_count:  # noqa: ASYNC110 - in threads
            await asyncio.sleep(0.01)
        assert not sharing.done()
        tasks.goes_on.set()
        await asyncio.wait_for(sharing, 30)

    asyncio.run(scenario())


def test_orders_travel_with_the_tasks_that_they_are_for() -> None:
    """No task receives another one's orders."""
    job = Job(JobKind.APART, [[unit] for unit in UNITS])
    tasks, ends = asyncio.run(submitted(job))
    assert [report for end in ends for report in end.reports] == [StrandEnd(Strand(TO.id, A), 5)]
    assert [list(units) for units, _ in tasks.tasks] == [[unit] for unit in UNITS]
    assert [dict(orders.destinations) for _, orders in tasks.tasks] == [
        {TO.id: TO},
        {TO.id: TO, OTHER.id: OTHER},
    ]
    assert [set(orders.flows) for _, orders in tasks.tasks] == [{TO.id}, {TO.id}]


def test_a_lane_that_goes_when_its_job_is_planned_takes_none_of_its_neighbours_with_it() -> None:
    async def scenario() -> Driver:
        driver, tasks = Driver(marks=MARKS), Tasks()
        driver.loop.tasks, driver.loop.turns = cast("Any", tasks), Turns(worker_count=1)
        streams = {"s": Stream("s", 2)}
        both = Configuration(streams=streams, destinations={TO.id: TO, OTHER.id: OTHER})
        driver.loop.roster.take(both)
        await driver.loop._look()
        driver.loop._sees_ends = True
        driver.loop._start_jobs()
        driver.loop.roster.take(Configuration(streams=streams, destinations={TO.id: TO}))
        (job,) = driver.loop._jobs
        await job
        return driver

    # This is the position that the job reported.
    assert asyncio.run(scenario()).position() == {A: 5, B: 0}


def test_a_job_has_the_pool_of_its_kind_and_the_worker_that_it_names() -> None:
    for job, name in (
        (Job(JobKind.APART, [[UNITS[0]]]), "any"),
        (Job(JobKind.FOLLOWING, [[UNITS[0]]], 1), "following-1"),
    ):
        tasks, _ = asyncio.run(submitted(job))
        environment = {"HIFI_WORKER": name}
        assert tasks.jobs == [{"pool": job.kind.value, "environment": environment, "place": None}]
