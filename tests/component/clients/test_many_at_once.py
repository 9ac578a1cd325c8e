"""A sender that gets many events in one call takes all, each with its own fate, or none."""

import asyncio
import json
from typing import Any

import pytest

from hifi_client import AsyncSender, Fate, FullError, NotAnEventError, Sender, SentMany
from shared.event.topics import stream_topic
from tests.support.gateway.client_gateways import STREAM, WAIT_S, stored
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import RunningGateway


@pytest.mark.parametrize("is_async", [False, True])
def test_many_at_once_have_their_own_fates_in_their_order(
    publisher: FakePublisher, gateway: RunningGateway, *, is_async: bool
) -> None:
    events = [{"id": f"{nth:04}", "price": "x" if nth == 900 else nth} for nth in range(1_800)]
    given = [json.dumps(one) if nth % 2 else one for nth, one in enumerate(events)]
    options: dict[str, Any] = {"parallel_max": 1, "memory_bytes_max": 100_000}

    async def send() -> SentMany:
        async with AsyncSender(gateway.url, "orders", **options) as hifi:
            return await hifi.send_many(given, key="k")

    if is_async:
        sent = asyncio.run(send())
    else:
        with Sender(gateway.url, "orders", **options) as hifi:
            sent = hifi.send_many(given, key="k")
    outcomes = sent.wait(WAIT_S)
    assert [one.id for one in outcomes] == [str(one["id"]) for one in events]
    assert [one.id for one in outcomes if one.fate is not Fate.ACCEPTED] == ["0900"]
    assert [sent[900].wait(0).code, sent[-1].id] == ["schema_violation", "1799"]
    assert [one.id for one in sent[899:901]] == ["0899", "0900"]
    with pytest.raises(IndexError):
        sent[1_800]
    kept = [json.loads(event.value) for event in publisher.stored(stream_topic(STREAM))]
    assert [one["id"] for one in kept] == [one["id"] for one in events if one["id"] != "0900"]
    assert {one["partitionkey"] for one in kept} == {"k"}


def test_those_that_go_in_one_piece_have_their_own_fates_as_well(
    publisher: FakePublisher, gateway: RunningGateway
) -> None:
    """The answer rejects two of 300 events; the fates must be in the order of the events."""
    given = [{"id": f"{nth:03}", "price": "x" if nth in {7, 298} else nth} for nth in range(300)]
    with Sender(gateway.url, "orders", linger_s=600) as hifi:
        first = hifi.send_many(given[:299])
        alone = hifi.send(given[299])
        assert hifi.flush(WAIT_S)
    assert [one.id for one in first.wait(0) if one.fate is Fate.REJECTED] == ["007", "298"]
    assert {one.fate for one in first.wait(0)} == {Fate.ACCEPTED, Fate.REJECTED}
    assert alone.wait(0).fate is Fate.ACCEPTED
    assert stored(publisher) == [str(one["id"]) for one in given if one["price"] != "x"]
    assert gateway.sample("hifi_gateway_requests_total", route="events", status="207") == 1


def test_many_at_once_are_none_if_one_is_no_event(
    publisher: FakePublisher, gateway: RunningGateway
) -> None:
    with Sender(gateway.url, "orders") as hifi:
        for wrong in ({"id": 5}, {"id": "a", "of": object()}, {"id": "a", "x": "x" * 1_000_000}):
            with pytest.raises(NotAnEventError):
                hifi.send_many([{"n": 1}, wrong])
        assert hifi.flush(WAIT_S)
        assert hifi.send_many([]).wait(0) == []
    assert stored(publisher) == []


@pytest.mark.parametrize("is_async", [False, True])
def test_those_of_many_that_full_memory_took_are_told(
    publisher: FakePublisher, gateway: RunningGateway, *, is_async: bool
) -> None:
    options: dict[str, Any] = {"memory_bytes_max": 1_000, "when_full": "raise", "linger_s": 600}
    events = [{"id": f"{nth}", "text": "x" * 200} for nth in range(10)]

    async def send() -> FullError:
        async with AsyncSender(gateway.url, "orders", **options) as hifi:
            with pytest.raises(FullError) as full:
                await hifi.send_many(events)
            return full.value

    if is_async:
        error = asyncio.run(send())
    else:
        with Sender(gateway.url, "orders", **options) as hifi:
            with pytest.raises(FullError) as full:
                hifi.send_many(events)
            error = full.value
    assert [one.wait(WAIT_S).id for one in error.sent] == ["0", "1", "2"]
    assert stored(publisher) == ["0", "1", "2"]
