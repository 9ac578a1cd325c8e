"""What of a job travels with its tasks, and what with the function that they run."""

import asyncio
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

from delivery.lanes.marks import Mark
from delivery.lanes.service import _take_part
from delivery.lanes.units import Job, JobKind, Orders, Span, Strand, StrandEnd, TaskEnd, Unit
from shared.config.configuration import Configuration, Stream
from shared.flow.flow import Flow
from shared.flow.flow_record import FlowRecord
from shared.runtime.spark.processor_time import ProcessorTime
from tests.unit.delivery.lanes.test_loop import TO, A, B, Driver

OTHER = replace(TO, name="b")
MARKS = {Strand(to.id, where): Mark(0, 0) for to in (TO, OTHER) for where in (A, B)}
UNITS = Unit(A, {TO.id: Span(0, 5)}), Unit(B, {TO.id: Span(0, 5), OTHER.id: Span(0, 5)})


class Session:
    """Takes a job as Spark does, and runs nothing."""

    def __init__(self) -> None:
        self.sparkContext = self
        self.environment: dict[str, str] = {}
        self.pools: list[str] = []
        self.tasks: Sequence[tuple[Sequence[Unit], Orders]] = ()
        self.function: Callable[..., object] = print
        self._jrdd = None
        self.goes_on = Event()
        self.goes_on.set()

    def setLocalProperty(self, _: str, pool: str) -> None:  # noqa: N802 - Spark's word
        self.pools.append(pool)

    def parallelize(self, tasks: Sequence[Any], count: int) -> "Session":
        assert count == len(tasks)
        self.tasks = pickle.loads(pickle.dumps(tasks))
        return self

    def mapPartitions(self, function: Callable[..., object]) -> "Session":  # noqa: N802
        self.function = function
        return self

    def collect(self) -> list[TaskEnd]:
        assert self.goes_on.wait(30)
        return [TaskEnd([StrandEnd(Strand(TO.id, A), 5)], HAD), TaskEnd([], HAD)]


HAD = ProcessorTime(0.1, 0.0)


async def submitted(job: Job) -> tuple[Session, list[TaskEnd]]:
    driver, session = Driver(), Session()
    driver.loop.spark = cast("Any", session)
    driver.loop.roster.take(
        Configuration(streams={"s": Stream("s", 2)}, destinations={TO.id: TO, OTHER.id: OTHER})
    )
    driver.loop.states.value = {TO.id: FlowRecord(Flow())}
    orders = driver.loop._orders(
        [Strand(name, unit.where) for unit in UNITS for name in unit.spans], job
    )
    return session, driver.loop._submit(job, orders)


def test_a_process_shares_lanes_when_its_workers_are_there() -> None:
    """What it was given before would stand until they are: 16 s on a busy machine."""
    driver, session, stop = Driver(), Session(), asyncio.Event()
    driver.loop.spark = cast("Any", session)
    driver.loop.member = cast("Any", SimpleNamespace(run=asyncio.Event.wait, ours_until_ms=0))
    stop.set()
    session.goes_on.clear()

    async def scenario() -> None:
        sharing = asyncio.create_task(_take_part(driver.loop, stop))
        while len(session.pools) < driver.loop.book.worker_count:  # noqa: ASYNC110 - in threads
            await asyncio.sleep(0.01)
        assert not sharing.done()
        session.goes_on.set()
        await asyncio.wait_for(sharing, 30)

    asyncio.run(scenario())


def test_orders_travel_with_the_tasks_that_they_are_for() -> None:
    """With the function they would be a broadcast from 1 MiB on, one for each job."""
    job = Job(JobKind.APART, [[unit] for unit in UNITS])
    session, ends = asyncio.run(submitted(job))
    assert [report for end in ends for report in end.reports] == [StrandEnd(Strand(TO.id, A), 5)]
    assert len(pickle.dumps(session.function)) < 1_000
    assert [list(units) for units, _ in session.tasks] == [[unit] for unit in UNITS]
    assert [dict(orders.destinations) for _, orders in session.tasks] == [
        {TO.id: TO},
        {TO.id: TO, OTHER.id: OTHER},
    ]
    assert [set(orders.flows) for _, orders in session.tasks] == [{TO.id}, {TO.id}]


def test_a_lane_that_goes_when_its_job_is_planned_takes_none_of_its_neighbours_with_it() -> None:
    async def scenario() -> Driver:
        driver, session = Driver(marks=MARKS), Session()
        driver.loop.spark, driver.loop.book.worker_count = cast("Any", session), 1
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

    # As the job has reported.
    assert asyncio.run(scenario()).position() == {A: 5, B: 0}


def test_a_job_has_the_pool_of_its_kind_and_the_worker_that_it_names() -> None:
    for job, name in (
        (Job(JobKind.APART, [[UNITS[0]]]), "any"),
        (Job(JobKind.FOLLOWING, [[UNITS[0]]], 1), "following-1"),
    ):
        session, _ = asyncio.run(submitted(job))
        assert (session.pools, session.environment) == ([job.kind.value], {"HIFI_WORKER": name})
