"""Decides how a real-time task takes its rows: all that are there, as soon as one is there.

Spark hands a real-time task one row at a time and blocks between them. A thread takes the rows off
its hands while a request is under way, so that under load the next request carries many events,
and a single event still leaves at once.
"""

from collections.abc import Iterable, Iterator
from queue import SimpleQueue
from threading import Thread

import pyarrow as pa

from delivery.deliver import Plan
from delivery.task import deliver_stream

# The most rows that are handed on at once; as many as a micro-batch's Arrow batch has.
_ROWS_MAX = 10_000


def deliver_as_it_comes(batches: Iterable[pa.RecordBatch], plan: Plan) -> Iterator[pa.RecordBatch]:
    """Send every row of a real-time task, each as soon as it comes."""
    return deliver_stream(gathered(batches), plan=plan)


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, in batches of whatever has come meanwhile."""
    came: SimpleQueue[pa.RecordBatch | BaseException | None] = SimpleQueue()

    def take() -> None:
        try:
            for batch in batches:
                came.put(batch)
        except BaseException as error:  # noqa: BLE001 - it is the task's, and raised there
            came.put(error)
        else:
            came.put(None)

    taker = Thread(target=take, name="take-rows", daemon=True)
    taker.start()
    is_open = True
    while is_open:
        waiting = [came.get()]
        rows = 0
        while not came.empty() and rows < _ROWS_MAX:
            waiting.append(came.get())
            rows += 1
        ready = [one for one in waiting if isinstance(one, pa.RecordBatch)]
        if ready:
            yield ready[0] if len(ready) == 1 else _joined(ready)
        for last in waiting:
            if isinstance(last, BaseException):
                raise last
        is_open = None not in waiting
    taker.join()


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches).combine_chunks()
    return table.to_batches()[0]
