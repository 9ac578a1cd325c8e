"""Each tenant may have a limited number of streams, partitions, destinations and keys."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from gateway.settings import Settings
from shared.config.access import SCOPES, ApiKey, new_text, secret_from
from shared.config.configuration import Configuration, Stream
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

URL = {"url": "https://1.1.1.1/in"}
TEXTS = {
    tenant: new_text(kind="secret", key_id=tenant, entropy=bytes(20))
    for tenant in ("acme", "default")
}
KEYS = {
    tenant: ApiKey(tenant, (secret_from(text, signs=False),), tenant=tenant, scopes=SCOPES)
    for tenant, text in TEXTS.items()
}


@pytest.fixture
def gateway() -> Iterator[RunningGateway]:
    theirs = {f"t{n}": Stream(f"t{n}", partition_count=100) for n in range(3)}
    config = FixedConfig(Configuration(keys=KEYS, streams=theirs))
    settings = Settings(
        auth="keys",
        tenant_streams_max=2,
        tenant_partitions_max=8,
        tenant_destinations_max=2,
        tenant_keys_max=3,
    )
    with running_gateway(FakePublisher([]), config, settings) as running:
        yield running


def put(
    gateway: RunningGateway, path: str, who: str = "acme", **body: Any
) -> tuple[int, dict[str, Any]]:
    headers = {"authorization": f"Bearer {TEXTS[who]}"}
    answer = gateway.client.put(f"/v1/{path}", json=body, headers=headers)
    return answer.status_code, answer.json()


def delete(gateway: RunningGateway, path: str) -> None:
    headers = {"authorization": f"Bearer {TEXTS['acme']}"}
    assert gateway.client.delete(f"/v1/{path}", headers=headers).status_code == 204


def refused(answer: tuple[int, dict[str, Any]], bound: str, used: int, most: int) -> None:
    status, problem = answer
    assert (status, problem["code"]) == (409, "bound_reached")
    assert (problem["bound"], problem["used"], problem["max"]) == (bound, used, most)
    assert f"PUT /v1/tenants/acme with {bound}_max" in problem["detail"]


def test_streams_and_their_partitions_are_bounded_those_that_were_removed_included(
    gateway: RunningGateway,
) -> None:
    assert put(gateway, "streams/a", partition_count=4)[0] == 201
    refused(put(gateway, "streams/b", partition_count=5), "partitions", 4, 8)
    assert put(gateway, "streams/b", partition_count=3)[0] == 201
    refused(put(gateway, "streams/c", partition_count=1), "streams", 2, 2)
    refused(put(gateway, "streams/a", partition_count=6), "partitions", 7, 8)
    assert put(gateway, "streams/a", partition_count=5)[0] == 200
    # Topics of removed streams stay and count; recreating the stream adds nothing.
    delete(gateway, "streams/b")
    refused(put(gateway, "streams/c", partition_count=1), "streams", 2, 2)
    assert put(gateway, "streams/b")[0] == 201
    # A later, lower bound removes nothing.
    assert put(gateway, "tenants/acme", "default", streams_max=1, partitions_max=1)[0] == 201
    assert put(gateway, "streams/a", partition_count=5, key_pointer="/id")[0] == 200
    assert put(gateway, "tenants/acme", "default", streams_max=3, partitions_max=9)[0] == 200
    assert put(gateway, "streams/c", partition_count=1)[0] == 201


def test_destinations_and_keys_are_bounded(gateway: RunningGateway) -> None:
    assert put(gateway, "streams/a", partition_count=1)[0] == 201
    for name in ("x", "y"):
        assert put(gateway, f"streams/a/destinations/{name}", **URL)[0] == 201
    refused(put(gateway, "streams/a/destinations/z", **URL), "destinations", 2, 2)
    assert put(gateway, "streams/a/destinations/x", **URL, timeout_s=3)[0] == 200
    delete(gateway, "streams/a/destinations/x")
    refused(put(gateway, "streams/a/destinations/z", **URL), "destinations", 2, 2)
    assert put(gateway, "streams/a/destinations/x", **URL)[0] == 201
    assert put(gateway, "keys/k1")[0] == 201
    assert put(gateway, "keys/k2")[0] == 201
    refused(put(gateway, "keys/k3"), "keys", 3, 3)
    # A key counts for the tenant that owns it, not for the tenant that creates it.
    refused(put(gateway, "keys/k3", "default", tenant="acme"), "keys", 3, 3)
    assert put(gateway, "keys/k3", "default")[0] == 201
    delete(gateway, "keys/k1")
    assert put(gateway, "keys/k4")[0] == 201


def test_what_is_used_is_shown_with_its_bound(gateway: RunningGateway) -> None:
    assert put(gateway, "streams/a", partition_count=3)[0] == 201
    headers = {"authorization": f"Bearer {TEXTS['acme']}"}
    assert gateway.client.get("/v1/limits", headers=headers).json()["bounds"] == {
        "streams": {"used": 1, "max": 2},
        "partitions": {"used": 3, "max": 8},
        "destinations": {"used": 0, "max": 2},
        "pipelines": {"used": 0, "max": 100},
        "tables": {"used": 0, "max": 100},
        "table_bytes": {"used": 0, "max": 4_294_967_296},
        "keys": {"used": 1, "max": 3},
        "channels": {"used": 0, "max": 20},
    }


def test_of_many_at_once_no_more_than_the_bound_are_made(gateway: RunningGateway) -> None:
    def make(number: int) -> int:
        headers = {"authorization": f"Bearer {TEXTS['acme']}"}
        body = {"partition_count": 1}
        url = f"{gateway.url}/v1/streams/s{number}"
        return httpx.put(url, json=body, headers=headers, timeout=20).status_code

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(make, range(8))) == [201] * 2 + [409] * 6
