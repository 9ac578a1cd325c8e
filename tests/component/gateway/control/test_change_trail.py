"""The change trail over real HTTP: which changes a caller sees, and how they are found."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway.settings import Settings
from shared.config.access import ApiKey
from shared.config.configuration import Configuration, Stream
from shared.runtime.secret_box import new_key
from tests.component.gateway.access.test_gateway_access import key, text_of
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

ADMIN = frozenset({"admin"})
KEYS: list[ApiKey] = [
    key("root", scopes=ADMIN),
    key("acme-admin", scopes=ADMIN, tenant="acme"),
    key("acme-reader", scopes=frozenset({"read"}), tenant="acme"),
    key("acme-writer", tenant="acme"),
    key("acme-narrow", scopes=ADMIN, tenant="acme", streams=frozenset({"orders"})),
    key("zoo-admin", scopes=ADMIN, tenant="zoo"),
]
STREAMS = {"orders": Stream("orders", tenant="acme")}
SHOP = "streams/orders/destinations/shop"


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningGateway]:
    monkeypatch.setenv("HIFI_SECRET_KEYS", new_key())
    known = Configuration(streams=STREAMS, keys={each.id: each for each in KEYS})
    settings = Settings(auth="keys")
    with running_gateway(FakePublisher([]), FixedConfig(known), settings) as running:
        yield running


def send(
    gateway: RunningGateway, key_id: str, method: str, path: str, **more: Any
) -> httpx.Response:
    headers = {"authorization": f"Bearer {text_of(key_id)}"}
    return gateway.client.request(method, f"/v1/{path}", headers=headers, **more)


def done(gateway: RunningGateway, key_id: str, method: str, path: str, **fields: Any) -> None:
    answer = send(gateway, key_id, method, path, json=fields or None)
    assert answer.is_success, answer.text


def told(gateway: RunningGateway, key_id: str, **query: str) -> list[dict[str, Any]]:
    answer = send(gateway, key_id, "GET", "changes", params=query)
    assert answer.status_code == 200, answer.text
    changes: list[dict[str, Any]] = answer.json()["changes"]
    return changes


def deeds(gateway: RunningGateway, key_id: str, **query: str) -> list[tuple[str, str, str]]:
    changes = told(gateway, key_id, **query)
    return [(each["did"], each["kind"], each["name"]) for each in changes]


@pytest.fixture
def changed(gateway: RunningGateway) -> RunningGateway:
    """Return a gateway in which much was changed."""
    url = "https://1.1.1.1/T0/s3cret"
    auth = {"kind": "bearer", "token": "s3cret"}
    done(gateway, "acme-admin", "PUT", SHOP, url=url, auth=auth)
    done(gateway, "acme-narrow", "PUT", SHOP, url=url, rate_per_s=5)
    done(gateway, "acme-narrow", "POST", f"{SHOP}/resume")
    done(gateway, "zoo-admin", "PUT", "streams/animals")
    done(gateway, "root", "PUT", "tenants/acme", events_per_s=5)
    done(gateway, "acme-admin", "POST", "keys/acme-writer/rotate")
    done(gateway, "acme-admin", "DELETE", SHOP)
    return gateway


def test_each_change_is_told_to_whose_it_is_the_newest_first(changed: RunningGateway) -> None:
    acme = [
        ("deleted", "destination", "orders/shop"),
        ("rotated", "key", "acme-writer"),
        ("changed", "tenant", "acme"),
        ("tried now", "destination", "orders/shop"),
        ("changed", "destination", "orders/shop"),
        ("created", "destination", "orders/shop"),
    ]
    acme[2] = ("created", "tenant", "acme")
    assert deeds(changed, "acme-reader") == acme
    assert deeds(changed, "zoo-admin") == [("created", "stream", "animals")]
    assert deeds(changed, "root") == [*acme[:3], ("created", "stream", "animals"), *acme[3:]]
    assert deeds(changed, "root", tenant="zoo") == [("created", "stream", "animals")]
    assert deeds(changed, "acme-narrow") == [acme[0], *acme[3:]]
    assert "s3cret" not in send(changed, "root", "GET", "changes").text


def test_a_change_says_who_what_and_which_version(changed: RunningGateway) -> None:
    put = told(changed, "acme-admin", did="changed", kind="destination")[0]
    assert put["by"] == {"tenant": "acme", "kind": "key", "name": "acme-narrow"}
    assert put["settings"] == [{"name": "rate_per_s", "before": None, "after": 5}]
    assert (put["number"], put["left_out"]) == (2, 0)
    later = told(changed, "acme-admin", did="tried now")[0]
    assert later["before"] == put["after"] != put["before"]
    # The name of another tenant's key is not shown; the operator sees it.
    quota = told(changed, "acme-admin", kind="tenant")[0]
    assert quota["by"] == {"tenant": "default", "kind": "operator", "name": ""}
    assert told(changed, "acme-admin", by="root") == []
    assert told(changed, "root", by="root")[0]["by"]["name"] == "root"


def test_changes_are_found_by_their_object_and_their_author(changed: RunningGateway) -> None:
    assert len(told(changed, "acme-admin", kind="destination", name="orders/shop")) == 4
    assert told(changed, "acme-admin", kind="destination", name="orders/sho") == []
    assert len(told(changed, "acme-admin", contains="sho")) == 4
    assert len(told(changed, "acme-admin", by="acme-narrow")) == 2
    first = told(changed, "acme-admin")[0]["at_ms"]
    assert told(changed, "acme-admin", to="2026-01-01T00:00:00Z") == []
    assert told(changed, "acme-admin", **{"from": "2026-01-01T00:00:00Z"})[0]["at_ms"] == first


def test_changes_come_in_pages(changed: RunningGateway) -> None:
    numbers: list[int] = []
    query = {"limit": "4"}
    for _ in range(2):
        answer = send(changed, "acme-admin", "GET", "changes", params=query).json()
        numbers += [each["number"] for each in answer["changes"]]
        query["before"] = answer["next"] or ""
    assert (numbers, query["before"]) == ([6, 5, 4, 3, 2, 1], "")


def test_who_may_not_look_is_refused(changed: RunningGateway) -> None:
    for key_id, query, code in [
        ("acme-writer", {}, "scope_missing"),
        ("acme-admin", {"tenant": "zoo"}, "scope_missing"),
        ("acme-admin", {"name": "orders"}, "bad_query"),
        ("acme-admin", {"kind": "thing"}, "bad_query"),
        ("acme-admin", {"limit": "1001"}, "bad_query"),
        ("acme-admin", {"before": "-1"}, "bad_query"),
    ]:
        answer = send(changed, key_id, "GET", "changes", params=query)
        assert answer.json()["code"] == code, (key_id, query)


def test_a_redrive_is_told_before_it_sends_and_a_dry_run_is_not(gateway: RunningGateway) -> None:
    path = "streams/orders/dead-letters:redrive"
    done(gateway, "acme-admin", "POST", path, dry_run=True)
    assert told(gateway, "acme-admin") == []
    done(gateway, "acme-admin", "POST", path, reason="status_400", limit=1)
    (redrive,) = told(gateway, "acme-admin")
    assert (redrive["did"], redrive["name"], redrive["after"]) == ("redriven", "orders", None)
    assert [each["name"] for each in redrive["settings"]] == ["reason", "limit", "redrive_id"]


def test_without_keys_nobody_is_named() -> None:
    with running_gateway(FakePublisher([]), FixedConfig()) as open_to_all:
        open_to_all.client.put("/v1/streams/animals", json={}).raise_for_status()
        (made,) = open_to_all.client.get("/v1/changes").json()["changes"]
    assert made["by"] == {"tenant": "default", "kind": "anybody", "name": ""}
