"""Keys, tenants, quotas, signatures and pages, over real HTTP with authentication on."""

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gateway.problems import Problem
from gateway.settings import Settings
from shared.config.access import ApiKey, new_text, secret_from, signature, signing_key_of
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from shared.event.topics import stream_topic
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

PATH = "/v1/streams/orders/events"
JSON = {"content-type": "application/json"}
ORIGIN = "https://shop.example"
STREAMS = {
    "orders": Stream("orders"),
    "hits": Stream("hits"),
    "theirs": Stream("theirs", tenant="acme"),
}


def text_of(key_id: str, *, is_browser: bool = False) -> str:
    kind: Any = "browser" if is_browser else "secret"
    return new_text(kind=kind, key_id=key_id, entropy=key_id.ljust(20).encode())


def key(key_id: str, **fields: Any) -> ApiKey:
    text = text_of(key_id, is_browser=fields.get("kind") == "browser")
    return ApiKey(key_id, (secret_from(text, signs=fields.get("must_sign", False)),), **fields)


LATER_MS = 4_000_000_000_000
KEYS = [
    key("writer"),
    key("admin", scopes=frozenset({"admin"})),
    key("acme-admin", scopes=frozenset({"admin", "write"}), tenant="acme"),
    key("narrow", streams=frozenset({"hits"})),
    key("narrow-admin", scopes=frozenset({"admin"}), streams=frozenset({"orders"})),
    key("ending-admin", scopes=frozenset({"admin"}), expires_at_ms=LATER_MS),
    key("expired", expires_at_ms=1),
    key("signer", must_sign=True),
    key("metered", tenant="acme"),
    key("web", kind="browser", origins=frozenset({ORIGIN}), streams=frozenset({"orders"})),
]


@pytest.fixture(scope="module")
def signer() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


@pytest.fixture(scope="module")
def key_set(signer: Ed25519PrivateKey, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(signer.public_key()))
    path = tmp_path_factory.mktemp("jwt") / "keys.json"
    path.write_text(json.dumps({"keys": [found | {"kid": "k1", "alg": "EdDSA", "use": "sig"}]}))
    return path


@pytest.fixture
def config() -> FixedConfig:
    return FixedConfig(Configuration(streams=STREAMS, keys={found.id: found for found in KEYS}))


@pytest.fixture
def publisher() -> FakePublisher:
    return FakePublisher([stream_topic(name) for name in STREAMS])


@pytest.fixture
def gateway(
    config: FixedConfig, publisher: FakePublisher, key_set: Path
) -> Iterator[RunningGateway]:
    settings = Settings(auth="keys", jwt_keys_file=key_set, jwt_issuer="https://id.example")
    with running_gateway(publisher, config, settings) as running:
        yield running


def bearer(key_id: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text_of(key_id)}"}


def post(
    gateway: RunningGateway, headers: dict[str, str], path: str = PATH, body: bytes = b"[{}]"
) -> httpx.Response:
    return gateway.client.post(path, content=body, headers=JSON | headers)


def code(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def test_a_key_that_may_write_writes(gateway: RunningGateway) -> None:
    assert post(gateway, bearer("writer")).status_code == 200


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Basic YTpi",
        "Bearer",
        "Bearer x",
        "Bearer a.b.c",
        f"Bearer {text_of('writer')[:-1]}",
        f"Bearer {text_of('nobody')}",
        f"Bearer {text_of('expired')}",
    ],
)
def test_who_is_not_known_is_401_and_told_how_to_be(
    gateway: RunningGateway, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"authorization": authorization}
    response = post(gateway, headers)
    assert code(response) == (401, "unauthenticated")
    assert response.headers["www-authenticate"].startswith("Bearer ")


def test_a_key_does_what_its_scopes_say(gateway: RunningGateway) -> None:
    assert code(post(gateway, bearer("admin"))) == (403, "scope_missing")
    assert code(gateway.client.get("/v1/keys", headers=bearer("writer"))) == (403, "scope_missing")
    assert gateway.client.get("/v1/streams", headers=bearer("writer")).status_code == 200


def test_a_key_for_one_stream_does_not_work_for_another(gateway: RunningGateway) -> None:
    assert post(gateway, bearer("narrow"), "/v1/streams/hits/events").status_code == 200
    assert code(post(gateway, bearer("narrow"))) == (403, "stream_forbidden")


def test_what_is_another_tenants_is_not_there(gateway: RunningGateway) -> None:
    assert code(post(gateway, bearer("writer"), "/v1/streams/theirs/events"))[0] == 404
    assert post(gateway, bearer("acme-admin"), "/v1/streams/theirs/events").status_code == 200
    listed = gateway.client.get("/v1/streams", headers=bearer("acme-admin")).json()
    assert listed == {"streams": ["theirs"], "removed": []}
    taken = gateway.client.put("/v1/streams/orders", headers=bearer("acme-admin"), json={})
    assert code(taken) == (409, "stream_in_use")


def test_a_key_that_is_rotated_has_two_texts_until_it_is_retired(gateway: RunningGateway) -> None:
    admin = bearer("admin")
    made = gateway.client.put("/v1/keys/shop", headers=admin, json={"scopes": ["write"]})
    assert made.status_code == 201
    first = made.json()["key"]
    assert code(gateway.client.put("/v1/keys/shop", headers=admin, json={})) == (409, "key_in_use")
    second = gateway.client.post("/v1/keys/shop/rotate", headers=admin).json()["key"]
    for text in (first, second):
        assert post(gateway, {"authorization": f"Bearer {text}"}).status_code == 200
    retired = gateway.client.post("/v1/keys/shop/retire", headers=admin).json()
    assert (retired["live_texts"], "key" in retired) == (1, False)
    assert post(gateway, {"authorization": f"Bearer {first}"}).status_code == 401
    assert post(gateway, {"authorization": f"Bearer {second}"}).status_code == 200
    shown = gateway.client.get("/v1/keys/shop", headers=admin)
    assert first not in shown.text
    assert "hash" not in shown.text
    assert gateway.client.delete("/v1/keys/shop", headers=admin).status_code == 204
    assert post(gateway, {"authorization": f"Bearer {second}"}).status_code == 401


def test_keys_and_quotas_are_made_by_those_in_charge(gateway: RunningGateway) -> None:
    theirs, ours = bearer("acme-admin"), bearer("admin")
    assert gateway.client.put("/v1/keys/a", headers=theirs, json={}).json()["tenant"] == "acme"
    other = gateway.client.put("/v1/keys/b", headers=theirs, json={"tenant": "default"})
    assert code(other) == (403, "scope_missing")
    assert code(gateway.client.get("/v1/keys/writer", headers=theirs)) == (404, "unknown_key")
    assert code(gateway.client.put("/v1/tenants/acme", headers=theirs, json={}))[0] == 403
    assert gateway.client.put("/v1/tenants/acme", headers=ours, json={}).status_code == 201
    listed = gateway.client.get("/v1/keys", headers=theirs).json()["keys"]
    assert {found["tenant"] for found in listed} == {"acme"}


def test_a_key_makes_no_key_that_is_good_for_more(gateway: RunningGateway) -> None:
    narrow, ending = bearer("narrow-admin"), bearer("ending-admin")

    put = partial(gateway.client.put, "/v1/keys/new")
    for streams in ([], ["hits"], ["orders", "hits"]):
        assert code(put(headers=narrow, json={"streams": streams})) == (403, "scope_missing")
    assert code(put(headers=narrow, json={"tenant": "acme"})) == (403, "scope_missing")
    later = {"expires_at_ms": LATER_MS + 1}
    assert code(put(headers=ending, json=later)) == (403, "scope_missing")
    # It cannot rotate such a key to see its new text, either.
    for headers in (narrow, ending):
        rotated = gateway.client.post("/v1/keys/writer/rotate", headers=headers)
        assert code(rotated) == (403, "scope_missing")
    new = gateway.client.put("/v1/streams/new", headers=narrow, json={})
    assert code(new) == (403, "stream_forbidden")
    assert code(gateway.client.put("/v1/tenants/acme", headers=narrow, json={}))[0] == 403
    least = {"streams": ["orders"], "scopes": ["write"]}
    assert gateway.client.put("/v1/keys/a", headers=narrow, json=least).status_code == 201
    same = {"expires_at_ms": LATER_MS}
    assert gateway.client.put("/v1/keys/b", headers=ending, json=same).status_code == 201


def test_a_body_must_be_signed_when_the_key_says_so(gateway: RunningGateway) -> None:
    body, now_s = b'[{"id":"s"}]', int(time.time())
    mac = signature(signing_key_of(text_of("signer")), timestamp_s=now_s, body=body)
    signed = bearer("signer") | {"hifi-signature": f"t={now_s},v1={mac}"}
    assert post(gateway, signed, body=body).status_code == 200
    assert code(post(gateway, signed, body=body + b" ")) == (401, "bad_signature")
    assert code(post(gateway, bearer("signer"), body=body)) == (401, "bad_signature")


def token(signer: Ed25519PrivateKey, **claims: Any) -> dict[str, str]:
    given = {
        "iss": "https://id.example",
        "aud": "hifi",
        "exp": int(time.time()) + 60,
        "tenant": "default",
        "scope": "write openid",
    }
    text = jwt.encode(given | claims, signer, algorithm="EdDSA", headers={"kid": "k1"})
    return {"authorization": f"Bearer {text}"}


def test_a_token_of_the_issuer_is_as_good_as_a_key(
    gateway: RunningGateway, signer: Ed25519PrivateKey
) -> None:
    assert post(gateway, token(signer)).status_code == 200
    assert code(post(gateway, token(signer, scope="read")))[0] == 403
    assert code(post(gateway, token(signer, tenant="acme")))[0] == 404
    for wrong in ({"exp": 1}, {"aud": "x"}, {"iss": "x"}, {"tenant": None}, {"tenant": "A B"}):
        assert code(post(gateway, token(signer, **wrong))) == (401, "unauthenticated"), wrong
    assert code(post(gateway, token(Ed25519PrivateKey.generate())))[0] == 401


def browser() -> dict[str, str]:
    return {"authorization": f"Bearer {text_of('web', is_browser=True)}", "origin": ORIGIN}


def test_a_browser_key_works_in_its_own_pages_only(gateway: RunningGateway) -> None:
    response = post(gateway, browser())
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == ORIGIN
    assert "Retry-After" in response.headers["access-control-expose-headers"]
    assert response.headers["vary"] == "Origin"
    for origin in ({"origin": "https://evil.example"}, {}):
        headers = {"authorization": browser()["authorization"]} | origin
        refused = post(gateway, headers)
        assert code(refused) == (403, "origin_forbidden")
        assert "access-control-allow-origin" not in refused.headers
    assert gateway.client.get("/v1/limits", headers=browser()).status_code == 403


def test_a_page_can_read_why_it_was_refused(gateway: RunningGateway) -> None:
    response = post(gateway, browser() | {"content-type": "image/png"})
    assert response.status_code == 415
    assert response.headers["access-control-allow-origin"] == ORIGIN


def preflight(gateway: RunningGateway, origin: str, path: str = PATH) -> httpx.Response:
    asked = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type, idempotency-key",
    }
    return gateway.client.options(path, headers=asked)


def test_a_preflight_is_answered_for_origins_that_some_key_allows(gateway: RunningGateway) -> None:
    allowed = preflight(gateway, ORIGIN)
    assert allowed.status_code == 204
    assert allowed.headers["access-control-allow-origin"] == ORIGIN
    assert "idempotency-key" in allowed.headers["access-control-allow-headers"]
    refused = preflight(gateway, "https://evil.example")
    assert "access-control-allow-origin" not in refused.headers
    assert refused.headers["vary"] == "Origin"


def test_only_a_beacon_comes_with_the_credentials_of_a_browser(gateway: RunningGateway) -> None:
    path = f"/v1/streams/orders/beacon?key={text_of('web', is_browser=True)}"
    sent = gateway.client.post(path, json=[{}], headers={"origin": ORIGIN})
    for answer in (preflight(gateway, ORIGIN, path), sent):
        assert answer.headers["access-control-allow-credentials"] == "true"
        # Fetch, 3.2.5: with credentials a wildcard is not valid.
        assert answer.headers["access-control-allow-origin"] == ORIGIN
    for answer in (
        preflight(gateway, "https://evil.example", path),
        preflight(gateway, ORIGIN),
        post(gateway, browser()),
    ):
        assert "access-control-allow-credentials" not in answer.headers


def beacon(gateway: RunningGateway, body: bytes, key_text: str, **headers: str) -> httpx.Response:
    return gateway.client.post(
        f"/v1/streams/orders/beacon?key={key_text}",
        content=body,
        headers={"content-type": "text/plain;charset=UTF-8", "origin": ORIGIN} | headers,
    )


def test_a_beacon_is_text_with_the_key_in_the_query(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    web = text_of("web", is_browser=True)
    response = beacon(gateway, b'[{"id":"b"}]', web)
    assert (response.status_code, response.content) == (204, b"")
    assert [event.id for event in publisher.stored(stream_topic("orders"))] == ["b"]
    assert code(beacon(gateway, b"[{}]", text_of("writer"))) == (403, "scope_missing")
    assert code(beacon(gateway, b"[{}]", web, origin="https://evil.example"))[0] == 403
    assert code(beacon(gateway, b" " * 65_537, web)) == (413, "body_too_large")
    assert code(beacon(gateway, b"[{}]", ""))[0] == 401


def test_streams_are_made_shown_changed_and_removed(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    admin = bearer("admin")
    wanted = {"partition_count": 2, "key_pointer": "/user", "schema": {"type": "object"}}
    made = gateway.client.put("/v1/streams/fresh", headers=admin, json=wanted)
    assert made.status_code == 201
    assert gateway.store.topics == {"fresh": 2}
    shown = gateway.client.get("/v1/streams/fresh", headers=admin).json()
    assert shown == wanted | {"name": "fresh", "tenant": "default", "partitioning": None}
    assert post(gateway, bearer("writer"), "/v1/streams/fresh/events").status_code == 200
    again = gateway.client.put("/v1/streams/fresh", headers=admin, json={"partition_count": 1})
    assert code(again) == (400, "bad_object")
    destination = Destination("fresh", "shop", "https://shop.example/in")
    config.configuration = replace(config.configuration, destinations={destination.id: destination})
    assert code(gateway.client.delete("/v1/streams/fresh", headers=admin)) == (409, "stream_in_use")
    config.configuration = replace(config.configuration, destinations={})
    assert gateway.client.delete("/v1/streams/fresh", headers=admin).status_code == 204
    assert gateway.client.get("/v1/streams/fresh", headers=admin).status_code == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/streams/UPPER", b"{}"),
        ("/v1/streams/a", b'{"partition_count":"2"}'),
        ("/v1/streams/a", b'{"partition_count":0}'),
        ("/v1/streams/a", b'{"colour":"red"}'),
        ("/v1/streams/a", b'{"name":"b"}'),
        ("/v1/streams/a", b'{"schema":{"type":5}}'),
        ("/v1/streams/a", b'{"schema":{"$ref":"http://127.0.0.1:1/x"}}'),
        ("/v1/streams/a", b'{"schema":{"pattern":"(?=x)"}}'),
        ("/v1/streams/a", b"[]"),
        ("/v1/streams/a", b"{"),
        ("/v1/streams/a", b"\xff"),
        ("/v1/streams/a", b"[" * 100_000),
        ("/v1/keys/a", b'{"scopes":["all"]}'),
        ("/v1/keys/a", b'{"kind":"other"}'),
        ("/v1/keys/a", b'{"kind":["browser"]}'),
        ("/v1/keys/a", b'{"kind":"browser"}'),
        ("/v1/keys/a", b'{"secrets":[]}'),
        ("/v1/tenants/a", b'{"events_per_s":-1}'),
        ("/v1/tenants/a", b'{"events_per_s":1e999}'),
    ],
)
def test_an_object_that_makes_no_sense_is_400(
    gateway: RunningGateway, path: str, body: bytes
) -> None:
    response = gateway.client.put(path, headers=bearer("admin"), content=body)
    assert response.status_code == 400, response.text
    assert response.json()["code"] in {"bad_object", "invalid_json"}


def test_no_store_is_503_and_nothing_is_pretended(gateway: RunningGateway) -> None:
    gateway.store.problem = Problem("kafka_unavailable", "away", headers=((b"retry-after", b"2"),))
    response = gateway.client.put("/v1/streams/fresh", headers=bearer("admin"), json={})
    assert code(response) == (503, "kafka_unavailable")
    assert response.headers["retry-after"] == "2"


def test_the_answer_does_not_wait_for_the_body_of_a_stranger(gateway: RunningGateway) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=5) as wire:
        head = f"POST {PATH} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
        wire.sendall(f"{head}content-length: 4000000\r\n\r\n".encode())
        assert wire.makefile("rb").readline().startswith(b"HTTP/1.1 401 ")
