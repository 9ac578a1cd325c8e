"""Takes the rows of a real-time task: all that are there, as soon as one is there.

Spark hands a real-time task one row at a time and blocks between them. A thread takes the rows off
its hands while a request is under way, so that under load the next request carries many events,
and a single event still leaves at once.
"""

from collections.abc import Iterable, Iterator, Sequence
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, TypeAlias

import pyarrow as pa

from shared.event.record import RecordIn
from shared.runtime.spark.packed_rows import unpacked

# The most rows that are handed on at once; as many as a micro-batch's Arrow batch has.
_ROWS_MAX = 10_000
# So many wait here at the most. Whatever else there is stays with Spark, which looks at our
# outcomes only when its rows are not taken.
_ROWS_WAITING_MAX = 20_000
# How soon the thread sees that there is room again.
_ROOM_S = 0.01

# What the thread has taken off Spark's hands; None when there is no more.
_Came: TypeAlias = SimpleQueue[pa.RecordBatch | BaseException | None]


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[Sequence[RecordIn]]:
    """The records of packed rows in their order, with each one whatever has come meanwhile."""
    came: _Came = SimpleQueue()
    # Nobody wants what else there is.
    is_over = Event()
    taker = Thread(target=_take, args=(batches, came, is_over), name="take-rows", daemon=True)
    taker.start()
    is_open = True
    try:
        while is_open:
            waiting = [came.get()]
            while not came.empty() and len(waiting) < _ROWS_MAX:
                waiting.append(came.get())
            ready = [batch for batch in waiting if isinstance(batch, pa.RecordBatch)]
            records = [unpacked(row) for batch in ready for row in _packed(batch)]
            if records:
                yield records
            for last in waiting:
                if isinstance(last, BaseException):
                    raise last
            is_open = None not in waiting
    finally:
        is_over.set()
    taker.join()


def _take(batches: Iterable[pa.RecordBatch], came: _Came, is_over: Event) -> None:
    try:
        for batch in batches:
            came.put(batch)
            while came.qsize() > _ROWS_WAITING_MAX and not is_over.wait(_ROOM_S):
                pass
    except BaseException as error:  # noqa: BLE001 - it is the task's, and raised there
        came.put(error)
    else:
        came.put(None)


def _packed(batch: pa.RecordBatch) -> list[bytes]:
    """The rows of a batch that hold a record."""
    rows: list[Any] = batch.column(0).to_pylist()
    return [row for row in rows if row is not None]
