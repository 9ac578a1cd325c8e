"""Runs `deliver` in a Spark task, and tells it whether another try of the task died."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from delivery.deliver import Plan, deliver
from delivery.opening import Rows
from shared.runtime.spark.task_tries import is_another_try


def deliver_stream(batches: Iterable[Rows], *, plan: Plan) -> Iterator[pa.RecordBatch]:
    """`deliver`, with what only the moment of the task can tell."""
    yield from deliver(batches, plan, is_again=is_another_try())
