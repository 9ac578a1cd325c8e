"""Accumulators against a scripted broker: which events share a batch, and their fates."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from gateway.intake.events import Event
from gateway.intake.record_batch import RecordBatch
from gateway.publish.accumulator import Accumulator, NotStoredError, UnknownFateError
from gateway.publish.produce_request import Handover
from gateway.publish.report import Fate, Report

BATCH_EVENTS_MAX = 4


class Builder(RecordBatch):
    def __init__(self) -> None:
        super().__init__(bytes_max=1)
        self.ids: list[str] = []

    def fill(self, records: Sequence[Event], now_ms: int) -> int:
        del now_ms
        taken = records[: BATCH_EVENTS_MAX - len(self.ids)]
        self.ids += [record.value.decode() for record in taken]
        return len(taken)


class Broker:
    """A broker that takes batches, each of which waits for `report` or `fail`."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.open = asyncio.Event()
        self.open.set()
        self._reports: asyncio.Queue[int | Exception] = asyncio.Queue()
        self.accumulator = Accumulator(
            partition=7, new_builder=Builder, send=self._send, gate=self.open.wait
        )

    def take(self, ids: str, *, now_s: float = 0) -> "list[asyncio.Future[Report]]":
        """Publish one event for each letter."""
        events = [Event.of(id=i, key=None, value=i.encode(), headers=()) for i in ids]
        told: list[asyncio.Future[Report]] = []
        done = 0
        while done < len(events):
            told.append(asyncio.get_running_loop().create_future())
            left, tell = range(done, len(events)), told[-1].set_result
            done += self.accumulator.take(events[done:], left, tell, now_s=now_s, now_ms=1)
        return told

    def report(self, *outcomes: int | Exception) -> None:
        for outcome in outcomes:
            self._reports.put_nowait(outcome)

    def sweep(self, now_s: float) -> None:
        self.accumulator.sweep(now_s=now_s, queue_deadline_s=2, ack_deadline_s=10)

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not is_so():  # noqa: ASYNC110 - what we wait for has no event of its own
                await asyncio.sleep(0)

    async def _send(self, partition: int, builder: Any, handover: Handover) -> int:
        assert partition == 7
        handover.may_be_stored = True
        self.batches.append(list(builder.ids))
        outcome = await self._reports.get()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def scenario(test: Callable[[Broker], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in a loop with its own broker."""

    def run() -> None:
        async def play() -> None:
            broker = Broker()
            try:
                await test(broker)
            finally:
                broker.accumulator.close("the test is over")

        asyncio.run(play())

    run.__name__ = test.__name__
    return run


async def told(slices: "list[asyncio.Future[Report]]") -> list[Report]:
    async with asyncio.timeout(5):
        return [await part for part in slices]


@scenario
async def test_requests_of_one_turn_travel_in_one_batch_and_learn_their_offsets(b: Broker) -> None:
    first, second = b.take("ab"), b.take("c")
    b.report(100)
    reports = await told(first + second)
    assert b.batches == [["a", "b", "c"]]
    assert [(r.fate, r.partition, r.first_offset) for r in reports] == [
        (Fate.STORED, 7, 100),
        (Fate.STORED, 7, 102),
    ]


@scenario
async def test_a_batch_fills_while_another_is_on_its_way(b: Broker) -> None:
    first = b.take("a")
    await b.until(lambda: b.batches == [["a"]])
    later = b.take("b") + b.take("c")
    b.report(0, 1)
    await told(first + later)
    assert b.batches == [["a"], ["b", "c"]]


@scenario
async def test_a_request_larger_than_a_batch_has_a_report_for_each_part(b: Broker) -> None:
    slices = b.take("abcdef")
    b.report(0, UnknownFateError("lost"))
    reports = await told(slices)
    assert b.batches == [["a", "b", "c", "d"], ["e", "f"]]
    assert [(r.fate, list(r.positions)) for r in reports] == [
        (Fate.STORED, [0, 1, 2, 3]),
        (Fate.UNKNOWN, [4, 5]),
    ]


@scenario
async def test_an_error_is_told_to_every_request_of_the_batch_and_to_no_other(b: Broker) -> None:
    failed = b.take("a") + b.take("b")
    await b.until(lambda: b.batches == [["a", "b"]])
    fine = b.take("c")
    b.report(NotStoredError("refused"), 5)
    assert [r.fate for r in await told(failed)] == [Fate.NOT_STORED] * 2
    assert [r.fate for r in await told(fine)] == [Fate.STORED]


@scenario
async def test_what_was_not_handed_over_in_time_is_withdrawn_and_never_sent(b: Broker) -> None:
    on_its_way = b.take("a", now_s=0)
    await b.until(lambda: b.batches == [["a"]])
    early, late = b.take("bc", now_s=1), b.take("d", now_s=2)
    b.sweep(now_s=3.5)
    assert [r.fate for r in await told(early)] == [Fate.NOT_STORED]
    assert not late[0].done()
    b.report(10, 11)
    reports = await told(on_its_way + late)
    assert b.batches == [["a"], ["d"]], "withdrawn events must not be sent"
    assert [r.first_offset for r in reports] == [10, 11]


@scenario
async def test_behind_a_kafka_that_is_busy_events_wait_for_the_full_deadline(b: Broker) -> None:
    first = b.take("abcd", now_s=0)
    await b.until(lambda: len(b.batches) == 1)
    second, third = b.take("efgh", now_s=0), b.take("i", now_s=0.5)
    b.report(0)
    await told(first)
    b.sweep(now_s=3)
    b.report(4)
    await told(second)
    await b.until(lambda: b.batches == [["a", "b", "c", "d"], ["e", "f", "g", "h"], ["i"]])
    fourth = b.take("j", now_s=3)
    b.sweep(now_s=4.9)
    assert not fourth[0].done()
    b.sweep(now_s=6.9)
    assert [r.fate for r in await told(fourth)] == [Fate.NOT_STORED]
    b.report(8)
    await told(third)


@scenario
async def test_without_a_report_in_time_the_fate_is_unknown_and_stays_so(b: Broker) -> None:
    slices = b.take("a", now_s=0)
    await b.until(lambda: b.batches == [["a"]])
    b.sweep(now_s=9.9)
    assert not slices[0].done()
    b.sweep(now_s=10)
    assert [r.fate for r in await told(slices)] == [Fate.UNKNOWN]
    assert b.accumulator.overdue_bytes == 1, "the event is still held"
    b.report(0)
    await b.until(lambda: b.accumulator.overdue_bytes == 0)
    assert [r.fate for r in await told(slices)] == [Fate.UNKNOWN], "a given answer must not change"


@scenario
async def test_while_there_is_no_producer_events_wait_where_they_can_be_withdrawn(
    b: Broker,
) -> None:
    b.open.clear()
    slices = b.take("a", now_s=0)
    await asyncio.sleep(0)
    b.sweep(now_s=2)
    assert [r.fate for r in await told(slices)] == [Fate.NOT_STORED]
    b.open.set()
    after = b.take("b", now_s=3)
    b.report(0)
    await told(after)
    assert b.batches == [["b"]]


@scenario
async def test_closing_settles_everything(b: Broker) -> None:
    sent = b.take("a")
    await b.until(lambda: b.batches == [["a"]])
    waiting = b.take("b")
    b.accumulator.close("the gateway stops")
    assert [r.fate for r in await told(sent + waiting)] == [Fate.UNKNOWN, Fate.NOT_STORED]


@scenario
async def test_a_gate_that_fails_is_tried_again(broker: Broker) -> None:
    fails = [KeyError("what nobody expects")]

    async def gate() -> None:
        if fails:
            raise fails.pop()

    broker.accumulator.gate = gate
    (told,) = broker.take("a")
    broker.report(40)
    async with asyncio.timeout(5):
        assert (await told).fate is Fate.STORED
    assert not fails
