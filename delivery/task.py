"""Decides what a task of delivery knows when it begins: whether another try of it died before."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from delivery.deliver import Plan, deliver
from shared.runtime.task_tries import is_another_try


def deliver_stream(batches: Iterable[pa.RecordBatch], *, plan: Plan) -> Iterator[pa.RecordBatch]:
    """`deliver`, with what only the moment of the task can tell."""
    yield from deliver(batches, plan, is_again=is_another_try())
