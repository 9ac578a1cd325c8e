"""Keys made by a caller with a token end soon after the token."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gateway.settings import Settings
from shared.config.configuration import Configuration
from shared.event.times import DAY_MS
from shared.event.topics import stream_topic
from tests.component.gateway.access.test_gateway_access import KEYS, STREAMS, bearer, code, token
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

SIGNER = Ed25519PrivateKey.generate()


@pytest.fixture
def gateway(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningGateway]:
    found = json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(SIGNER.public_key()))
    key_set = tmp_path / "keys.json"
    key_set.write_text(json.dumps({"keys": [found | {"kid": "k1", "alg": "EdDSA", "use": "sig"}]}))
    config = FixedConfig(Configuration(streams=STREAMS, keys={each.id: each for each in KEYS}))
    publisher = FakePublisher([stream_topic(name) for name in STREAMS])
    issued = Settings(auth="keys", jwt_keys_file=key_set, jwt_issuer="https://id.example")
    settings = issued.model_copy(update=getattr(request, "param", {}))
    with running_gateway(publisher, config, settings) as running:
        yield running


def test_keys_that_a_token_makes_end_soon_after_it(
    gateway: RunningGateway,
) -> None:
    client, admin = gateway.client, token(SIGNER, scope="admin")
    most_ms = time.time() * 1000 + 90 * DAY_MS
    made = client.put("/v1/keys/service", headers=admin, json={})
    assert made.status_code == 201
    assert most_ms - 1_000 < made.json()["expires_at_ms"] < most_ms + 60_000
    assert client.post("/v1/keys/service/rotate", headers=admin).status_code == 200
    later, soon = ({"expires_at_ms": int(most_ms) + days * DAY_MS} for days in (1, -1))
    refused = client.put("/v1/keys/later", headers=admin, json=later)
    assert (code(refused), refused.json()["pointer"]) == ((403, "scope_missing"), "/expires_at_ms")
    made = client.put("/v1/keys/soon", headers=admin, json=soon)
    assert made.json()["expires_at_ms"] == soon["expires_at_ms"]
    assert client.put("/v1/keys/lasting", headers=bearer("admin"), json={}).status_code == 201
    assert code(client.post("/v1/keys/lasting/rotate", headers=admin)) == (403, "scope_missing")
    assert client.post("/v1/keys/lasting/retire", headers=admin).status_code == 200
    assert client.delete("/v1/keys/lasting", headers=admin).status_code == 204


@pytest.mark.parametrize("gateway", [{"keys_by_token_days": 0}], indirect=True)
def test_where_an_operator_wants_it_they_last_for_ever(gateway: RunningGateway) -> None:
    client, admin = gateway.client, token(SIGNER, scope="admin")
    made = client.put("/v1/keys/service", headers=admin, json={})
    assert (made.status_code, made.json().get("expires_at_ms")) == (201, None)
    assert client.post("/v1/keys/service/rotate", headers=admin).status_code == 200
