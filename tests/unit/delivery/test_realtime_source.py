"""A real-time task takes what is there, at once, in order, and raises what its source raises."""

import threading
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from delivery.spark import realtime_source
from delivery.spark.realtime_source import gathered
from shared.event.record import RecordIn


def row(number: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"packed": [None, b"t 0 %d 0 - \n{}" % number]})


def numbers(records: Sequence[RecordIn]) -> list[int]:
    return [record.origin.offset for record in records]


def test_a_single_row_does_not_wait_for_a_second() -> None:
    may_go_on = threading.Event()

    def source() -> Iterator[pa.RecordBatch]:
        yield row(1)
        assert may_go_on.wait(10), "the first row was held back"
        yield row(2)

    took = gathered(source())
    assert numbers(next(took)) == [1]
    may_go_on.set()
    assert [numbers(batch) for batch in took] == [[2]]


def test_rows_that_came_meanwhile_leave_together_and_in_order() -> None:
    all_came = threading.Event()

    def source() -> Iterator[pa.RecordBatch]:
        for number in range(100):
            yield row(number)
        all_came.set()

    took = gathered(source())
    first = numbers(next(took))
    assert all_came.wait(10)
    rest = [numbers(batch) for batch in took]
    assert len(rest) <= 1
    assert first + [number for batch in rest for number in batch] == list(range(100))


def test_what_the_source_raises_is_raised_after_the_rows_before_it() -> None:
    def source() -> Iterator[pa.RecordBatch]:
        yield row(1)
        raise OSError("the task was cut off")

    seen: list[int] = []

    def take() -> None:
        for batch in gathered(source()):
            seen.extend(numbers(batch))

    with pytest.raises(OSError, match="cut off"):
        take()
    assert seen == [1]


def test_rows_that_nobody_takes_stay_with_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task whose outcomes fill the pipe is heard only when Spark cannot hand over more rows."""
    monkeypatch.setattr(realtime_source, "_ROWS_WAITING_MAX", 5)
    handed: list[int] = []

    def source() -> Iterator[pa.RecordBatch]:
        for number in range(100):
            handed.append(number)
            yield row(number)

    took = gathered(source())
    seen = numbers(next(took))
    until_s = time.monotonic() + 0.3
    while time.monotonic() < until_s:
        # Those that were taken, those that wait, and the one that is at the door.
        assert len(handed) <= len(seen) + 7
        time.sleep(0.01)
    assert seen + [number for rows in took for number in numbers(rows)] == list(range(100))
