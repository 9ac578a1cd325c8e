"""A 202 over real HTTP: only for who asks, only for what Kafka has not, only after fsync."""

import asyncio
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import google_crc32c
import httpx
import msgspec
import pytest

from gateway.intake.events import Event
from gateway.publish.ledger import AckLedger, Request
from gateway.publish.report import Fate, Report
from gateway.publish.spool import Spool
from gateway.publish.spool_file import Spooled, SpoolFile, frame
from shared.event.envelope import EVENT_TIME
from shared.event.topics import ACKED, stream_topic
from shared.proof.acked import AckedRow
from shared.runtime.metrics import Metrics
from shared.runtime.setup_error import SetupError
from tests.support.fake_publisher import FakePublisher
from tests.support.gateway_fixtures import RunningGateway, config_with, running_gateway
from tests.support.record_headers import headers_of

TOPIC = stream_topic("orders")
PATH = "/v1/streams/orders/events"
ASYNC = {"content-type": "application/json", "prefer": "respond-async"}
BODY = b'[{"id":"a"},{"id":"b","time_ms":5},{"id":"c","partitionkey":"k"}]'


@pytest.fixture
def publisher() -> FakePublisher:
    return FakePublisher([TOPIC])


@pytest.fixture
def spool(tmp_path: Path, publisher: FakePublisher) -> Spool:
    found = Spool(tmp_path / "spool", bytes_max=2_000, publisher=publisher)
    found.start()
    return found


@pytest.fixture
def gateway(publisher: FakePublisher, spool: Spool) -> Iterator[RunningGateway]:
    with running_gateway(publisher, config_with("orders"), spool=spool) as running:
        yield running


def post(gateway: RunningGateway, headers: dict[str, str], body: bytes = BODY) -> httpx.Response:
    return gateway.client.post(PATH, content=body, headers=headers)


def drain(spool: Spool, publisher: FakePublisher, *, until: int) -> list[Event]:
    """What Kafka has after the spool has had its turn."""

    async def run() -> list[Event]:
        draining = asyncio.create_task(spool.run())
        try:
            async with asyncio.timeout(20):
                while len(publisher.stored(TOPIC)) < until or spool._files():  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        finally:
            draining.cancel()
        return publisher.stored(TOPIC)

    return asyncio.run(run())


def event(event_id: str) -> Event:
    return Event.of(id=event_id, key=None, value=b"{}", headers=())


def test_202_is_for_who_asks_when_kafka_has_nothing(
    gateway: RunningGateway, publisher: FakePublisher, spool: Spool, tmp_path: Path
) -> None:
    assert post(gateway, ASYNC).status_code == 200
    publisher.fate = Fate.NOT_STORED
    assert post(gateway, {"content-type": "application/json"}).status_code == 503
    response = post(gateway, ASYNC)
    assert response.status_code == 202
    said = response.json()
    assert (said["ack"], said["spooled"], said["accepted"]) == ("spool", 3, 0)
    assert response.headers["preference-applied"] == "respond-async"
    assert sum(file.event_count for file in spool._files()) == 3
    publisher.fate = Fate.STORED
    stored = drain(spool, publisher, until=6)
    # The same events to the byte, once by each way.
    assert sorted(Counter((e.id, e.key or b"", e.value) for e in stored).items()) == [
        (("a", b"", b'{"id":"a"}'), 2),
        (("b", b"", b'{"id":"b","time_ms":5}'), 2),
        (("c", b"k", b'{"id":"c","partitionkey":"k"}'), 2),
    ]
    assert {dict(headers_of(e))[EVENT_TIME] for e in stored if e.id == "b"} == {b"5"}
    assert list((tmp_path / "spool").iterdir()) == []


def test_what_was_spooled_is_in_the_ledger_under_its_request_once_kafka_has_it(
    tmp_path: Path, publisher: FakePublisher
) -> None:
    publisher.logs[ACKED] = [[] for _ in range(4)]
    ledger = AckLedger(publisher)
    spool = Spool(tmp_path / "spool", bytes_max=10_000, publisher=publisher, ledger=ledger)
    spool.start()
    with running_gateway(publisher, config_with("orders"), spool=spool, ledger=ledger) as running:
        publisher.fates = {"b": Fate.NOT_STORED, "c": Fate.NOT_STORED}
        request_id = post(running, ASYNC).json()["request_id"]
    publisher.fates = {}
    assert rows_of(ledger, publisher, request_id) == [("a", 3)]
    drain(spool, publisher, until=3)
    assert rows_of(ledger, publisher, request_id) == [("a", 3), ("b", 3), ("c", 3)]


def rows_of(ledger: AckLedger, publisher: FakePublisher, request_id: str) -> list[tuple[str, int]]:
    """The ids that the ledger has of a request, and how many it says there are."""
    asyncio.run(ledger.flush())
    rows = [AckedRow.from_bytes(event.value) for event in publisher.stored(ACKED)]
    found = [named for row in rows for named in row.of_request(request_id)]
    return sorted((event_id, one.request_count) for _, event_id, one in found)


def test_what_an_older_gateway_has_spooled_is_sent(
    tmp_path: Path, publisher: FakePublisher
) -> None:
    old = event("a")
    fields = (old.id, old.key, old.value, old.packed_headers, old.time_ms)
    packed = msgspec.msgpack.encode((TOPIC, [fields]))
    head = struct.pack(">III", len(packed), 1, google_crc32c.value(packed))
    file = SpoolFile.made(tmp_path)
    file.append([head + packed], 1)
    ledger = AckLedger(publisher)
    spool = Spool(tmp_path, bytes_max=10_000, publisher=publisher, ledger=ledger)
    assert asyncio.run(spool._drain(file))
    assert publisher.stored(TOPIC) == [old]


def test_an_event_of_a_shard_is_spooled_with_its_place(
    tmp_path: Path, publisher: FakePublisher
) -> None:
    sent = [msgspec.structs.replace(event(f"e{n}"), partition=n % 2) for n in range(4)]
    file = SpoolFile.made(tmp_path)
    file.append([frame(TOPIC, sent)], len(sent))
    assert asyncio.run(Spool(tmp_path, bytes_max=10_000, publisher=publisher)._drain(file))
    assert publisher.logs[TOPIC][:2] == [sent[0::2], sent[1::2]]
    # Without shards, as an older gateway can read it.
    _, (fields,) = msgspec.msgpack.decode(frame(TOPIC, [event("a")])[12:])[:2]
    assert len(fields) == 5


def test_what_is_not_known_is_504_and_not_spooled(
    gateway: RunningGateway, publisher: FakePublisher, spool: Spool
) -> None:
    publisher.fates = {"a": Fate.UNKNOWN, "b": Fate.NOT_STORED}
    response = post(gateway, ASYNC)
    assert response.status_code == 504
    statuses = {one["id"]: (one["status"], one["retryable"]) for one in response.json()["results"]}
    assert statuses == {"a": ("unknown", True), "b": ("spooled", False)}
    assert sum(file.event_count for file in spool._files()) == 1


def test_a_request_of_all_kinds_is_207(gateway: RunningGateway, publisher: FakePublisher) -> None:
    publisher.fates = {"b": Fate.NOT_STORED}
    response = post(gateway, ASYNC, b'[{"id":"a"},{"id":"b"},7]')
    assert response.status_code == 207
    said = response.json()
    assert (said["accepted"], said["spooled"], said["rejected"]) == (1, 1, 1)
    assert [one["status"] for one in said["results"]] == ["spooled", "rejected"]


def test_a_full_spool_is_503(gateway: RunningGateway, publisher: FakePublisher) -> None:
    publisher.fate = Fate.NOT_STORED
    statuses = [post(gateway, ASYNC).status_code for _ in range(20)]
    assert statuses[0] == 202
    assert statuses[-1] == 503
    assert statuses == sorted(statuses)


def test_another_process_takes_over_and_a_torn_tail_is_kept_aside(
    tmp_path: Path, publisher: FakePublisher
) -> None:
    gone = SpoolFile.made(tmp_path)
    gone.append([frame(TOPIC, [event("a"), event("b")]), frame(TOPIC, [event("c")])], 3)
    alive = SpoolFile.made(tmp_path)
    alive.append([frame(TOPIC, [event("theirs")])], 1)
    with gone.path.open("ab") as file:
        file.write(frame(TOPIC, [event("cut")])[:-2])
    gone.close()
    spool = Spool(tmp_path, bytes_max=10_000, publisher=publisher)
    spool.start()
    metrics = Metrics()
    spool.measure(metrics)
    assert metrics.registry.get_sample_value("hifi_gateway_spooled_events") == 3
    assert {event.id for event in drain(spool, publisher, until=3)} == {"a", "b", "c"}
    assert metrics.registry.get_sample_value("hifi_gateway_spooled_bytes") == 0
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == sorted([alive.path.name, f"{gone.path.stem}.spool.torn"])
    alive.close()


def test_what_kafka_does_not_take_waits_and_the_rest_is_not_sent_twice(
    tmp_path: Path, publisher: FakePublisher
) -> None:
    file = SpoolFile.made(tmp_path)
    file.append([frame(TOPIC, [event("a")]), frame("hifi.stream.gone", [event("b")])], 2)
    spool = Spool(tmp_path, bytes_max=10_000, publisher=publisher)

    async def twice() -> list[bool]:
        return [await spool._drain(file) for _ in range(2)]

    assert asyncio.run(twice()) == [False, False]
    assert [event.id for event in publisher.stored(TOPIC)] == ["a"]
    assert file.event_count == 1
    publisher.logs["hifi.stream.gone"] = [[] for _ in range(4)]
    assert asyncio.run(twice())[0]


def test_reports_of_stored_events_are_left_alone(spool: Spool) -> None:
    reports = [Report(Fate.STORED, [0], 1, 5), Report(Fate.UNKNOWN, [1])]
    events = [event("a"), event("b")]
    assert asyncio.run(spool.keep(TOPIC, events, reports, Request("r", 0, 2))) == reports


def test_a_folder_that_cannot_be_is_one_sentence(tmp_path: Path, publisher: FakePublisher) -> None:
    (tmp_path / "file").write_text("")
    spool = Spool(tmp_path / "file" / "spool", bytes_max=1, publisher=publisher)
    with pytest.raises(SetupError, match="HIFI_GATEWAY_SPOOL is "):
        spool.start()


def test_trouble_in_the_folder_does_not_end_the_sending(
    spool: Spool, publisher: FakePublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may remove its file while we look; a disk may fail and be well again."""
    troubles = [FileNotFoundError("gone"), PermissionError("not now")]

    def found(path: Path) -> SpoolFile | None:
        if troubles:
            raise troubles.pop(0)
        return original(path)

    original = SpoolFile.found
    left = SpoolFile.made(spool.folder)
    one = Event("a", None, b"{}", b"", 0)
    left.append([frame(TOPIC, [one], Request("r", 1, 1))], 1)
    left.close()
    monkeypatch.setattr(SpoolFile, "found", found)
    monkeypatch.setattr("gateway.publish.spool._LOOK_S", 0.01)

    async def run() -> None:
        sending = asyncio.create_task(spool.run())
        async with asyncio.timeout(10):
            while not publisher.stored(TOPIC):
                assert not sending.done()
                await asyncio.sleep(0.01)
        sending.cancel()

    asyncio.run(run())
    assert not troubles
    assert [event.id for event in publisher.stored(TOPIC)] == ["a"]


def test_what_is_sent_at_once_is_bounded_in_bytes(
    tmp_path: Path, publisher: FakePublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once: list[int] = []
    under_way = 0

    async def publish(topic: str, events: Sequence[Event]) -> Sequence[Report]:
        nonlocal under_way
        under_way += 1
        at_once.append(under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return await original(topic, events)

    original = publisher.publish
    monkeypatch.setattr(publisher, "publish", publish)
    packed = [frame(TOPIC, [event(f"e{n}")]) for n in range(9)]
    monkeypatch.setattr("gateway.publish.spool._TOGETHER_BYTES", 2 * len(packed[0]))
    file = SpoolFile.made(tmp_path)
    file.append(packed, len(packed))
    assert asyncio.run(Spool(tmp_path, bytes_max=1, publisher=publisher)._drain(file))
    assert sorted(one.id for one in publisher.stored(TOPIC)) == [f"e{n}" for n in range(9)]
    assert max(at_once) == 2
    file.close()


def test_what_a_deleted_topic_was_to_get_is_set_aside_and_sent_when_it_is_put_back(
    tmp_path: Path, publisher: FakePublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.publish.spool._GONE_S", 0)
    monkeypatch.setattr("gateway.publish.spool._LOOK_S", 0.01)
    gone = "hifi.stream.gone"
    file = SpoolFile.made(tmp_path)
    file.append([frame(gone, [event("a")]), frame(TOPIC, [event("b")])], 2)
    file.close()
    spool, metrics = Spool(tmp_path, bytes_max=10_000, publisher=publisher), Metrics()
    spool.start()
    spool.measure(metrics)
    assert [one.id for one in drain(spool, publisher, until=1)] == ["b"]
    (kept,) = tmp_path.iterdir()
    assert kept.name == f"{file.path.name}.refused"
    name = "hifi_gateway_spool_set_aside_events_total"
    assert metrics.registry.get_sample_value(name) == 1
    publisher.logs[gone] = [[] for _ in range(4)]
    kept.rename(file.path)
    spool.start()
    drain(spool, publisher, until=1)
    assert [one.id for one in publisher.stored(gone)] == ["a"]


def test_a_topic_that_is_unknown_for_a_moment_is_waited_for(
    tmp_path: Path, publisher: FakePublisher
) -> None:
    file = SpoolFile.made(tmp_path)
    file.append([frame("hifi.stream.gone", [event("a")])], 1)
    spool = Spool(tmp_path, bytes_max=10_000, publisher=publisher)
    assert not asyncio.run(spool._drain(file))
    assert [path.name for path in tmp_path.iterdir()] == [file.path.name]
    file.close()


def test_a_file_in_trouble_holds_up_no_other_and_is_tried_ever_more_seldom(
    tmp_path: Path, publisher: FakePublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.publish.spool._LOOK_S", 0.01)
    bad, good = SpoolFile.made(tmp_path), SpoolFile.made(tmp_path)
    original, tries = SpoolFile.requests, []

    def requests(file: SpoolFile) -> Iterator[Spooled]:
        if file.path == bad.path:
            tries.append(file.wait_s)
            raise RuntimeError("a fault of ours")
        return original(file)

    monkeypatch.setattr(SpoolFile, "requests", requests)
    for file in (bad, good):
        file.append([frame(TOPIC, [event(file.path.stem)])], 1)
        file.close()
    spool = Spool(tmp_path, bytes_max=10_000, publisher=publisher)
    spool.start()

    async def run() -> None:
        sending = asyncio.create_task(spool.run())
        async with asyncio.timeout(10):
            while len(tries) < 4 or not publisher.stored(TOPIC):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert not sending.done()
        sending.cancel()

    asyncio.run(run())
    assert [one.id for one in publisher.stored(TOPIC)] == [good.path.stem]
    assert tries[:4] == [0, 0.01, 0.02, 0.04]
    spool.stop()


def test_a_frame_that_nobody_can_read_is_kept_aside_and_those_behind_it_are_sent(
    tmp_path: Path, publisher: FakePublisher
) -> None:
    packed = msgspec.msgpack.encode({"of": "a later gateway"})
    strange = struct.pack(">III", len(packed), 1, google_crc32c.value(packed)) + packed
    file = SpoolFile.made(tmp_path)
    file.append([strange, frame(TOPIC, [event("a")])], 2)
    file.close()
    spool = Spool(tmp_path, bytes_max=10_000, publisher=publisher)
    spool.start()
    assert [one.id for one in drain(spool, publisher, until=1)] == ["a"]
    assert [path.name for path in tmp_path.iterdir()] == [f"{file.path.name}.torn"]
