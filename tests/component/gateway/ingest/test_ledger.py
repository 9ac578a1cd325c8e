"""The gateway's ledger has a row for every acknowledged event, and none for any other."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from gateway.intake.admission import Format
from gateway.intake.event_finder import EventLimits, find_events
from gateway.intake.events import Context, Event
from gateway.intake.plain_events import read_plain
from gateway.publish.ledger import AckLedger, Request
from gateway.publish.report import Fate, Report
from shared.event.topics import ACKED
from shared.proof.acked import AckedRow

MINUTE = 1_699_999_980_000
TOPIC = "hifi.stream.orders"
REQUEST_ID = "01a1ff25-35c5-7a5b-b0e6-761692f0e9b6"


class Publisher:
    """A publisher that stores rows, or reports that it did not."""

    def __init__(self) -> None:
        self.rows: list[AckedRow] = []
        self.fate = Fate.STORED
        self.problem: str | None = None
        self.overdue_bytes = 0

    def meanwhile(self, work: Callable[[], None]) -> None:
        work()

    async def publish(self, topic: str, events: Sequence[Event]) -> Sequence[Report]:
        assert topic == ACKED
        assert {event.key for event in events} == {b"orders"}
        if self.fate is Fate.STORED:
            self.rows += [AckedRow.from_bytes(event.value) for event in events]
        return [Report(self.fate, range(len(events)))]


def an_event(name: str, time_ms: int = MINUTE) -> Event:
    return Event(name, None, b"{}", b"", time_ms)


def noted(ledger: AckLedger, events: list[Event], reports: list[Report]) -> None:
    request = Request(REQUEST_ID, MINUTE + 50, len(events))
    ledger.note(TOPIC, events, reports, request=request, now_ms=MINUTE + 60)


def test_only_what_was_stored_is_entered_with_its_offset_and_minute() -> None:
    publisher = Publisher()
    ledger = AckLedger(publisher)
    events = [an_event("a"), an_event("b", MINUTE - 1), an_event("c"), an_event("d")]
    noted(
        ledger,
        events,
        [
            Report(Fate.STORED, [0, 1], 2, 100),
            Report(Fate.STORED, [3], 0, 7),
            Report(Fate.UNKNOWN, [2]),
        ],
    )
    asyncio.run(ledger.flush())
    found = {row.partition: list(row.named()) for row in publisher.rows}
    assert found == {
        2: [(MINUTE, 100, "a"), (MINUTE - 60_000, 101, "b")],
        0: [(MINUTE, 7, "d")],
    }
    by_partition = {row.partition: row for row in publisher.rows}
    assert by_partition[2].ingest.sum_ms == 50 + 51
    assert by_partition[2].process.mean_ms == 10
    assert by_partition[2].value_bytes == 4


def test_many_events_are_cut_into_rows_that_kafka_takes() -> None:
    publisher = Publisher()
    ledger = AckLedger(publisher)
    events = [an_event("\N{GRINNING FACE}" * 250 + str(n)) for n in range(5_000)]
    noted(ledger, events, [Report(Fate.STORED, range(5_000), 0, 0)])
    asyncio.run(ledger.flush())
    assert [o for row in publisher.rows for _, o, _ in row.named()] == list(range(5_000))
    assert max(len(row.to_bytes()) for row in publisher.rows) < 1_000_000
    asked = [o for row in publisher.rows for o, _, _ in row.of_request(REQUEST_ID)]
    assert asked == list(range(5_000))


def test_a_row_of_as_many_requests_as_events_with_the_longest_ids_fits_a_record() -> None:
    publisher = Publisher()
    ledger = AckLedger(publisher)
    for n in range(2_000):
        event = Event("\N{GRINNING FACE}" * 256, str(n).encode(), b"{}", b"", MINUTE)
        noted(ledger, [event], [Report(Fate.STORED, [0], 0, 10**17 + n)])
    asyncio.run(ledger.flush())
    # Kafka's default is 1,048,588, of which a batch takes 61 and a record's own fields some 30.
    assert max(len(row.to_bytes()) for row in publisher.rows) < 1_048_000


def test_a_row_that_was_not_stored_is_written_later_and_an_unknown_one_is_not() -> None:
    publisher = Publisher()
    ledger = AckLedger(publisher)

    async def scenario() -> None:
        publisher.fate = Fate.NOT_STORED
        noted(ledger, [an_event("a")], [Report(Fate.STORED, [0], 0, 0)])
        await ledger.flush()
        publisher.fate = Fate.STORED
        await ledger.flush()
        assert [row.ids for row in publisher.rows] == [("a",)]
        publisher.fate = Fate.UNKNOWN
        noted(ledger, [an_event("b")], [Report(Fate.STORED, [0], 0, 1)])
        await ledger.flush()
        publisher.fate = Fate.STORED
        await ledger.flush()
        assert [row.ids for row in publisher.rows] == [("a",)]

    asyncio.run(scenario())


def test_a_row_that_cannot_be_written_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.publish.ledger._FLUSH_S", 0.01)
    publisher = Publisher()
    ledger = AckLedger(publisher)

    async def run() -> None:
        writing = asyncio.create_task(ledger.run())
        with monkeypatch.context() as patched:
            broken = asyncio.Event()

            def to_bytes(_: AckedRow) -> bytes:
                broken.set()
                raise RuntimeError("a fault of ours")

            patched.setattr(AckedRow, "to_bytes", to_bytes)
            noted(ledger, [an_event("a")], [Report(Fate.STORED, [0], 2, 100)])
            await broken.wait()
        noted(ledger, [an_event("b")], [Report(Fate.STORED, [0], 2, 101)])
        async with asyncio.timeout(10):
            while not publisher.rows:  # noqa: ASYNC110 - a row sets no event
                await asyncio.sleep(0.01)
        assert not writing.done()
        writing.cancel()

    asyncio.run(run())
    assert [event_id for row in publisher.rows for _, _, event_id in row.named()] == ["b"]


def test_rows_that_are_under_way_when_it_stops_are_written_by_the_last_flush(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.publish.ledger._FLUSH_S", 0.01)

    class SlowPublisher(Publisher):
        def __init__(self) -> None:
            super().__init__()
            self.asked, self.answers = asyncio.Event(), asyncio.Event()

        async def publish(self, topic: str, events: Sequence[Event]) -> Sequence[Report]:
            if not self.asked.is_set():
                self.asked.set()
                await self.answers.wait()
                return [Report(Fate.NOT_STORED, range(len(events)))]
            return await super().publish(topic, events)

    async def run() -> list[AckedRow]:
        publisher = SlowPublisher()
        ledger = AckLedger(publisher)
        noted(ledger, [an_event("a")], [Report(Fate.STORED, [0], 2, 100)])
        writing = asyncio.create_task(ledger.run())
        await publisher.asked.wait()
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        last = asyncio.create_task(ledger.flush())
        await asyncio.sleep(0)
        publisher.answers.set()
        await last
        return publisher.rows

    assert [row.ids for row in asyncio.run(run())] == [("a",)]


def test_a_row_tells_the_most_frequent_keys_of_its_events() -> None:
    publisher = Publisher()
    ledger = AckLedger(publisher)
    events = [
        Event(str(n), b"hot" if n % 3 else b"%d" % n if n % 2 else None, b"{}", b"", MINUTE)
        for n in range(90)
    ]
    noted(ledger, events, [Report(Fate.STORED, range(90), 1, 0)])
    asyncio.run(ledger.flush())
    (row,) = publisher.rows
    assert row.keys == (("hot", 60),)
    # A request with one key for all its events is written in columns.
    body = b"".join(b'{"id":"%d"}\n' % n for n in range(40))
    limits = EventLimits(events_max=100, event_bytes_max=1_000, json_depth_max=10)
    context = Context(id_base="r", accepted_at_ms=MINUTE, key=b"user-7")
    parsed = read_plain(
        find_events(body, Format.NDJSON, limits), body, context=context, limits=limits
    )
    assert parsed is not None
    request = Request(REQUEST_ID, MINUTE + 50, 40)
    reports = [Report(Fate.STORED, range(40), 2, 0)]
    ledger.note(TOPIC, parsed.events, reports, request=request, now_ms=MINUTE + 60)
    asyncio.run(ledger.flush())
    assert publisher.rows[1].keys == (("user-7", 40),)
