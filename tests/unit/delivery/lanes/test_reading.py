"""Each strand gets its part of a shared read, whole and in order, and a final message.

The log is the fake of tests/contract/test_log_client.py.
"""

import asyncio
from collections.abc import Collection, Sequence

import pytest
from aiokafka.errors import KafkaConnectionError, UnknownTopicOrPartitionError

from delivery.lanes import reading as module
from delivery.lanes.reading import Came, DataLostError, NoRoom, Portion, Reading
from delivery.lanes.units import Span, Strand, Unit
from shared.event.envelope import event_headers
from shared.event.record import KafkaPartition, Origin, Position, RecordIn
from shared.runtime.kafka.log_client import FetchAnswer
from shared.runtime.setup_error import KafkaUnavailableError
from tests.support.delivery.memory_log import NODE, MemoryLog

A, B = (KafkaPartition("hifi.stream.s", number) for number in range(2))


def events(where: KafkaPartition, first: int, end: int, *, size: int = 2) -> Sequence[RecordIn]:
    headers = event_headers(event_id="e", event_time_ms=1, accepted_at_ms=1)
    value = b"1" * size
    return [RecordIn(Origin(*where, n), 1, None, value, headers) for n in range(first, end)]


def a_log() -> MemoryLog:
    log = MemoryLog()
    log.make("hifi.stream.s", 2)
    return log


def reading_of(log: MemoryLog, *units: Unit, follow_s: float = 0.0) -> tuple[Reading, Came]:
    queues: dict[Strand, Came] = {
        strand: asyncio.Queue() for unit in units for strand in unit.strands
    }
    until_s = asyncio.get_running_loop().time() + follow_s
    read = Reading(units, log.leaders([unit.where for unit in units]), log, until_s, queues)
    return read, queues[units[0].strands[0]]


def came(queue: Came) -> tuple[list[int], int | None, Exception | None]:
    """Return offsets, how far they reach, and the final message; release each part."""
    offsets: list[int] = []
    reached = None
    while isinstance(part := queue.get_nowait(), Portion):
        offsets += [record.offset for record in part.rows.records]
        reached = part.reached
        part.done()
    assert not isinstance(part, NoRoom)
    assert queue.empty(), "something follows the final message"
    return offsets, reached, part


def test_the_rest_of_a_millisecond_is_no_reason_to_wait_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise reads that end together would wait for one that ends half a second later."""

    async def scenario() -> list[int]:
        read, _ = reading_of(a_log(), Unit(A, {"s/a": Span(0, None)}))
        loop = asyncio.get_running_loop()
        now_s, found = loop.time(), []
        with monkeypatch.context() as frozen:
            frozen.setattr(loop, "time", lambda: now_s)
            for left_s in (9.0, 0.25, 0.0004, 0.0):
                read.until_s = now_s + left_s
                found.append(read._wait_ms())
        return found

    assert asyncio.run(scenario()) == [500, 250, 1, 500]


def test_all_that_are_near_get_their_part_of_what_is_read_once() -> None:
    async def scenario() -> None:
        log = a_log()
        log.write(events(A, 0, 10))
        log.write(events(B, 0, 3))
        unit = Unit(A, {"s/a": Span(0, 10), "s/b": Span(4, 7), "s/c": Span(9, 10)})
        read, _ = reading_of(log, unit, Unit(B, {"s/a": Span(1, 3)}))
        await read.run()
        found = {strand: came(queue) for strand, queue in read.queues.items()}
        assert found == {
            Strand("s/a", A): ([*range(10)], 10, None),
            Strand("s/b", A): ([4, 5, 6], 7, None),
            Strand("s/c", A): ([9], 10, None),
            Strand("s/a", B): ([1, 2], 3, None),
        }
        assert log.fetches == [{A: 0, B: 1}]
        assert read._bytes == 0

    asyncio.run(scenario())


def test_units_that_are_far_apart_in_a_kafka_partition_are_read_side_by_side() -> None:
    async def scenario() -> None:
        log = a_log()
        log.write(events(A, 0, 100))
        log.write(events(B, 0, 3))
        units = [Unit(A, {"s/far": Span(0, 5)}), Unit(A, {"s/near": Span(97, 100)})]
        read, _ = reading_of(log, *units, Unit(B, {"s/far": Span(1, 3)}))
        await read.run()
        found = {strand: came(queue) for strand, queue in read.queues.items()}
        assert found == {
            Strand("s/far", A): ([*range(5)], 5, None),
            Strand("s/near", A): ([97, 98, 99], 100, None),
            Strand("s/far", B): ([1, 2], 3, None),
        }
        assert log.fetches == [{A: 0, B: 1}, {A: 97}]

    asyncio.run(scenario())


def test_what_follows_its_log_gets_what_comes_until_its_time_is_over() -> None:
    async def scenario() -> None:
        log = a_log()
        log.write(events(A, 0, 2))
        read, queue = reading_of(log, Unit(A, {"s/a": Span(0, None)}), follow_s=0.5)
        running = asyncio.create_task(read.run())
        first = await queue.get()
        assert isinstance(first, Portion)
        assert first.reached == 2
        log.write(events(A, 2, 3))
        second = await queue.get()
        assert isinstance(second, Portion)
        assert [record.offset for record in second.rows.records] == [2]
        await running
        assert queue.get_nowait() is None

    asyncio.run(scenario())


def test_another_broker_that_leads_by_now_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AGAIN_S", 0.0)

    async def scenario() -> None:
        log = a_log()
        log.write(events(A, 0, 2))
        read, queue = reading_of(log, Unit(A, {"s/a": Span(0, 2)}))
        log.leader = NODE + 1
        await read.run()
        assert came(queue) == ([0, 1], 2, None)

    asyncio.run(scenario())


def test_what_is_wrong_with_one_is_told_to_those_that_wanted_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_SILENCE_S_MAX", 0.1)
    monkeypatch.setattr(module, "_AGAIN_S", 0.05)

    async def scenario() -> None:
        log = a_log()
        log.write(events(A, 0, 2))
        gone = KafkaPartition("hifi.stream.gone", 0)
        read, queue = reading_of(
            log, Unit(A, {"s/a": Span(0, 2)}), Unit(gone, {"gone/a": Span(0, 2)})
        )
        await read.run()
        assert came(queue) == ([0, 1], 2, None)
        _, _, error = came(read.queues[Strand("gone/a", gone)])
        assert isinstance(error, KafkaUnavailableError)
        assert "has no leader" in str(error)
        # A Kafka partition whose leader has just changed.
        read = Reading(
            [Unit(gone, {"gone/a": Span(0, 2)})],
            {gone: NODE},
            log,
            0.0,
            {Strand("gone/a", gone): asyncio.Queue()},
        )
        await read.run()
        _, _, error = came(read.queues[Strand("gone/a", gone)])
        assert isinstance(error, UnknownTopicOrPartitionError)

    asyncio.run(scenario())


def test_who_has_lost_events_is_told_and_the_others_go_on() -> None:
    async def scenario() -> None:
        log = a_log()
        log.write(events(A, 0, 9))
        log.forget(A, 5)
        read, lost = reading_of(log, Unit(A, {"s/late": Span(2, 9), "s/well": Span(6, 9)}))
        await read.run()
        offsets, _, error = came(lost)
        assert offsets == []
        assert isinstance(error, DataLostError)
        assert "begins at 5" in str(error)
        assert came(read.queues[Strand("s/well", A)]) == ([6, 7, 8], 9, None)

    asyncio.run(scenario())


def test_nothing_is_called_lost_while_nobody_leads_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        log = a_log()
        log.write(events(A, 0, 9))
        log.forget(A, 5)
        asked: list[Collection[KafkaPartition]] = []
        starts = log.starts

        async def none_at_first(places: Collection[KafkaPartition]) -> dict[KafkaPartition, int]:
            asked.append(places)
            return await starts(places) if len(asked) > 2 else {}

        monkeypatch.setattr(log, "starts", none_at_first)
        monkeypatch.setattr(module, "_AGAIN_S", 0.01)
        unit = Unit(A, {"s/well": Span(6, 9), "s/late": Span(4, 9)})
        read, queue = reading_of(log, unit)
        await read.run()
        assert came(queue) == ([6, 7, 8], 9, None)
        assert isinstance(came(read.queues[Strand("s/late", A)])[2], DataLostError)
        assert len(asked) == 3

    asyncio.run(scenario())


def test_a_log_that_is_shorter_than_a_position_has_lost_events() -> None:
    """The log of a recreated topic looks like this."""

    async def scenario() -> None:
        log = a_log()
        log.write(events(A, 0, 2))
        read, queue = reading_of(log, Unit(A, {"s/a": Span(7, 9)}))
        await read.run()
        assert isinstance(came(queue)[2], DataLostError)

    asyncio.run(scenario())


class FaultyLog(MemoryLog):
    """A log with a Kafka partition that our own code cannot read."""

    how = "answer"

    async def fetch(
        self,
        node: int,
        position: Position,
        *,
        wait_ms: int,
        bytes_max: int = 0,
        connection: int = 0,
    ) -> dict[KafkaPartition, FetchAnswer]:
        answers = await super().fetch(
            node, position, wait_ms=wait_ms, bytes_max=bytes_max, connection=connection
        )
        if B in position and self.how == "fetch":
            raise ValueError("no such batch")
        if B in position and self.how == "answer":
            answers[B] = FetchAnswer([None], 1)
        if B in position and self.how == "silence":
            del answers[B]
        return answers


@pytest.mark.parametrize(
    ("how", "error"), [("fetch", ValueError), ("answer", AttributeError), ("silence", KeyError)]
)
def test_a_fault_of_ours_with_one_unit_ends_its_strands_and_no_others(
    how: str, error: type[Exception]
) -> None:
    async def scenario() -> None:
        log = FaultyLog()
        log.how = how
        log.make("hifi.stream.s", 2)
        log.write(events(A, 0, 2))
        log.write(events(B, 0, 2))
        units = Unit(A, {"s/a": Span(0, 4)}), Unit(B, {"s/a": Span(0, 2), "s/b": Span(1, 2)})
        read, _ = reading_of(log, *units)
        running = asyncio.create_task(read.run())
        faulty = [read.queues[Strand(name, B)] for name in ("s/a", "s/b")]
        for queue in faulty:
            assert isinstance(await queue.get(), error)
            assert queue.empty()
        log.write(events(A, 2, 4))
        await running
        assert came(read.queues[Strand("s/a", A)]) == ([0, 1, 2, 3], 4, None)

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [ValueError("a fault"), KafkaConnectionError("away")])
def test_who_looks_for_a_leader_ends_nobody_else(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AGAIN_S", 0.0)
    monkeypatch.setattr(module, "_SILENCE_S_MAX", 0.1)

    class LostLog(MemoryLog):
        async def ask_leaders(self, topics: Collection[str]) -> bool:
            del topics
            raise error

    async def scenario() -> None:
        log = LostLog()
        log.make("hifi.stream.s", 1)
        log.write(events(A, 0, 2))
        read, queue = reading_of(log, Unit(A, {"s/a": Span(0, 2)}), Unit(B, {"s/a": Span(0, 2)}))
        await read.run()
        assert came(queue) == ([0, 1], 2, None)
        _, _, told = came(read.queues[Strand("s/a", B)])
        assert type(told) is (
            ValueError if isinstance(error, ValueError) else KafkaUnavailableError
        )
        assert error.args[0] in str(told)

    asyncio.run(scenario())


def test_no_more_is_read_than_memory_has_room_for() -> None:
    async def scenario() -> None:
        log = a_log()
        log.write(events(A, 0, 4, size=10))
        read, queue = reading_of(log, Unit(A, {"s/a": Span(0, None)}), follow_s=60.0)
        running = asyncio.create_task(read.run())
        part = await queue.get()
        assert isinstance(part, Portion)
        log.write(events(A, 4, 8, size=module._BYTES_MAX // 4))
        # These records fill the memory.
        full = await queue.get()
        assert isinstance(full, Portion)
        log.write(events(A, 8, 9))
        fetches = len(log.fetches)
        part.done()
        await asyncio.sleep(0)
        assert len(log.fetches) == fetches, "it reads although no portion was released"
        full.done()
        assert isinstance(await queue.get(), NoRoom), "the waiting strand is not told"
        more = await queue.get()
        assert isinstance(more, Portion)
        assert more.reached == 9
        running.cancel()

    asyncio.run(scenario())
