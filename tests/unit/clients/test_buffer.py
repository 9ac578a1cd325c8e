"""Events are cut into batches and bounded to the byte, though little is asked for each of them."""

import pytest

from hifi_client import ClosedError, FullError
from hifi_client.sending.buffer import EVENT_OVERHEAD_BYTES, Buffer


def buffer(
    *, count_max: int = 1_000, batch_bytes_max: int = 10**6, bytes_max: int = 10**6
) -> Buffer:
    return Buffer(
        batch_count_max=count_max,
        batch_bytes_max=batch_bytes_max,
        linger_s=600,
        bytes_max=bytes_max,
    )


def put(buffer: Buffer, *sizes: int) -> None:
    for size in sizes:
        buffer.put(b"x" * size, wait_s=0)


def taken(buffer: Buffer) -> list[int] | None:
    batch = buffer.take(timeout_s=0)
    return None if batch is None else [len(line) for line in batch.lines]


def test_a_batch_has_as_many_bytes_as_it_may_with_breaks_between_its_lines() -> None:
    cut = buffer(batch_bytes_max=100)
    put(cut, 30, 30, 38)
    assert taken(cut) == [30, 30, 38]
    put(cut, 30, 30, 39)
    assert taken(cut) == [30, 30]
    put(cut, 200)
    assert [taken(cut), taken(cut)] == [[39], [200]]


def test_a_batch_has_as_many_events_as_it_may() -> None:
    cut = buffer(count_max=2)
    put(cut, 1, 2, 3)
    assert [taken(cut), taken(cut)] == [[1, 2], None]


@pytest.mark.parametrize("count_max", [1, 3, 1_000])
def test_memory_holds_what_it_may_to_the_byte_in_whatever_batches(count_max: int) -> None:
    bound = buffer(count_max=count_max, bytes_max=10 * (100 + EVENT_OVERHEAD_BYTES))
    put(bound, *[100] * 10)
    assert bound.held_bytes == 10 * (100 + EVENT_OVERHEAD_BYTES)
    with pytest.raises(FullError):
        put(bound, 0)
    bound.flush(is_on=True)
    first = bound.take(timeout_s=0)
    assert first is not None
    with pytest.raises(FullError):
        put(bound, 0)
    bound.release(first.charged_bytes)
    put(bound, *[100] * len(first.lines))
    with pytest.raises(FullError):
        put(bound, 0)


def test_an_event_that_is_larger_than_memory_goes_alone() -> None:
    small = buffer(bytes_max=10)
    put(small, 100)
    with pytest.raises(FullError):
        put(small, 1)


def test_what_is_closed_takes_nothing_more_and_gives_what_it_has() -> None:
    closed = buffer()
    put(closed, 1, 2)
    closed.close()
    with pytest.raises(ClosedError):
        put(closed, 3)
    assert [taken(closed), taken(closed)] == [[1, 2], None]
