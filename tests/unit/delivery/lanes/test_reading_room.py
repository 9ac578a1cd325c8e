"""While one strand's events get no outcome, the reader goes on for the others of its task.

The log is the fake of tests/contract/test_log_client.py.
"""

import asyncio
from collections.abc import Awaitable

import pytest

from delivery.lanes import reading as module
from delivery.lanes.reading import Came, NoRoom, Portion, Reading
from delivery.lanes.units import Span, Strand, Unit
from shared.runtime.kafka.log_client import ANSWER_BYTES_MAX
from tests.unit.delivery.lanes.test_reading import A, B, a_log, events, reading_of

FULL = module._BYTES_MAX
PATIENCE_S = 60.0


async def portion(queue: Came) -> Portion:
    """Return the next portion; skip messages about room."""
    async with asyncio.timeout(PATIENCE_S):
        while isinstance(came := await queue.get(), NoRoom):
            pass
    assert isinstance(came, Portion)
    return came


async def ends(running: Awaitable[None]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await running


async def last(queue: Came) -> Exception | None:
    async with asyncio.timeout(PATIENCE_S):
        while isinstance(came := await queue.get(), NoRoom | Portion):
            pass
    return came


def test_one_that_fills_the_memory_and_hangs_holds_up_no_other_unit() -> None:
    async def scenario() -> None:
        log = a_log()
        log.write(events(A, 0, 1, size=FULL))
        units = Unit(A, {"s/hangs": Span(0, None)}), Unit(B, {"s/well": Span(0, None)})
        read, hangs = reading_of(log, *units, follow_s=PATIENCE_S)
        well = read.queues[Strand("s/well", B)]
        running = asyncio.create_task(read.run())
        first = await portion(hangs)
        log.write(events(A, 1, 9))
        for offset in range(3):
            log.write(events(B, offset, offset + 1))
            part = await portion(well)
            assert part.reached == offset + 1
            part.done()
        log.write(events(B, 3, 4))
        await portion(well)
        log.write(events(B, 4, 5))
        assert all(A not in each for each in log.fetches[1:]), "it has more than it can send"
        assert log.sizes[0] == ANSWER_BYTES_MAX
        assert set(log.sizes[1:]) == {module._LEAST_BYTES}
        first.done()
        assert (await portion(hangs)).reached == 9
        running.cancel()

    asyncio.run(scenario())


def test_whoever_is_near_one_that_hangs_goes_on_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The strand hears that this job has no more for it, and is planned again afterwards."""
    monkeypatch.setattr(module, "_SETTLE_S_MAX", 0.05)
    monkeypatch.setattr(module, "_AGAIN_S", 0.01)

    async def scenario() -> None:
        log = a_log()
        log.write(events(A, 0, 2, size=FULL))
        unit = Unit(A, {"s/hangs": Span(0, 4), "s/well": Span(1, 4)})
        read, hangs = reading_of(log, unit)
        well = read.queues[Strand("s/well", A)]
        running = asyncio.create_task(read.run())
        first = await portion(hangs)
        (await portion(well)).done()
        log.write(events(A, 2, 4))
        more = await portion(well)
        assert [record.offset for record in more.rows.records] == [2, 3]
        assert await last(well) is None
        assert await last(hangs) is None
        await ends(running)
        more.done()
        assert read._bytes > FULL, "the events that it sends are in memory"
        first.done()
        assert read._bytes == 0

    asyncio.run(scenario())


def test_what_follows_ends_in_time_though_memory_is_full() -> None:
    async def scenario() -> None:
        log = a_log()
        log.write(events(A, 0, 1, size=FULL))
        read, queue = reading_of(log, Unit(A, {"s/a": Span(0, None)}), follow_s=0.3)
        running = asyncio.create_task(read.run())
        await portion(queue)
        await ends(running)
        assert await last(queue) is None

    asyncio.run(scenario())


def test_who_waits_for_more_while_memory_is_full_of_what_it_has_is_told_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The strand has settled a part, and would wait for the rest of a batch that never comes."""
    monkeypatch.setattr(module, "_AGAIN_S", 0.01)

    async def scenario() -> None:
        log = a_log()
        log.write(events(A, 0, 2, size=FULL))
        read, queue = reading_of(log, Unit(A, {"s/a": Span(0, 3)}))
        running = asyncio.create_task(read.run())
        part = await portion(queue)
        for _ in range(2):
            async with asyncio.timeout(PATIENCE_S):
                assert isinstance(await queue.get(), NoRoom)
        part.done()
        log.write(events(A, 2, 3))
        assert (await portion(queue)).reached == 3
        await ends(running)

    asyncio.run(scenario())


def test_time_without_room_is_not_its_brokers_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AGAIN_S", 0.01)
    monkeypatch.setattr(module, "_SILENCE_S_MAX", 0.2)

    async def scenario() -> None:
        log = a_log()
        log.write(events(A, 0, 1, size=FULL))
        read, queue = reading_of(log, Unit(A, {"s/a": Span(0, 2)}))
        running = asyncio.create_task(read.run())
        part = await portion(queue)
        began_s = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < began_s + 0.4:
            async with asyncio.timeout(PATIENCE_S):
                assert isinstance(await queue.get(), NoRoom)
        log.write(events(A, 1, 2))
        part.done()
        assert (await portion(queue)).reached == 2
        await ends(running)

    asyncio.run(scenario())


def test_nothing_is_held_of_what_is_settled() -> None:
    async def scenario() -> None:
        log = a_log()
        log.write(events(A, 0, 2))
        read, queue = reading_of(log, Unit(A, {"s/a": Span(0, 2)}))
        assert isinstance(read, Reading)
        await read.run()
        first, second = (await portion(queue)).split_at(1)
        first.done()
        assert read._bytes > 0
        second.done()
        assert read._bytes == 0

    asyncio.run(scenario())


def test_an_event_takes_the_room_of_what_it_is_in_memory() -> None:
    """An event of two bytes takes some 700 as objects: a million would far exceed 24 MiB."""

    async def scenario() -> None:
        log = a_log()
        log.write(events(A, 0, 100, size=2))
        read, queue = reading_of(log, Unit(A, {"s/a": Span(0, 100)}))
        await read.run()
        assert 100 * 700 < read._bytes < 100 * 800
        (await portion(queue)).done()
        assert read._bytes == 0

    asyncio.run(scenario())
