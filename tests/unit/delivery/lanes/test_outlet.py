"""When rows count as stored, and when a producer is given up; the producers are scripted."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    ProducerClosed,
)

from delivery.lanes import outlet as module
from delivery.lanes.outlet import Outlet
from shared.event.record import RecordOut


def rows(*values: bytes) -> Sequence[RecordOut]:
    return [RecordOut("hifi.receipts", b"k", value, (("h", b"v"),)) for value in values]


class Producer:
    """A producer that takes rows; their values, or the test, decide their results."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.reports: list[asyncio.Future[None]] = []
        self.stops = 0
        self.holds = asyncio.Event()
        self.holds.set()

    async def start(self) -> None:
        await asyncio.sleep(0)

    async def stop(self) -> None:
        self.stops += 1

    async def send(
        self, topic: str, value: bytes, *, key: bytes, headers: Sequence[tuple[str, bytes]]
    ) -> asyncio.Future[None]:
        assert (topic, key, headers) == ("hifi.receipts", b"k", [("h", b"v")])
        if value == b"too large":
            raise MessageSizeTooLargeError
        await self.holds.wait()
        if self.stops:
            raise ProducerClosed
        self.sent.append(value)
        self.reports.append(asyncio.get_running_loop().create_future())
        return self.reports[-1]

    def say(self, error: Exception | None = None) -> None:
        """Report every row sent so far as stored, or as failed with this error."""
        for report in self.reports:
            if not report.done() and error:
                report.set_exception(error)
                # The outlet awaits only the first report.
                report.exception()
            elif not report.done():
                report.set_result(None)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Producer]:
    producers: list[Producer] = []

    def new_producer(_: str, **options: Any) -> Producer:
        assert options["enable_idempotence"], "a resent row must not be stored twice"
        producers.append(Producer())
        return producers[-1]

    monkeypatch.setattr(module, "new_producer", new_producer)
    return producers


async def begun(storing: "asyncio.Task[None]") -> "asyncio.Task[None]":
    """Return the task once it waits for reports."""
    for _ in range(20):
        await asyncio.sleep(0)
    return storing


def test_rows_are_stored_when_all_of_them_are_and_not_before(made: list[Producer]) -> None:
    async def scenario() -> None:
        outlet = Outlet("kafka:1")
        storing = await begun(asyncio.create_task(outlet.store(rows(b"1", b"2"))))
        assert made[0].sent == [b"1", b"2"]
        made[0].reports[0].set_result(None)
        await begun(storing)
        assert not storing.done()
        made[0].reports[1].set_result(None)
        await storing
        await outlet.close()
        await outlet.close()
        assert made[0].stops == 1

    asyncio.run(scenario())


def test_nothing_to_store_asks_nothing_of_kafka(made: list[Producer]) -> None:
    asyncio.run(Outlet("kafka:1").store([]))
    assert made == []


def test_many_who_come_at_once_share_one_producer(made: list[Producer]) -> None:
    async def scenario() -> None:
        outlet = Outlet("kafka:1")
        storing = [asyncio.create_task(outlet.store(rows(b"%d" % n))) for n in range(9)]
        await begun(storing[-1])
        assert [len(each.sent) for each in made] == [9]
        made[0].say()
        await asyncio.gather(*storing)

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [KafkaTimeoutError(), OutOfOrderSequenceNumber()])
def test_a_producer_that_has_given_up_a_row_is_given_up_itself(
    error: KafkaError, made: list[Producer]
) -> None:
    async def scenario() -> None:
        outlet = Outlet("kafka:1")
        storing = [asyncio.create_task(outlet.store(rows(b"1"))) for _ in range(2)]
        await begun(storing[-1])
        made[0].say(error)
        for each in storing:
            with pytest.raises(type(error)):
                await each
        assert made[0].stops == 1
        again = await begun(asyncio.create_task(outlet.store(rows(b"2"))))
        assert made[1].sent == [b"2"]
        # A late failure of the first producer must not stop the second one.
        made[1].say()
        await again
        assert made[1].stops == 0

    asyncio.run(scenario())


def test_who_shares_a_producer_that_another_gives_up_loses_nothing(made: list[Producer]) -> None:
    """A producer that has to stop refuses more rows, even from a caller that is still sending."""

    async def scenario() -> None:
        outlet = Outlet("kafka:1")
        unlucky = await begun(asyncio.create_task(outlet.store(rows(b"1"))))
        made[0].holds = asyncio.Event()
        other = await begun(asyncio.create_task(outlet.store(rows(b"2", b"3"))))
        made[0].say(KafkaTimeoutError())
        with pytest.raises(KafkaTimeoutError):
            await unlucky
        newer = await begun(asyncio.create_task(outlet.store(rows(b"4"))))
        assert [each.sent for each in made] == [[b"1"], [b"4"]]
        made[0].holds.set()
        await begun(other)
        assert [each.sent for each in made] == [[b"1", b"2", b"3"], [b"4"]]
        assert made[0].stops == 0, "reports are still due"
        made[0].say()
        await other
        assert made[0].stops == 1
        made[1].say()
        await newer
        await outlet.close()
        assert [each.stops for each in made] == [1, 1]

    asyncio.run(scenario())


def test_a_row_that_no_kafka_takes_says_nothing_of_the_producer(made: list[Producer]) -> None:
    async def scenario() -> None:
        outlet = Outlet("kafka:1")
        with pytest.raises(MessageSizeTooLargeError):
            await outlet.store(rows(b"too large"))
        storing = await begun(asyncio.create_task(outlet.store(rows(b"1"))))
        made[0].say()
        await storing
        refused = await begun(asyncio.create_task(outlet.store(rows(b"2"))))
        # A broker may refuse the row because of a limit of its own.
        made[0].say(MessageSizeTooLargeError())
        with pytest.raises(MessageSizeTooLargeError):
            await refused
        assert (len(made), made[0].stops) == (1, 0)

    asyncio.run(scenario())


def test_a_producer_that_cannot_start_is_tried_again_the_next_time(
    made: list[Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        outlet = Outlet("kafka:1")
        start = Producer.start

        async def refused(_: Producer) -> None:
            raise OSError("no such host")

        monkeypatch.setattr(Producer, "start", refused)
        with pytest.raises(OSError, match="no such host"):
            await outlet.store(rows(b"1"))
        assert made[0].stops == 1
        monkeypatch.setattr(Producer, "start", start)
        storing = await begun(asyncio.create_task(outlet.store(rows(b"1"))))
        made[1].say()
        await storing

    asyncio.run(scenario())
