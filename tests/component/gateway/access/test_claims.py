"""Claims of Idempotency-Keys when Kafka is slow, silent or far behind: only one may send."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import pytest

from gateway.answers import Answer
from gateway.fleet.claims import Claims, KeyClaim, Search
from gateway.intake.events import Event
from gateway.problems import Problem
from gateway.publish.report import Fate
from shared.event.record import RecordIn
from shared.event.topics import REQUESTS
from shared.runtime.setup_error import KafkaUnavailableError
from tests.support.gateway.fake_publisher import FakePublisher

TOPIC = "hifi.stream.orders"
EVENTS = [Event.of(id=name, key=None, value=b"{}", headers=()) for name in "ab"]
DONE = Answer(200, b"{}")


def claims_of(publisher: FakePublisher, *, deadline_s: float = 10.0) -> Claims:
    return Claims(publisher, bytes_max=10_000, deadline_s=deadline_s, search=publisher.find)


async def claimed(claims: Claims) -> KeyClaim:
    claim = await claims.begin("scope", [b"body"], tenant="acme")
    assert isinstance(claim, KeyClaim)
    return claim


def rows(publisher: FakePublisher) -> Sequence[RecordIn]:
    return publisher.told.logs[REQUESTS]


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)


def test_a_claim_that_is_not_shown_in_time_is_given_back() -> None:
    async def scenario() -> None:
        publisher = FakePublisher([TOPIC])
        claims = claims_of(publisher, deadline_s=0.05)
        with pytest.raises(Problem, match="did not return the claim in time") as caught:
            await claimed(claims)
        assert (caught.value.status, caught.value.code) == (503, "not_stored")
        await until(lambda: len(rows(publisher)) == 2)
        claims.take(rows(publisher))
        later = claims_of(publisher)
        with publisher.told.followed({REQUESTS: later.take}):
            assert (await claimed(later)).since_ms is None, "nothing was sent"

    asyncio.run(scenario())


def test_who_judges_for_longer_than_the_claim_holds_sends_nothing() -> None:
    async def scenario() -> None:
        publisher = FakePublisher([TOPIC])
        claims = claims_of(publisher)
        with publisher.told.followed({REQUESTS: claims.take}):
            claim = await claimed(claims)
            claim.until_s = 0.0
            with pytest.raises(Problem, match="too long to check"):
                await claims.publish(claim, TOPIC, EVENTS)
            assert not claim.is_sent
        assert publisher.stored(TOPIC) == []

    asyncio.run(scenario())


async def _hanging(*_: object, **__: object) -> dict[int, tuple[int, int]]:
    await asyncio.sleep(60)
    raise AssertionError("it is not waited for")


async def _failing(*_: object, **__: object) -> dict[int, tuple[int, int]]:
    raise KafkaUnavailableError("gone")


@pytest.mark.parametrize("search", [_hanging, _failing])
def test_what_cannot_be_looked_for_is_sent_again_under_its_ids(
    search: Search,
) -> None:
    async def scenario() -> None:
        publisher = FakePublisher([TOPIC])
        claims = Claims(publisher, bytes_max=10_000, deadline_s=2.0, search=search)
        with publisher.told.followed({REQUESTS: claims.take}):
            first = await claimed(claims)
            await claims.publish(first, TOPIC, EVENTS)
            await claims.end(first, None)
            second = await claimed(claims)
            assert second.since_ms is not None
            second.until_s += 60
            await claims.publish(second, TOPIC, EVENTS)
        assert sorted(event.id for event in publisher.stored(TOPIC)) == ["a", "a", "b", "b"]

    asyncio.run(scenario())


def test_reports_of_a_completed_request_cover_each_event_once() -> None:
    async def scenario() -> None:
        publisher = FakePublisher([TOPIC])
        claims = claims_of(publisher)
        publisher.fates["a"] = Fate.NOT_STORED
        with publisher.told.followed({REQUESTS: claims.take}):
            first = await claimed(claims)
            await claims.publish(first, TOPIC, EVENTS)
            await claims.end(first, Answer(207, b"", is_final=False))
            publisher.fates.clear()
            reports = await claims.publish(await claimed(claims), TOPIC, EVENTS)
        assert {report.fate for report in reports} == {Fate.STORED}
        assert _places(report.positions for report in reports) == [0, 1]
        assert _places(report.positions for report in reports if report.is_earlier) == [1]

    asyncio.run(scenario())


def _places(positions: Iterable[Sequence[int]]) -> list[int]:
    return sorted(place for each in positions for place in each)


def test_an_answer_does_not_wait_for_ever_for_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.fleet.claims._ENDED_S", 0.01)

    async def scenario() -> None:
        publisher = FakePublisher([TOPIC])
        claims = claims_of(publisher)
        with publisher.told.followed({REQUESTS: claims.take}):
            claim = await claimed(claims)
            stores = asyncio.Event()
            publish = publisher.publish

            async def slow(topic: str, events: Sequence[Event]) -> object:
                await stores.wait()
                return await publish(topic, events)

            monkeypatch.setattr(publisher, "publish", slow)
            await claims.end(claim, DONE)
            assert len(rows(publisher)) == 1
            stores.set()
            await until(lambda: len(rows(publisher)) == 2)

    asyncio.run(scenario())


def test_how_a_request_ended_is_told_until_kafka_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.fleet.claims._ENDED_S", 0.01)
    monkeypatch.setattr("gateway.fleet.claims._AGAIN_S", 0.001)

    async def scenario() -> None:
        publisher = FakePublisher([TOPIC])
        claims = claims_of(publisher)
        with publisher.told.followed({REQUESTS: claims.take}):
            claim = await claimed(claims)
            publisher.told.fate = Fate.NOT_STORED
            await claims.end(claim, DONE)
            publisher.told.fate = Fate.STORED
            await until(lambda: len(rows(publisher)) == 2)
            await asyncio.sleep(0)
            assert await claims.begin("scope", [b"body"], tenant="acme") == DONE

    asyncio.run(scenario())


def test_a_record_of_no_meaning_hides_nothing_but_itself() -> None:
    async def scenario() -> None:
        publisher = FakePublisher([TOPIC])
        nonsense = Event.of(id="", key=b"key", value=b"nonsense", headers=())
        await publisher.publish(REQUESTS, [nonsense])
        claims = claims_of(publisher)
        with publisher.told.followed({REQUESTS: claims.take}):
            assert (await claimed(claims)).since_ms is None

    asyncio.run(scenario())
