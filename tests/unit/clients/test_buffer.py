"""Batches keep to their byte limits exactly, though the buffer does little work for each event."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from hifi_client import ClosedError, FullError
from hifi_client.sending.buffer import EVENT_OVERHEAD_BYTES, Batch, Buffer
from hifi_client.sending.events import Lines
from hifi_client.sending.fates import Fates


def buffer(
    *, count_max: int = 1_000, batch_bytes_max: int = 10**6, bytes_max: int = 10**6
) -> Buffer:
    return Buffer(
        batch_count_max=count_max,
        batch_bytes_max=batch_bytes_max,
        linger_s=600,
        bytes_max=bytes_max,
    )


if TYPE_CHECKING:
    from hifi_client.sending.fates import Stretch

Put = Callable[..., None]


def put_singly(buffer: Buffer, *sizes: int) -> None:
    for size in sizes:
        buffer.put(b"x" * size, wait_s=0)


def put_at_once(buffer: Buffer, *sizes: int) -> None:
    buffer.put_many([b"x" * size for size in sizes], [], wait_s=0)


def put_as_text(buffer: Buffer, *sizes: int) -> None:
    lines = Lines(b"".join(b"x" * size + b"\n" for size in sizes), len(sizes))
    if lines.text is None or not buffer.put_text(lines.text, len(lines), [], wait_s=0):
        buffer.put_many(lines.each(), [], wait_s=0)


@pytest.fixture(params=[put_singly, put_at_once, put_as_text])
def put(request: pytest.FixtureRequest) -> Put:
    chosen: Put = request.param
    return chosen


def taken(buffer: Buffer) -> list[int] | None:
    batch = buffer.take(timeout_s=0)
    return None if batch is None else [len(line) for line in batch.lines]


def test_a_batch_has_as_many_bytes_as_it_may_with_breaks_between_its_lines(put: Put) -> None:
    cut = buffer(batch_bytes_max=100)
    put(cut, 30, 30, 38)
    assert taken(cut) == [30, 30, 38]
    put(cut, 30, 30, 39)
    assert taken(cut) == [30, 30]
    put(cut, 200)
    assert [taken(cut), taken(cut)] == [[39], [200]]


def test_a_batch_has_as_many_events_as_it_may(put: Put) -> None:
    cut = buffer(count_max=2)
    put(cut, 1, 2, 3)
    assert [taken(cut), taken(cut)] == [[1, 2], None]


@pytest.mark.parametrize("count_max", [1, 3, 1_000])
def test_memory_holds_what_it_may_to_the_byte_in_whatever_batches(put: Put, count_max: int) -> None:
    bound = buffer(count_max=count_max, bytes_max=10 * (100 + EVENT_OVERHEAD_BYTES))
    put(bound, *[100] * 10)
    assert bound.used_bytes == 10 * (100 + EVENT_OVERHEAD_BYTES)
    with pytest.raises(FullError):
        put(bound, 0)
    bound.flush(is_on=True)
    first = bound.take(timeout_s=0)
    assert first is not None
    with pytest.raises(FullError):
        put(bound, 0)
    bound.release(first.charged_bytes)
    put(bound, *[100] * first.count)
    with pytest.raises(FullError):
        put(bound, 0)


def test_an_event_that_is_larger_than_memory_goes_alone(put: Put) -> None:
    small = buffer(bytes_max=10)
    put(small, 100)
    with pytest.raises(FullError):
        put(small, 1)


def test_what_is_closed_takes_nothing_more_and_gives_what_it_has(put: Put) -> None:
    closed = buffer()
    put(closed, 1, 2)
    closed.close()
    with pytest.raises(ClosedError):
        put(closed, 3)
    assert [taken(closed), taken(closed)] == [[1, 2], None]


def test_those_put_at_once_stand_as_if_put_singly() -> None:
    sizes = [0, 30, 300, 30, 38, 99, 1, 100, 100, *[10] * 20]
    one, many = buffer(count_max=5, batch_bytes_max=100), buffer(count_max=5, batch_bytes_max=100)
    singly = [one.put(b"x" * size, wait_s=0) for size in sizes]
    stretches: list[Stretch] = []
    many.put_many([b"x" * size for size in sizes[:4]], stretches, wait_s=0)
    many.put_many([b"x" * size for size in sizes[4:]], stretches, wait_s=0)
    places = [place for _, first, count in stretches for place in range(first, first + count)]
    assert places == [place for _, place in singly]
    assert many.used_bytes == one.used_bytes
    cut = []
    while (batch := taken(one)) is not None:
        cut.append(batch)
        assert taken(many) == batch
        one.flush(is_on=True)
        many.flush(is_on=True)
    assert [size for batch in cut for size in batch] == sizes


def test_where_room_ends_those_before_stay() -> None:
    bound = buffer(bytes_max=3 * (100 + EVENT_OVERHEAD_BYTES))
    stretches: list[Stretch] = []
    with pytest.raises(FullError):
        bound.put_many([b"x" * 100] * 4, stretches, wait_s=0)
    assert sum(count for _, _, count in stretches) == 3
    bound.close()
    assert taken(bound) == [100] * 3


def test_a_text_stands_among_others_as_its_lines_would() -> None:
    small = buffer(count_max=6)
    stretches: list[Stretch] = []
    small.put(b"a", wait_s=0)
    assert small.put_text(b"b\nc\n", 2, stretches, wait_s=0)
    _, nth = small.put(b"d", wait_s=0)
    assert [(first, count) for _, first, count in stretches] == [(1, 2)]
    assert nth == 3
    assert not small.put_text(b"e\nf\ng\n", 3, stretches, wait_s=0), "one line more than a batch"
    assert small.put_text(b"e\nf\n", 2, stretches, wait_s=0)
    batch = small.take(timeout_s=0)
    assert batch is not None
    assert batch.charged_bytes == small.used_bytes == 6 * (1 + EVENT_OVERHEAD_BYTES)
    assert batch.body == b"a\nb\nc\nd\ne\nf\n"
    assert batch.part((1, 4)).lines == [b"b", b"e"]
    assert b"\n".join(batch.lines) == batch.body == b"a\nb\nc\nd\ne\nf"


@pytest.mark.parametrize("body", [b"a", b"a\nb", b"a\nb\n"])
def test_a_body_is_as_many_events_as_it_has_lines(body: bytes) -> None:
    batch = Batch.of_body(body, Fates(), born_s=0)
    assert batch.lines == body.splitlines()
    assert batch.count == len(batch.lines)
