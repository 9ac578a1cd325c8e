"""Decides what a task of delivery knows of its moment: a try before it, the tasks beside it."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from delivery.deliver import Plan, deliver
from delivery.opening import Rows
from delivery.pace import AT_ONCE, Pace
from shared.runtime.spark.task_tries import is_another_try, is_first_task


def deliver_stream(batches: Iterable[Rows], *, plan: Plan) -> Iterator[pa.RecordBatch]:
    """`deliver`, with what only the moment of the task can tell."""
    yield from deliver(batches, plan, is_again=is_another_try(), pace=_pace(plan))


def _pace(plan: Plan) -> Pace:
    if plan.is_realtime:
        # Its task goes on until the interval is over, whatever it may send.
        return AT_ONCE
    return Pace.of_task(
        is_first=is_first_task(),
        time_box_s=plan.time_box_s,
        turns=plan.flow_folder and plan.flow_folder / "turns",
        end_mark=plan.end_mark,
    )
