"""Takes the rows of a real-time task: all that are there, as soon as one is there.

Spark hands a real-time task one row at a time and blocks between them. A thread takes the rows off
its hands while a request is under way, so that under load the next request carries many events,
and a single event still leaves at once.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pyarrow as pa

from delivery.deliver import Plan
from delivery.spark.task import deliver_stream
from shared.event.record import RecordIn
from shared.runtime.spark.packed_rows import unpacked

# The most rows that are handed on at once; as many as a micro-batch's Arrow batch has.
_ROWS_MAX = 10_000
# So many wait here at the most. Whatever else there is stays with Spark, which looks at our
# outcomes only when its rows are not taken.
_ROWS_WAITING_MAX = 20_000
# How soon the thread sees that there is room again.
_ROOM_S = 0.01


def deliver_as_it_comes(batches: Iterable[pa.RecordBatch], plan: Plan) -> Iterator[pa.RecordBatch]:
    """Send every row of a real-time task, each as soon as it comes."""
    return deliver_stream(gathered(batches), plan=plan)


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[Sequence[RecordIn]]:
    """The records of packed rows in their order, with each one whatever has come meanwhile."""
    came = _Came()
    taker = Thread(target=came.take, args=(batches,), name="take-rows", daemon=True)
    taker.start()
    is_open = True
    try:
        while is_open:
            waiting = [came.queue.get()]
            while not came.queue.empty() and len(waiting) < _ROWS_MAX:
                waiting.append(came.queue.get())
            ready = [batch for batch in waiting if isinstance(batch, pa.RecordBatch)]
            records = [unpacked(row) for batch in ready for row in _packed(batch)]
            if records:
                yield records
            for last in waiting:
                if isinstance(last, BaseException):
                    raise last
            is_open = None not in waiting
    finally:
        came.is_over = True
    taker.join()


def _packed(batch: pa.RecordBatch) -> list[bytes]:
    """The rows of a batch that hold a record."""
    rows: list[Any] = batch.column(0).to_pylist()
    return [row for row in rows if row is not None]


@dataclass(slots=True)
class _Came:
    """What the thread has taken off Spark's hands; None when there is no more."""

    queue: SimpleQueue[pa.RecordBatch | BaseException | None] = field(default_factory=SimpleQueue)
    # Nobody wants what else there is.
    is_over: bool = False

    def take(self, batches: Iterable[pa.RecordBatch]) -> None:
        try:
            for batch in batches:
                self.queue.put(batch)
                while self.queue.qsize() > _ROWS_WAITING_MAX and not self.is_over:
                    time.sleep(_ROOM_S)
        except BaseException as error:  # noqa: BLE001 - it is the task's, and raised there
            self.queue.put(error)
        else:
            self.queue.put(None)
