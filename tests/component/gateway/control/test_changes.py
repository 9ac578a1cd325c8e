"""No change is lost to a simultaneous one: ETags, conditions, and what a 412 says."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.control.changes.revision import changed_settings, etag_of
from gateway.settings import Settings
from shared.config.access import ApiKey, Tenant, new_text, secret_from
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

SHOP = Destination("orders", "shop", "https://1.1.1.1/in", is_paused=True)
KEY = ApiKey(
    "shop",
    (secret_from(new_text(kind="secret", key_id="shop", entropy=bytes(20)), signs=False),),
)
STREAM, DESTINATION, KEY_PATH, TENANT = (
    "/v1/streams/orders",
    "/v1/streams/orders/destinations/shop",
    "/v1/keys/shop",
    "/v1/tenants/acme",
)
# For each object: its path, a change, and the changed setting.
OBJECTS: list[tuple[str, dict[str, Any], str]] = [
    (STREAM, {"key_pointer": "/user"}, "key_pointer"),
    (DESTINATION, {"url": SHOP.url, "is_paused": True, "timeout_s": 3}, "timeout_s"),
    (TENANT, {"events_per_s": 7}, "events_per_s"),
]
ACTIONS: list[tuple[str, str]] = [
    (f"{DESTINATION}/resume", DESTINATION),
    (f"{KEY_PATH}/rotate", KEY_PATH),
    (f"{KEY_PATH}/retire", KEY_PATH),
]


@pytest.fixture
def config() -> FixedConfig:
    return FixedConfig(
        Configuration(
            streams={"orders": Stream("orders")},
            destinations={SHOP.id: SHOP},
            keys={KEY.id: KEY},
            tenants={"acme": Tenant("acme", bytes_per_s=5)},
        )
    )


@pytest.fixture
def gateway(config: FixedConfig) -> Iterator[RunningGateway]:
    with running_gateway(FakePublisher([]), config) as running:
        yield running


def refused(answer: httpx.Response) -> list[str]:
    """Return the settings that a 412 names; its ETag is that of the current object."""
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (412, "changed_meanwhile")
    assert answer.headers["etag"] == problem["etag"]
    changed: list[str] = problem["changed"]
    return changed


@pytest.mark.parametrize("path", [STREAM, DESTINATION, KEY_PATH, TENANT])
def test_what_is_shown_has_an_etag_that_stays_while_it_does(
    gateway: RunningGateway, path: str
) -> None:
    first, second = gateway.client.get(path), gateway.client.get(path)
    assert first.headers["etag"] == second.headers["etag"]
    assert first.headers["etag"].startswith('"')


@pytest.mark.parametrize(("path", "change", "setting"), OBJECTS)
def test_a_put_counts_only_for_the_object_it_was_made_from(
    gateway: RunningGateway, path: str, change: dict[str, Any], setting: str
) -> None:
    old = gateway.client.get(path).headers["etag"]
    done = gateway.client.put(path, json=change, headers={"if-match": old})
    assert done.status_code == 200
    new = done.headers["etag"]
    assert new == gateway.client.get(path).headers["etag"] != old
    late = gateway.client.put(path, json={**change, setting: None}, headers={"if-match": old})
    assert setting in refused(late)
    assert setting in late.json()["detail"]
    assert gateway.client.get(path).json()[setting] == change[setting]
    either = gateway.client.put(path, json=change, headers={"if-match": f"{old}, {new}"})
    assert either.status_code == 200
    assert gateway.client.put(path, json=change, headers={"if-match": "*"}).status_code == 200


@pytest.mark.parametrize(("path", "change", "setting"), OBJECTS)
def test_a_put_can_insist_on_being_the_first(
    gateway: RunningGateway, path: str, change: dict[str, Any], setting: str
) -> None:
    first = {"if-none-match": "*"}
    assert refused(gateway.client.put(path, json=change, headers=first)) == []
    if path == STREAM:
        gateway.client.delete(DESTINATION)
    assert gateway.client.delete(path).status_code == 204
    gone = gateway.client.put(path, json=change, headers={"if-match": "*"})
    assert (gone.status_code, gone.json()["code"]) == (412, "changed_meanwhile")
    made = gateway.client.put(path, json=change, headers=first)
    assert (made.status_code, made.json()[setting]) == (201, change[setting])


@pytest.mark.parametrize("path", [DESTINATION, KEY_PATH, TENANT, STREAM])
def test_a_delete_removes_only_what_its_caller_has_seen(
    gateway: RunningGateway, config: FixedConfig, path: str
) -> None:
    config.configuration = replace(
        config.configuration, destinations={SHOP.id: SHOP} if path == DESTINATION else {}
    )
    seen = gateway.client.get(path).headers["etag"]
    stale = {"if-match": '"AAAA"'}
    refused(gateway.client.delete(path, headers=stale))
    assert gateway.client.delete(path, headers={"if-match": seen}).status_code == 204
    assert gateway.client.get(path).status_code == 404


@pytest.mark.parametrize(("action", "path"), ACTIONS)
def test_an_action_changes_only_what_its_caller_has_seen(
    gateway: RunningGateway, action: str, path: str
) -> None:
    seen = gateway.client.get(path).headers["etag"]
    refused(gateway.client.post(action, headers={"if-match": '"AAAA"'}))
    done = gateway.client.post(action, headers={"if-match": seen})
    assert done.status_code == 200
    assert done.headers["etag"] == gateway.client.get(path).headers["etag"]


def test_a_resume_does_not_undo_a_put_made_meanwhile(gateway: RunningGateway) -> None:
    gateway.client.put(DESTINATION, json={"url": SHOP.url, "is_paused": True, "timeout_s": 3})
    resumed = gateway.client.post(f"{DESTINATION}/resume").json()
    assert (resumed["timeout_s"], resumed["is_paused"]) == (3, False)


def test_a_destination_that_is_reached_otherwise_begins_anew(gateway: RunningGateway) -> None:
    def resumed_at_ms(**settings: Any) -> int:
        body = {"url": SHOP.url, "is_paused": True, **settings}
        at_ms: int = gateway.client.put(DESTINATION, json=body).json()["resumed_at_ms"]
        return at_ms

    assert resumed_at_ms(timeout_s=3) == 0
    moved_ms = resumed_at_ms(url="https://1.1.1.1/mended")
    assert moved_ms > 1_700_000_000_000
    assert resumed_at_ms(url="https://1.1.1.1/mended", timeout_s=3) == moved_ms


def test_shards_are_for_good(gateway: RunningGateway) -> None:
    """If shards changed, two processes would send the same events for a while."""
    new = f"{DESTINATION}-sharded"
    assert gateway.client.put(new, json={"url": SHOP.url, "shards": 4}).json()["shards"] == 4
    answer = gateway.client.put(new, json={"url": SHOP.url, "timeout_s": 3})
    assert answer.json()["shards"] == 4, "an omitted setting must stay"
    answer = gateway.client.put(new, json={"url": SHOP.url, "shards": 1})
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["pointer"]) == (
        400,
        "bad_object",
        "/shards",
    )
    assert "it stays 4" in problem["detail"]


def test_what_a_rotation_has_changed_is_named_as_it_is_shown(gateway: RunningGateway) -> None:
    seen = gateway.client.get(KEY_PATH).headers["etag"]
    gateway.client.post(f"{KEY_PATH}/rotate")
    late = gateway.client.post(f"{KEY_PATH}/retire", headers={"if-match": seen})
    assert refused(late) == ["live_texts"]


def test_members_of_a_newer_hifi_stay_when_an_object_is_put(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    newer = json.dumps({**SHOP.to_fields(), "colour": "red"}).encode()
    config.configuration = config.configuration.apply(SHOP.config_key, newer)
    shown = gateway.client.get(DESTINATION)
    assert "colour" not in shown.json()
    answer = gateway.client.put(
        DESTINATION, json=shown.json(), headers={"if-match": shown.headers["etag"]}
    )
    assert answer.status_code == 200, answer.text
    gateway.client.post(f"{DESTINATION}/resume")
    assert config.configuration.destinations[SHOP.id].to_fields()["colour"] == "red"


def test_members_of_a_newer_hifi_stay_through_every_write(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    (secret,) = KEY.to_fields()["secrets"]
    for item, more in (
        (KEY, {"colour": "red", "secrets": [{**secret, "ends_at_ms": 17}]}),
        (Tenant("acme"), {"colour": "red"}),
        (Stream("orders"), {"colour": "red"}),
    ):
        newer = json.dumps({**item.to_fields(), **more}).encode()
        config.configuration = config.configuration.apply(item.config_key, newer)
    assert gateway.client.post(f"{KEY_PATH}/rotate").status_code == 200
    key = config.configuration.keys["shop"].to_fields()
    assert (key["colour"], key["secrets"][0]) == ("red", {**secret, "ends_at_ms": 17})
    assert "ends_at_ms" not in key["secrets"][1]
    assert gateway.client.post(f"{KEY_PATH}/retire").status_code == 200
    (left,) = config.configuration.keys["shop"].to_fields()["secrets"]
    assert "ends_at_ms" not in left
    for path, member in ((TENANT, "tenants"), (STREAM, "streams")):
        etag = gateway.client.get(path).headers["etag"]
        done = gateway.client.put(path, json={}, headers={"if-match": etag})
        assert (done.status_code, "colour" in done.text) == (200, False)
        name = path.rpartition("/")[2]
        assert getattr(config.configuration, member)[name].to_fields()["colour"] == "red"


def test_a_condition_tells_nothing_of_what_is_somebody_elses(config: FixedConfig) -> None:
    text = new_text(kind="secret", key_id="acme", entropy=bytes(20))
    admin = ApiKey(
        "acme", (secret_from(text, signs=False),), tenant="acme", scopes=frozenset({"admin"})
    )
    config.configuration = config.configuration.apply(admin.config_key, admin.to_json())
    headers = {"authorization": f"Bearer {text}", "if-match": '"AAAA"'}
    with running_gateway(FakePublisher([]), config, Settings(auth="keys")) as running:
        for path, status in ((STREAM, 409), (DESTINATION, 404), (KEY_PATH, 409), (TENANT, 403)):
            put = running.client.put(path, json={"url": SHOP.url}, headers=headers)
            assert put.status_code == status
            assert "etag" not in put.headers
            delete = running.client.delete(path, headers=headers)
            assert delete.status_code == (403 if path == TENANT else 404)
        for action in ("rotate", "retire"):
            post = running.client.post(f"{KEY_PATH}/{action}", headers=headers)
            assert (post.status_code, "etag" in post.headers) == (404, False)


def test_a_key_is_made_once_only(gateway: RunningGateway) -> None:
    assert refused(gateway.client.put(KEY_PATH, json={}, headers={"if-none-match": "*"})) == []
    assert gateway.client.put(KEY_PATH, json={}).json()["code"] == "key_in_use"


def test_of_twenty_changes_at_once_one_wins_each_round(config: FixedConfig) -> None:
    with (
        running_gateway(FakePublisher([]), config, Settings(auth="off")) as running,
        ThreadPoolExecutor(20) as pool,
    ):
        for _ in range(5):
            seen = running.client.get(TENANT).headers["etag"]

            def change(rate: int, seen: str = seen) -> int:
                headers = {"if-match": seen}
                return httpx.put(
                    running.url + TENANT,
                    json={"events_per_s": rate, "requests_per_s": rate},
                    headers=headers,
                ).status_code

            first = running.client.get(TENANT).json()["events_per_s"] or 0
            rates = range(int(first) + 1, int(first) + 21)
            statuses = dict(zip(rates, pool.map(change, rates), strict=True))
            assert sorted(statuses.values()) == [200] + [412] * 19
            (winner,) = (rate for rate, status in statuses.items() if status == 200)
            assert running.client.get(TENANT).json()["events_per_s"] == winner


rates = st.none() | st.integers(1, 5)
tenants = st.builds(Tenant, name=st.just("acme"), requests_per_s=rates, events_per_s=rates)


@given(tenants, tenants)
def test_a_tag_names_exactly_the_settings_that_differ(before: Tenant, now: Tenant) -> None:
    differing = {
        name for name, value in now.to_fields().items() if before.to_fields()[name] != value
    }
    assert set(changed_settings(etag_of(before), now)) == differing
    assert (etag_of(before) == etag_of(now)) == (before == now)


@pytest.mark.parametrize("tag", ["", '"', '"x"', 'W/"AAAA"', '"\u00fc"', "*", '"AAAA'])
def test_any_text_can_stand_where_a_tag_does(tag: str) -> None:
    assert set(changed_settings(tag, Tenant("acme", events_per_s=1))) <= {"name", "events_per_s"}
