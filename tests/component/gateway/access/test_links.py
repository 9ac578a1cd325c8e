"""Links: the keys that may make them, the access that they give, and their end."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway.settings import Settings
from shared.config.access import ENTROPY_BYTES, SCOPES, ApiKey, new_text, secret_from
from shared.config.configuration import Configuration, Stream
from shared.event.topics import stream_topic
from shared.runtime.clock import now_ms
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

OPERATOR = new_text(kind="secret", key_id="operator", entropy=b"o" * ENTROPY_BYTES)
STREAMS = {
    "orders": Stream("orders", tenant="acme"),
    "hits": Stream("hits", tenant="acme"),
    "games": Stream("games", tenant="studio"),
}
HOUR_MS, DAY_S = 3_600_000, 86_400


@pytest.fixture
def config() -> FixedConfig:
    return FixedConfig(Configuration(streams=STREAMS))


@pytest.fixture
def gateway(config: FixedConfig) -> Iterator[RunningGateway]:
    publisher = FakePublisher([stream_topic(name) for name in STREAMS])
    settings = Settings(auth="keys", operator_key=OPERATOR)
    with running_gateway(publisher, config, settings) as running:
        yield running


def ask(
    gateway: RunningGateway, method: str, path: str, credential: str, **body: Any
) -> httpx.Response:
    headers = {"authorization": f"Bearer {credential}"}
    return gateway.client.request(method, f"/v1/{path}", headers=headers, json=body or None)


def key(gateway: RunningGateway, name: str, **fields: Any) -> str:
    asked = {"scopes": ["admin"], "tenant": "acme", **fields}
    made = ask(gateway, "PUT", f"keys/{name}", OPERATOR, **asked)
    assert made.status_code == 201, made.text
    text: str = made.json()["key"]
    return text


def link(gateway: RunningGateway, maker: str, **asked: Any) -> str:
    made = ask(gateway, "POST", "links", maker, **asked)
    assert made.status_code == 201, made.text
    text: str = made.json()["link"]
    return text


def names(gateway: RunningGateway, credential: str) -> list[str]:
    listed: list[str] = ask(gateway, "GET", "streams", credential).json()["streams"]
    return listed


def told(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_a_link_is_for_an_hour_and_all_of_ones_tenant_unless_it_says_otherwise(
    gateway: RunningGateway,
) -> None:
    maker, before_ms = key(gateway, "portal"), now_ms()
    made = ask(gateway, "POST", "links", maker).json()
    assert made["path"] == f"/embed/{made['link']}/"
    assert (made["tenant"], made["key"], made["streams"], made["origins"]) == (
        *("acme", "portal"),
        *([], []),
    )
    assert 0 <= made["expires_at_ms"] - before_ms - HOUR_MS < 60_000
    assert names(gateway, made["link"]) == ["hits", "orders"]
    some = {"streams": ["orders"], "origins": ["https://a.example"], "lasts_s": DAY_S}
    made = ask(gateway, "POST", "links", maker, **some).json()
    assert made["origins"] == ["https://a.example"]
    assert 0 <= made["expires_at_ms"] - before_ms - 24 * HOUR_MS < 60_000
    assert names(gateway, made["link"]) == ["orders"]


def test_who_has_a_link_changes_and_sends_nothing_and_sees_nothing_else(
    gateway: RunningGateway,
) -> None:
    shown = link(gateway, key(gateway, "portal"), streams=["orders"])
    for method, path in (
        *(("PUT", "streams/new"), ("DELETE", "streams/orders"), ("POST", "links")),
        *(("GET", "keys"), ("PUT", "keys/mine"), ("POST", "streams/orders/events")),
        ("PUT", "streams/orders/destinations/mine"),
    ):
        assert told(ask(gateway, method, path, shown)) == (403, "scope_missing"), path
    # Channels are hidden, too: they contain people's addresses.
    for each in (shown, link(gateway, key(gateway, "all"))):
        assert ask(gateway, "GET", "channels", each).json() == {"channels": []}
        assert told(ask(gateway, "GET", "channels/ops", each)) == (403, "scope_missing")
    assert told(ask(gateway, "GET", "streams/hits", shown)) == (403, "stream_forbidden")
    assert told(ask(gateway, "GET", "streams/games", shown)) == (404, "unknown_stream")


def test_a_key_makes_links_for_what_it_is_for(gateway: RunningGateway) -> None:
    reader = key(gateway, "reader", scopes=["read", "write"])
    narrow = key(gateway, "narrow", streams=["orders"])
    ending = key(gateway, "ending", expires_at_ms=now_ms() + 60_000)
    everywhere = key(gateway, "everywhere", tenant="default")
    for maker, asked in (
        (reader, {}),
        (key(gateway, "portal"), {"tenant": "studio"}),
        (narrow, {"streams": []}),
        (narrow, {"streams": ["hits"]}),
        # The operator's key is not in the configuration, so gateways could not check its links.
        (OPERATOR, {}),
    ):
        assert told(ask(gateway, "POST", "links", maker, **asked)) == (403, "scope_missing")
    assert names(gateway, link(gateway, narrow)) == ["orders"]
    assert names(gateway, link(gateway, everywhere, tenant="studio")) == ["games"]
    made = ask(gateway, "POST", "links", ending).json()
    shown = ask(gateway, "GET", "keys/ending", OPERATOR).json()
    assert made["expires_at_ms"] == shown["expires_at_ms"]


@pytest.mark.parametrize(
    ("asked", "pointer"),
    [
        *(({"lasts_s": wrong}, "/lasts_s") for wrong in (0, -1, DAY_S + 1, "60", True, None)),
        ({"origins": ["https://a.example/path"]}, "/origins/0"),
        ({"origins": ["*"]}, "/origins/0"),
        ({"streams": "orders"}, "/streams"),
        ({"scopes": ["admin"]}, "/scopes"),
        ({"key": "other"}, "/key"),
        ({"streams": [f"s{number:099}" for number in range(20)]}, "/streams"),
        ({"streams": ["orders", "games"]}, "/streams"),
    ],
)
def test_what_is_wrong_is_named(gateway: RunningGateway, asked: Any, pointer: str) -> None:
    answer = ask(gateway, "POST", "links", key(gateway, "portal"), **asked)
    assert (answer.status_code, answer.json()["pointer"]) in {(400, pointer), (404, pointer)}


def test_a_link_ends_with_the_text_that_made_it(gateway: RunningGateway) -> None:
    old = key(gateway, "portal")
    shown = link(gateway, old)
    new = ask(gateway, "POST", "keys/portal/rotate", OPERATOR).json()["key"]
    assert names(gateway, shown) == names(gateway, link(gateway, new)) == ["hits", "orders"]
    ask(gateway, "POST", "keys/portal/retire", OPERATOR)
    assert told(ask(gateway, "GET", "streams", shown)) == (401, "unauthenticated")
    shown = link(gateway, new)
    ask(gateway, "DELETE", "keys/portal", OPERATOR)
    answer = ask(gateway, "GET", "streams", shown)
    assert told(answer) == (401, "unauthenticated")
    assert "is gone" in answer.json()["detail"]


def test_a_key_from_before_there_were_links_is_rotated_first(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    text = new_text(kind="secret", key_id="old", entropy=b"x" * ENTROPY_BYTES)
    old = ApiKey("old", (secret_from(text, signs=False),), scopes=SCOPES)
    config.configuration = config.configuration.apply(old.config_key, old.to_json())
    answer = ask(gateway, "POST", "links", text)
    assert "rotate it first" in answer.json()["detail"]
    rotated = ask(gateway, "POST", "keys/old/rotate", OPERATOR).json()["key"]
    assert link(gateway, rotated)


def test_what_links_are_checked_with_is_shown_to_nobody_and_is_no_change(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    key(gateway, "portal")
    kept = config.configuration.keys["portal"].secrets[0].link_key
    assert kept
    key(gateway, "sender", scopes=["write"])
    assert not config.configuration.keys["sender"].secrets[0].link_key
    for path in ("keys", "keys/portal"):
        assert kept not in ask(gateway, "GET", path, OPERATOR).text
    assert kept not in str(gateway.store.recorded)


def test_a_link_shows_no_more_where_nobody_is_asked_for_a_key() -> None:
    publisher = FakePublisher([stream_topic(name) for name in STREAMS])
    config = FixedConfig(Configuration(streams=STREAMS | {"own": Stream("own")}))
    with running_gateway(publisher, config, Settings(auth="off")) as gateway:
        assert told(gateway.client.post("/v1/links")) == (403, "scope_missing")
        maker = gateway.client.put("/v1/keys/portal", json={"scopes": ["admin"], "tenant": "acme"})
        shown = link(gateway, maker.json()["key"], streams=["orders"])
        assert names(gateway, shown) == ["orders"]
        assert told(ask(gateway, "PUT", "streams/new", shown)) == (403, "scope_missing")
        assert told(ask(gateway, "GET", "streams", f"{shown}x")) == (401, "unauthenticated")
