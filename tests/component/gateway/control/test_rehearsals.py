"""A PUT with `"dry_run": true` is checked like any other, and changes nothing."""

from collections.abc import Iterator
from typing import Any

import pytest

from gateway.settings import Settings
from shared.config.configuration import Configuration, Stream
from shared.config.credentials import secrets_of
from shared.runtime.secret_box import new_key
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

TOKEN = {"kind": "bearer", "token": "hunter2"}
SHOP = "/v1/streams/orders/destinations/shop"
# For each kind: a path, a valid object and an invalid one.
OBJECTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("/v1/streams/bills", {"partition_count": 3}, {"partition_count": 0}),
    ("/v1/streams/orders", {"key_pointer": "/user"}, {"partition_count": 2}),
    ("/v1/tables/prices", {"row_bytes_max": 9}, {"row_bytes_max": 0}),
    ("/v1/tenants/acme", {"events_per_s": 5}, {"events_per_s": -1}),
    (SHOP, {"url": "https://1.1.1.1/", "auth": TOKEN}, {"url": "http://10.0.0.1/"}),
    (
        "/v1/pipelines/sales",
        {"from": {"stream": "orders"}, "schema": "a STRING", "to": [{"stream": "eu"}]},
        {"from": {"stream": "nowhere"}, "to": [{"stream": "orders"}]},
    ),
]


@pytest.fixture
def config() -> FixedConfig:
    return FixedConfig(Configuration(streams={name: Stream(name) for name in ("orders", "eu")}))


@pytest.fixture
def gateway(config: FixedConfig) -> Iterator[RunningGateway]:
    settings = Settings.model_validate({"auth": "off", "HIFI_SECRET_KEYS": new_key()})
    with running_gateway(FakePublisher([]), config, settings) as running:
        running.store.topics["orders"] = config.configuration.streams["orders"].partition_count
        yield running


@pytest.mark.parametrize(("path", "right", "wrong"), OBJECTS)
def test_it_is_judged_answered_and_not_done(
    gateway: RunningGateway,
    config: FixedConfig,
    path: str,
    right: dict[str, Any],
    wrong: dict[str, Any],
) -> None:
    before, topics = config.configuration, dict(gateway.store.topics)
    tried = gateway.client.put(path, json=right | {"dry_run": True})
    refused = gateway.client.put(path, json=wrong | {"dry_run": True})
    assert refused.status_code in {400, 404, 422}
    assert (config.configuration, gateway.store.topics) == (before, topics)
    assert gateway.client.put(path, json=wrong).json()["code"] == refused.json()["code"]
    # The real request gets the same answer as the dry run.
    done = gateway.client.put(path, json=right | {"dry_run": False})
    assert (tried.status_code, [*tried.json()]) == (done.status_code, [*done.json()])
    assert config.configuration != before


def test_whoever_rehearses_learns_nothing_of_a_secret(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    body = {"url": "https://1.1.1.1/", "auth": TOKEN}
    kept = gateway.client.put(SHOP, json=body).json()["auth"]
    guesses = [TOKEN, TOKEN | {"token": "hunter3"}]
    for auth in guesses:
        tried = gateway.client.put(SHOP, json=body | {"auth": auth, "dry_run": True})
        assert tried.json()["auth"] != kept
    assert gateway.client.get(SHOP).json()["auth"] == kept
    # The same PUT again changes nothing: the seal stays, and nothing restarts.
    sealed = dict(secrets_of(config.configuration.destinations["orders/shop"].to_fields()))
    again = gateway.client.put(SHOP, json=body).json()
    assert (again["auth"], again["resumed_at_ms"]) == (kept, 0)
    assert dict(secrets_of(config.configuration.destinations["orders/shop"].to_fields())) == sealed
    assert gateway.client.put(SHOP, json=body | {"auth": guesses[1]}).json()["auth"] != kept


def test_a_rehearsal_is_asked_for_by_true_and_by_nothing_else(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    before = config.configuration
    refused = gateway.client.put("/v1/streams/bills", json={"dry_run": 1})
    assert (refused.status_code, refused.json()["pointer"]) == (400, "/dry_run")
    # Making a key shows a new text, so a dry run makes no sense.
    refused = gateway.client.put("/v1/keys/shop", json={"scopes": ["write"], "dry_run": True})
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_object")
    assert config.configuration == before
