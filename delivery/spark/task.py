"""Runs `deliver` in a Spark task, and tells it whether another try of the task died."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from delivery.deliver import Plan, deliver
from delivery.spark.realtime_source import gathered
from shared.runtime.spark.task_tries import is_another_try


def deliver_stream(batches: Iterable[pa.RecordBatch], *, plan: Plan) -> Iterator[pa.RecordBatch]:
    """`deliver`, with what only the moment of the task can tell; in real time as rows come."""
    rows = gathered(batches) if plan.is_realtime else batches
    yield from deliver(rows, plan, is_again=is_another_try())
