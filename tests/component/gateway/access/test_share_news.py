"""Gateway processes tell each other how much of their quotas tenants want."""

import asyncio
from collections.abc import Callable
from itertools import count
from time import monotonic

import pytest

from gateway.fleet.share_news import QuotaNews
from gateway.publish.report import Fate
from gateway.settings import Settings
from shared.config.access import Tenant
from shared.event.topics import SHARES, stream_topic
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import config_with, running_gateway

ACME = Tenant("acme", events_per_s=100)


def news_of(publisher: FakePublisher, *, has_quotas: bool = True) -> QuotaNews:
    return QuotaNews(publisher, has_quotas=lambda: has_quotas)


_later_s = count(0, 10)


def left(news: QuotaNews) -> int:
    """Return the quota that a process has for a tenant after a long silence."""
    news.quotas.headers(ACME, now_s=next(_later_s))
    _, (_, shown) = news.quotas.headers(ACME, now_s=next(_later_s))
    return int(shown.split(b";")[1].removeprefix(b"r="))


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


def test_one_joins_and_leaves_and_the_other_has_what_it_does_not_want() -> None:
    async def scenario() -> None:
        publisher = FakePublisher([])
        one, other = news_of(publisher), news_of(publisher)
        with publisher.told.followed({SHARES: one.take}):
            await one.join()
            assert left(one) == 100
            with publisher.told.followed({SHARES: other.take}):
                await other.join()
                await asyncio.sleep(0)
                assert left(one) == left(other) == 50
                await other.leave()
                await asyncio.sleep(0)
        assert left(one) == 100

    asyncio.run(scenario())


def test_wants_are_told_at_once_and_again_and_again() -> None:
    async def scenario() -> None:
        publisher = FakePublisher([])
        one, other = news_of(publisher), news_of(publisher)
        with publisher.told.followed({SHARES: one.take}):
            running = asyncio.create_task(other.run())
            await until(lambda: left(one) == 50)
            now_s = monotonic()
            other.quotas.admit(ACME, now_s=now_s)
            other.quotas.use(ACME, events=1_000, byte_count=0, now_s=now_s)
            told = len(publisher.told.logs[SHARES])
            await until(lambda: left(one) == 2)
            await until(lambda: len(publisher.told.logs[SHARES]) > told + 2)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scenario())


def test_without_quotas_nothing_is_told() -> None:
    async def scenario() -> None:
        publisher = FakePublisher([])
        quiet, telling = news_of(publisher, has_quotas=False), news_of(publisher)
        tasks = [asyncio.create_task(news.run()) for news in (quiet, telling)]
        await until(lambda: len(publisher.told.logs[SHARES]) == 2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert len({record.key for record in publisher.told.logs[SHARES]}) == 1

    asyncio.run(scenario())


def test_without_news_of_ourselves_we_begin_as_if_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.fleet.share_news._JOIN_S", 0.01)

    async def scenario() -> None:
        publisher = FakePublisher([])
        publisher.told.fate = Fate.NOT_STORED
        news = news_of(publisher)
        await news.join()
        assert left(news) == 100

    asyncio.run(scenario())


def test_a_record_of_no_meaning_hides_nothing_but_itself() -> None:
    async def scenario() -> None:
        publisher = FakePublisher([])
        one, other = news_of(publisher), news_of(publisher)
        with publisher.told.followed({SHARES: one.take}):
            publisher.told.write(SHARES, b"nonsense")
            await other.join()
            await asyncio.sleep(0)
        assert left(one) == 50

    asyncio.run(scenario())


def test_a_request_without_a_quota_tells_nothing() -> None:
    publisher = FakePublisher([stream_topic("orders")])
    with running_gateway(publisher, config_with("orders"), Settings(auth="off")) as gateway:
        headers = {"content-type": "application/json"}
        path = "/v1/streams/orders/events"
        sent = gateway.client.post(path, content=b"[{}]", headers=headers)
    assert sent.status_code == 200
    assert "ratelimit" not in sent.headers
    assert not any(publisher.told.logs.values()), "no news of keys or shares may be written"
