"""Admin keys for some streams, or for a limited time: what they see, and which keys they end."""

from collections.abc import Iterator

import pytest

from gateway.settings import Settings
from shared.config.configuration import Configuration
from shared.event.topics import stream_topic
from tests.component.gateway.access.test_gateway_access import KEYS, STREAMS, bearer, code, post
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway


@pytest.fixture
def gateway() -> Iterator[RunningGateway]:
    config = FixedConfig(Configuration(streams=STREAMS, keys={found.id: found for found in KEYS}))
    publisher = FakePublisher([stream_topic(name) for name in STREAMS])
    with running_gateway(publisher, config, Settings(auth="keys")) as running:
        yield running


def test_a_key_sees_and_ends_no_key_that_is_good_for_more(gateway: RunningGateway) -> None:
    narrow, ending = bearer("narrow-admin"), bearer("ending-admin")
    client = gateway.client
    assert client.put("/v1/tenants/acme", headers=bearer("admin"), json={}).status_code == 201
    # A key for a stream of the default tenant has no operator's rights over other tenants.
    for method, path in (
        ("GET", "/v1/keys/metered"),
        ("DELETE", "/v1/keys/metered"),
        ("POST", "/v1/keys/metered/retire"),
        ("POST", "/v1/keys/metered/rotate"),
        ("GET", "/v1/tenants/acme"),
    ):
        assert client.request(method, path, headers=narrow).status_code == 404, path
    # Such keys cannot end more powerful keys of their own tenant, either.
    for headers in (narrow, ending):
        for method, path in (("DELETE", "/v1/keys/writer"), ("POST", "/v1/keys/writer/retire")):
            refused = client.request(method, path, headers=headers)
            assert code(refused) == (403, "scope_missing"), path
    assert client.get("/v1/keys/writer", headers=narrow).status_code == 404
    listed = client.get("/v1/keys", headers=narrow).json()["keys"]
    assert {tuple(found["streams"]) for found in listed} == {("orders",)}
    assert {"narrow-admin", "web"} <= {found["id"] for found in listed}
    assert post(gateway, bearer("writer")).status_code == 200
    least = {"streams": ["orders"], "scopes": ["write"]}
    assert client.put("/v1/keys/own", headers=narrow, json=least).status_code == 201
    assert client.post("/v1/keys/own/rotate", headers=narrow).status_code == 200
    assert client.post("/v1/keys/own/retire", headers=narrow).status_code == 200
    assert client.delete("/v1/keys/own", headers=narrow).status_code == 204
