"""A key's last use: recorded by each gateway, reported to the others, and kept in Kafka."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway.fleet.key_uses import KeyUses
from gateway.settings import Settings
from shared.config.access import ApiKey, Secret, new_text, secret_from
from shared.config.configuration import Configuration, Stream
from shared.event.times import MINUTE_MS
from shared.event.topics import USES, stream_topic
from shared.runtime.clock import now_ms
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

TOPIC = stream_topic("orders")
TEXTS = {
    name: new_text(kind="secret", key_id=name, entropy=bytes([nth]) * 20)
    for nth, name in enumerate(("root", "shop", "idle"))
}
KEYS = {
    name: ApiKey(
        name,
        (secret_from(text, signs=False),),
        scopes=frozenset({"admin" if name == "root" else "write"}),
    )
    for name, text in TEXTS.items()
}
SHOP = KEYS["shop"].secrets[0]


@pytest.fixture
def publisher() -> FakePublisher:
    return FakePublisher([TOPIC])


@pytest.fixture
def uses(publisher: FakePublisher) -> KeyUses:
    return KeyUses(publisher)


@pytest.fixture
def gateway(publisher: FakePublisher, uses: KeyUses) -> Iterator[RunningGateway]:
    with served(publisher, uses) as running:
        yield running


def served(publisher: FakePublisher, uses: KeyUses) -> Any:
    known = Configuration(streams={"orders": Stream("orders")}, keys=KEYS)
    return running_gateway(publisher, FixedConfig(known), Settings(auth="keys"), uses=uses)


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {TEXTS[name]}", "content-type": "application/json"}


def post(client: httpx.Client, body: bytes = b"[{}]") -> int:
    path = "/v1/streams/orders/events"
    return client.post(path, content=body, headers=bearer("shop")).status_code


def key(gateway: RunningGateway, name: str) -> dict[str, Any]:
    shown: dict[str, Any] = gateway.client.get(f"/v1/keys/{name}", headers=bearer("root")).json()
    return shown


def test_a_use_is_seen_at_once_where_it_was(gateway: RunningGateway) -> None:
    assert key(gateway, "shop")["last_used_at_ms"] is None
    before_ms = now_ms()
    assert post(gateway.client) == 200
    assert before_ms <= key(gateway, "shop")["last_used_at_ms"] <= now_ms()
    listed = gateway.client.get("/v1/keys", headers=bearer("root")).json()["keys"]
    assert {each["id"]: bool(each["last_used_at_ms"]) for each in listed} == {
        "root": True,
        "shop": True,
        "idle": False,
    }
    # A request refused for its contents counts as a use; one with a wrong key does not.
    gateway.client.get("/v1/keys", headers={"authorization": f"Bearer {TEXTS['idle'][:-1]}0"})
    assert key(gateway, "idle")["last_used_at_ms"] is None
    gateway.client.get("/v1/keys", headers=bearer("idle"))
    assert key(gateway, "idle")["last_used_at_ms"]


def test_another_gateway_and_the_next_one_know_it_once_it_is_told(
    publisher: FakePublisher, uses: KeyUses, gateway: RunningGateway
) -> None:
    assert post(gateway.client) == 200
    used_ms = key(gateway, "shop")["last_used_at_ms"]
    with served(publisher, KeyUses(publisher)) as other:
        assert key(other, "shop")["last_used_at_ms"] is None
        asyncio.run(uses.tell())
        assert key(other, "shop")["last_used_at_ms"] == used_ms
    with served(publisher, KeyUses(publisher)) as restarted:
        assert key(restarted, "shop")["last_used_at_ms"] == used_ms


def test_no_text_of_a_key_is_told(
    publisher: FakePublisher, uses: KeyUses, gateway: RunningGateway
) -> None:
    assert post(gateway.client) == 200
    asyncio.run(uses.tell())
    for record in publisher.told.logs[USES]:
        assert len(record.key or b"") == 16
        assert record.value.isdigit()


def test_of_a_minute_it_is_told_once_by_whoever_is_first(publisher: FakePublisher) -> None:
    one, other = KeyUses(publisher), KeyUses(publisher)
    fingerprint = SHOP.fingerprint

    async def scenario() -> None:
        with publisher.told.followed({USES: one.take}), publisher.told.followed({USES: other.take}):
            at_ms = MINUTE_MS * 100
            for each, after_ms, told in (
                (one, 1_000, 1),
                (one, 2_000, 1),
                (other, 59_000, 1),
                (other, 61_000, 2),
                (one, 62_000, 2),
            ):
                each.here[fingerprint] = at_ms + after_ms
                # Uses without a key are counted here, too, but never published.
                each.here[""] = at_ms + after_ms
                await each.tell()
                await asyncio.sleep(0)
                assert len(publisher.told.logs[USES]) == told, after_ms

    asyncio.run(scenario())


def test_what_was_not_stored_is_told_again(publisher: FakePublisher, uses: KeyUses) -> None:
    async def scenario() -> None:
        with publisher.told.followed({USES: uses.take}):
            uses.here[SHOP.fingerprint] = now_ms()
            publisher.told.is_dying = True
            await uses.tell()
            publisher.told.is_dying = False
            await uses.tell()
            assert len(publisher.told.logs[USES]) == 1

    asyncio.run(scenario())


def test_neither_nonsense_nor_a_fast_clock_hides_a_use(
    publisher: FakePublisher, uses: KeyUses
) -> None:
    async def scenario() -> None:
        with publisher.told.followed({USES: uses.take}):
            publisher.told.write(USES, b"nonsense")
            fast = KeyUses(publisher)
            fast.here[SHOP.fingerprint] = now_ms() + 10**9
            await fast.tell()
            await asyncio.sleep(0)
        assert (uses.last_ms(SHOP) or 0) <= now_ms()
        assert uses.last_ms(Secret("f" * 64)) is None

    asyncio.run(scenario())


def test_a_rotation_tells_the_old_text_from_the_new(gateway: RunningGateway) -> None:
    rotated = gateway.client.post("/v1/keys/shop/rotate", headers=bearer("root")).json()
    assert rotated["texts_used_at_ms"] == [None, None]
    new = {"authorization": f"Bearer {rotated['key']}", "content-type": "application/json"}
    gateway.client.post("/v1/streams/orders/events", content=b"[{}]", headers=new)
    old, newest = key(gateway, "shop")["texts_used_at_ms"]
    assert (old, newest) == (None, key(gateway, "shop")["last_used_at_ms"])
    assert post(gateway.client) == 200
    assert key(gateway, "shop")["texts_used_at_ms"][0]
