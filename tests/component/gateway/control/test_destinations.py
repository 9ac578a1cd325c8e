"""Destinations over HTTP: set, shown without secrets, checked, and separate by tenant."""

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from gateway.app import described
from gateway.settings import Settings
from shared.config.access import ApiKey, new_text, secret_from
from shared.config.configuration import Configuration, Stream
from shared.config.credentials import secrets_of
from shared.config.destination import Destination
from shared.config.signing import signing_secret
from shared.runtime.secret_box import SecretBox, new_key
from shared.runtime.setup_error import SetupError
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway
from tests.support.servers.authority import Authority

PATH = "/v1/streams/orders/destinations/shop"
URL = "https://1.1.1.1/in"
KEY = new_key()
BOX = SecretBox([KEY])
SIGNING = signing_secret(b"s" * 32)


@pytest.fixture
def config() -> FixedConfig:
    return FixedConfig(Configuration(streams={name: Stream(name) for name in ("orders", "hits")}))


@pytest.fixture
def gateway(config: FixedConfig, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningGateway]:
    monkeypatch.setenv("HIFI_SECRET_KEYS", KEY)
    with running_gateway(FakePublisher([]), config) as running:
        yield running


def put(gateway: RunningGateway, path: str = PATH, /, **settings: Any) -> httpx.Response:
    return gateway.client.put(path, json={"url": URL, **settings})


def code(response: httpx.Response) -> tuple[int, str, str | None]:
    problem = response.json()
    return response.status_code, problem["code"], problem.get("pointer")


def opened(config: FixedConfig) -> dict[str, str]:
    """Return the secrets that delivery would use."""
    destination = config.configuration.destinations["orders/shop"]
    return {
        path: BOX.unseal(sealed, owner=destination.id)
        for path, sealed in secrets_of(destination.to_fields())
    }


def test_a_destination_is_made_shown_listed_changed_and_removed(gateway: RunningGateway) -> None:
    assert code(gateway.client.get(PATH)) == (404, "unknown_destination", None)
    made = put(gateway, body_format="ndjson", filter=[{"pointer": "/type", "equals": "sale"}])
    assert made.status_code == 201
    assert made.json()["body_format"] == "ndjson"
    assert (made.json()["stream"], made.json()["name"]) == ("orders", "shop")
    assert gateway.client.get(PATH).json() == made.json()
    listed = gateway.client.get("/v1/streams/orders/destinations").json()
    assert listed == {"destinations": [made.json()], "removed": []}
    others = gateway.client.get("/v1/streams/hits/destinations").json()
    assert others == {"destinations": [], "removed": []}
    changed = put(gateway, is_paused=True)
    assert changed.status_code == 200
    # Settings that a PUT omits are at their defaults.
    assert (changed.json()["is_paused"], changed.json()["body_format"]) == (True, "json")
    assert code(gateway.client.delete("/v1/streams/orders"))[:2] == (409, "stream_in_use")
    assert gateway.client.delete(PATH).status_code == 204
    assert code(gateway.client.delete(PATH)) == (404, "unknown_destination", None)
    assert gateway.client.get("/v1/streams/nobodys/destinations").status_code == 404


def test_what_was_paused_or_disabled_goes_on_when_somebody_says_so(
    gateway: RunningGateway,
) -> None:
    made = put(gateway, is_paused=True, is_disabled=True, timeout_s=3).json()
    resumed = gateway.client.post(f"{PATH}/resume").json()
    assert resumed["resumed_at_ms"] > 1_700_000_000_000
    changed = {"is_paused": False, "is_disabled": False}
    assert resumed == made | changed | {"resumed_at_ms": resumed["resumed_at_ms"]}
    # The next change keeps the time at which the destination was resumed.
    assert put(gateway).json()["resumed_at_ms"] == resumed["resumed_at_ms"]
    gateway.client.delete(PATH)
    assert code(gateway.client.post(f"{PATH}/resume"))[:2] == (404, "unknown_destination")


def test_every_setting_is_described() -> None:
    settings = {field.name for field in fields(Destination)} - {"others"}
    whole = described(Settings())
    shown = whole["components"]["schemas"]["Destination"]
    assert set(shown["properties"]) == settings | {"warning"}
    put = whole["paths"]["/v1/streams/{stream}/destinations/{destination}"]["put"]
    sent = put["requestBody"]["content"]["application/json"]["schema"]
    assert set(sent["properties"]) == settings - {"stream", "name"} | {"dry_run"}
    assert sent["required"] == ["url"]


def test_no_answer_holds_a_secret_and_the_store_holds_sealed_ones(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    answer = put(
        gateway,
        auth={"kind": "basic", "username": "me", "password": "hunter2"},
        secret_headers={"x-api-key": "hunter3"},
        signing_secrets=[SIGNING],
    )
    assert answer.status_code == 201, answer.text
    shown = answer.text + gateway.client.get(PATH).text
    stored = config.configuration.destinations["orders/shop"].to_json().decode()
    for secret in ("hunter2", "hunter3", SIGNING):
        assert secret not in shown
        assert secret not in stored
    # Secrets are not shown even sealed: only Hifi can open them.
    assert "sealed:v1:" not in shown
    assert answer.json()["auth"]["username"] == "me"
    assert opened(config) == {
        "auth.password": "hunter2",
        "secret_headers.x-api-key": "hunter3",
        "signing_secrets.0": SIGNING,
    }


def test_what_is_shown_can_be_changed_and_put_back(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    second = signing_secret(b"t" * 32)
    put(gateway, auth={"kind": "bearer", "token": "t0ken"}, signing_secrets=[SIGNING, second])
    shown = gateway.client.get(PATH).json()
    # The first secret is removed: each placeholder keeps its own secret, at any position.
    shown["signing_secrets"] = shown["signing_secrets"][1:]
    shown["timeout_s"] = 3
    answer = gateway.client.put(PATH, json=shown)
    assert answer.status_code == 200, answer.text
    assert opened(config) == {"auth.token": "t0ken", "signing_secrets.0": second}


def test_a_secret_that_is_left_out_stays_and_null_removes_it(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    put(
        gateway,
        auth={"kind": "basic", "username": "me", "password": "p"},
        secret_headers={"x-key": "k"},
        signing_secrets=[SIGNING],
    )
    kept = {"auth.password": "p", "secret_headers.x-key": "k", "signing_secrets.0": SIGNING}
    assert put(gateway, timeout_s=3).status_code == 200
    assert opened(config) == kept
    put(gateway, auth={"kind": "basic", "username": "you"})
    assert opened(config) == kept
    assert gateway.client.get(PATH).json()["auth"]["username"] == "you"
    put(gateway, secret_headers=None, signing_secrets=[])
    assert opened(config) == {"auth.password": "p"}
    # Another kind of auth has no secret to keep.
    assert code(put(gateway, auth={"kind": "bearer"})) == (400, "bad_object", "/auth/token")
    put(gateway, auth=None)
    assert opened(config) == {}


def test_a_placeholder_of_another_secret_keeps_nothing(gateway: RunningGateway) -> None:
    put(gateway, auth={"kind": "bearer", "token": "t0ken"}, signing_secrets=[SIGNING])
    shown = gateway.client.get(PATH).json()
    stale = {"kind": "bearer", "token": {"sealed": "000000000000"}}
    assert code(put(gateway, auth=stale)) == (409, "secret_changed", "/auth/token")
    moved = {"kind": "bearer", "token": shown["signing_secrets"][0]}
    assert code(put(gateway, auth=moved)) == (409, "secret_changed", "/auth/token")
    put(gateway, "/v1/streams/hits/destinations/shop")
    elsewhere = gateway.client.put(
        "/v1/streams/hits/destinations/shop", json={"url": URL, "auth": shown["auth"]}
    )
    assert code(elsewhere) == (409, "secret_changed", "/auth/token")


OAUTH2 = {
    "kind": "oauth2",
    "token_url": "https://tokens.example/token",
    "client_id": "me",
    "client_secret": "hunter2",
}
ELSEWHERE = [
    "https://attacker.example/in",
    "http://shop.example/in",
    "https://shop.example:8443/in",
    "https://shop.example.attacker.example/in",
]


@pytest.mark.parametrize("url", ELSEWHERE)
@pytest.mark.parametrize(
    ("secret", "pointer"),
    [
        ({"auth": {"kind": "bearer", "token": "hunter2"}}, "/auth/token"),
        ({"auth": OAUTH2}, "/auth/client_secret"),
        ({"secret_headers": {"x-api-key": "hunter2"}}, "/secret_headers/x-api-key"),
    ],
    ids=["token", "oauth2", "header"],
)
def test_a_secret_does_not_follow_the_address_to_somebody_else(
    gateway: RunningGateway,
    config: FixedConfig,
    url: str,
    secret: dict[str, Any],
    pointer: str,
) -> None:
    first = {"url": "https://shop.example/in", **secret}
    assert gateway.client.put(PATH, json=first).status_code == 201
    kept, shown = opened(config), gateway.client.get(PATH).json()
    for moved in ({"url": url}, {**shown, "url": url}):
        assert code(gateway.client.put(PATH, json=moved)) == (409, "secret_changed", pointer)
    assert opened(config) == kept
    # Another path on the same host, with or without the default port, has the same owner.
    same = gateway.client.put(PATH, json={"url": "https://SHOP.example:443/other"})
    assert same.status_code == 200
    assert opened(config) == kept
    # Callers may move it if they send the secret again, or send none.
    assert gateway.client.put(PATH, json={"url": url, **secret}).status_code == 200
    assert opened(config) == kept
    gone = dict.fromkeys(secret)
    assert gateway.client.put(PATH, json={"url": first["url"], **gone}).status_code == 200
    assert opened(config) == {}


def test_a_clients_secret_does_not_follow_the_token_service_either(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    assert put(gateway, auth=OAUTH2).status_code == 201
    moved = {"kind": "oauth2", "token_url": "https://attacker.example/token", "client_id": "me"}
    assert code(put(gateway, auth=moved)) == (409, "secret_changed", "/auth/client_secret")
    assert opened(config) == {"auth.client_secret": "hunter2"}


def test_sealed_text_from_outside_is_only_text(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    """A reader of the config topic must not be able to make Hifi open a stolen secret."""
    stolen = BOX.seal("hunter2", owner="orders/shop")
    put(gateway, auth={"kind": "bearer", "token": stolen})
    assert opened(config) == {"auth.token": stolen}


def test_without_a_key_no_secret_is_taken(
    config: FixedConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HIFI_SECRET_KEYS", raising=False)
    with running_gateway(FakePublisher([]), config) as running:
        auth = {"kind": "bearer", "token": "t0ken"}
        refused = put(running, auth=auth)
        assert code(refused) == (422, "secrets_off", "/auth/token")
        assert "HIFI_SECRET_KEYS" in refused.json()["detail"]
        assert put(running).status_code == 201


def test_a_wrong_key_stops_the_gateway_with_a_sentence(
    config: FixedConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIFI_SECRET_KEYS", "hunter2")
    with (
        pytest.raises(SetupError, match="HIFI_SECRET_KEYS"),
        running_gateway(FakePublisher([]), config),
    ):
        pass


WRONG: list[tuple[dict[str, Any], str | None]] = [
    ({"url": 5}, "/url"),
    ({"url": "ftp://shop.example"}, "/url"),
    ({"url": "https://me:hunter2@1.1.1.1/"}, "/url"),
    ({"url": "https://1.2.3.4.5/"}, "/url"),
    ({"colour": "red"}, "/colour"),
    ({"name": "other"}, "/name"),
    ({"stream": "hits"}, "/stream"),
    ({"batch_count_max": "5"}, "/batch_count_max"),
    ({"headers": {"Host": "a"}}, "/headers/Host"),
    ({"headers": {"Authorization": "Bearer hunter2"}}, "/headers/Authorization"),
    ({"auth": {"kind": "basic", "username": "me"}}, "/auth/password"),
    ({"auth": {"kind": "bearer", "token": ""}}, "/auth/token"),
    ({"auth": {"kind": "bearer", "token": 5}}, "/auth/token"),
    ({"auth": {"kind": "bearer", "token": "hunter2\r\nhost: x"}}, "/auth/token"),
    ({"auth": {"kind": "bearer", "token": {"sealed": 5, "x": 1}}}, "/auth/token"),
    ({"secret_headers": {"x-key": "hunter2\n"}}, "/secret_headers/x-key"),
    ({"signing_secrets": ["hunter2"]}, "/signing_secrets/0"),
    ({"signing_secrets": [SIGNING] * 3}, "/signing_secrets"),
    ({"signing_secrets": SIGNING}, "/signing_secrets"),
    (
        {"client_certificate": {"certificate_pem": "x", "key_pem": "hunter2"}},
        "/client_certificate/key_pem",
    ),
]


@pytest.mark.parametrize(("settings", "pointer"), WRONG, ids=str)
def test_what_cannot_work_is_refused_with_a_pointer_and_without_the_secret(
    gateway: RunningGateway, settings: dict[str, Any], pointer: str
) -> None:
    refused = put(gateway, **settings)
    assert code(refused) == (400, "bad_object", pointer)
    if "url" not in settings:
        assert "hunter2" not in refused.text
    assert gateway.client.get(PATH).status_code == 404


def test_a_client_certificate_must_have_its_own_key(
    gateway: RunningGateway, config: FixedConfig, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    certificate, key = (file.read_text() for file in authority.sign("us"))
    other, others_key = (file.read_text() for file in authority.sign("other"))
    mixed = {"certificate_pem": certificate, "key_pem": others_key}
    refused = code(put(gateway, client_certificate=mixed))
    assert refused == (400, "bad_object", "/client_certificate/key_pem")
    pair = {"certificate_pem": certificate, "key_pem": key}
    assert put(gateway, client_certificate=pair).status_code == 201
    assert opened(config) == {"client_certificate.key_pem": key}
    kept = {"certificate_pem": other}
    assert code(put(gateway, client_certificate=kept))[2] == "/client_certificate/key_pem"
    assert put(gateway, client_certificate={"certificate_pem": certificate}).status_code == 200
    # Certificates that TLS would refuse at each connection are refused here.
    short = rsa.generate_private_key(65_537, 1_024)
    weak, weak_key = (file.read_text() for file in authority.sign("weak", key=short))
    answer = put(gateway, client_certificate={"certificate_pem": weak, "key_pem": weak_key})
    assert code(answer) == (400, "bad_object", "/client_certificate/key_pem")
    assert "key too small" in answer.text


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "10.0.0.1", "0x7f.1", "2130706433", "[::1]", "[::ffff:10.0.0.1]", "localhost"],
)
def test_a_private_address_is_refused_with_a_pointer(gateway: RunningGateway, host: str) -> None:
    refused = put(gateway, url=f"http://{host}:8080/in")
    assert code(refused) == (422, "target_forbidden", "/url")


def test_a_token_service_or_proxy_at_a_private_address_is_refused_too(
    gateway: RunningGateway,
) -> None:
    auth = {"kind": "oauth2", "client_id": "me", "client_secret": "s"}
    auth |= {"token_url": "http://10.0.0.1/token"}
    assert code(put(gateway, auth=auth)) == (422, "target_forbidden", "/auth/token_url")
    proxy = {"url": "http://10.0.0.1:3128"}
    assert code(put(gateway, proxy=proxy)) == (422, "target_forbidden", "/proxy/url")


def test_private_addresses_are_taken_where_they_are_allowed_and_metadata_never(
    config: FixedConfig,
) -> None:
    settings = Settings(auth="off", allow_private=True)
    with running_gateway(FakePublisher([]), config, settings) as running:
        assert put(running, url="http://127.0.0.1:9/in").status_code == 201
        for host in ("169.254.169.254", "0xa9fea9fe", "metadata.google.internal"):
            refused = put(running, url=f"http://{host}/latest")
            assert code(refused) == (422, "target_forbidden", "/url")


def test_a_name_that_nobody_knows_is_taken_with_a_warning(gateway: RunningGateway) -> None:
    answer = put(gateway, url="https://nowhere.invalid/in")
    assert answer.status_code == 201
    assert answer.json()["warning"].startswith("url: no such name now: 'nowhere.invalid'")
    # The answer can be sent back as it is.
    assert gateway.client.put(PATH, json=answer.json()).status_code == 200
    # A proxy may know names that the gateway does not.
    behind = put(gateway, url="https://nowhere.invalid/in", proxy={"url": "http://1.1.1.1"})
    assert (behind.status_code, behind.json().get("warning")) == (200, None)


def test_only_who_may_set_up_sets_up_and_only_their_own(config: FixedConfig) -> None:
    def key(key_id: str, *scopes: Any, tenant: str = "default") -> tuple[ApiKey, dict[str, str]]:
        text = new_text(kind="secret", key_id=key_id, entropy=key_id.ljust(20).encode())
        made = ApiKey(key_id, (secret_from(text, signs=False),), tenant, scopes=frozenset(scopes))
        return made, {"authorization": f"Bearer {text}"}

    reader, may_read = key("reader", "read")
    writer, may_write = key("writer", "write")
    admin, may_all = key("admin", "admin")
    other, may_elsewhere = key("other", "admin", tenant="acme")
    for made in (reader, writer, admin, other):
        config.configuration = config.configuration.apply(made.config_key, made.to_json())
    with running_gateway(FakePublisher([]), config, Settings(auth="keys")) as running:
        client = running.client
        body = json.dumps({"url": URL})
        assert client.put(PATH, content=body).status_code == 401
        for headers in (may_read, may_write):
            assert client.put(PATH, content=body, headers=headers).status_code == 403
        assert client.put(PATH, content=body, headers=may_elsewhere).status_code == 404
        assert client.put(PATH, content=body, headers=may_all).status_code == 201
        assert client.get(PATH, headers=may_read).status_code == 200
        assert client.get(PATH, headers=may_elsewhere).status_code == 404
        assert client.delete(PATH, headers=may_read).status_code == 403
