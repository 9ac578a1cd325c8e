"""Passwords of databases are never shown again, and hosts that only Hifi can reach are refused."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway.settings import Settings
from shared.config.configuration import Configuration, Stream
from shared.config.outside.database import passwords_of
from shared.config.partitioning import Partitioning
from shared.runtime.secret_box import SecretBox, new_key
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

PATH = "/v1/pipelines/sales"
KEY = new_key()
OWNER = "pipeline:sales"
PASSWORD = "very secret"
URL = "postgres://hifi@93.184.216.34/shop"
ELSEWHERE = "postgres://hifi@93.184.216.35/shop"


def with_keys(keys: str) -> Settings:
    return Settings.model_validate({"auth": "off", "HIFI_SECRET_KEYS": keys})


STREAMS = {
    "orders": Stream("orders", partition_count=2),
    "laid": Stream("laid", partition_count=4, partitioning=Partitioning("/shard", ("a", "b"))),
}


@pytest.fixture
def config() -> FixedConfig:
    return FixedConfig(Configuration(streams=STREAMS))


@pytest.fixture
def gateway(config: FixedConfig) -> Iterator[RunningGateway]:
    settings = with_keys(KEY)
    with running_gateway(FakePublisher([]), config, settings) as running:
        yield running


def document(url: str = URL, password: Any = PASSWORD, **table: Any) -> dict[str, Any]:
    known = {"url": url, "password": password, "table": "sales", "key": ["id"], **table}
    return {
        "from": {"stream": "orders"},
        "schema": "id STRING",
        "to": [{"database": {name: it for name, it in known.items() if it is not None}}],
    }


def put(gateway: RunningGateway, body: dict[str, Any]) -> httpx.Response:
    return gateway.client.put(PATH, json=body)


def kept(config: FixedConfig) -> dict[str, str]:
    """Return the opened secrets, by their paths."""
    fields = config.configuration.pipelines["sales"].to_fields()
    box = SecretBox([KEY])
    return {at: box.unseal(it, owner=OWNER) for at, it in passwords_of(fields).items()}


def test_a_password_goes_in_and_never_comes_out(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    shards = [{"table": "a"}, {"url": ELSEWHERE, "password": "other"}]
    answer = put(gateway, document(shards=shards))
    assert answer.status_code == 201, answer.text
    shown = gateway.client.get(PATH).json()
    for text in (answer.text, str(shown)):
        assert PASSWORD not in text
        assert "sealed:v1:" not in text
    passwords = {
        "to.0.database.password": PASSWORD,
        "to.0.database.shards.1.password": "other",
    }
    assert kept(config) == passwords
    # The shown document can be PUT again, with changes that do not concern the sign-in.
    shown["to"][0]["database"]["rate_per_s"] = 5
    assert put(gateway, shown).status_code == 200
    assert kept(config) == passwords


def test_a_password_is_not_shown_to_another_server(gateway: RunningGateway) -> None:
    put(gateway, document())
    shown = gateway.client.get(PATH).json()
    placeholder = shown["to"][0]["database"]["password"]
    for moved in (document(ELSEWHERE, placeholder), document(password={"sealed": "0" * 12})):
        answer = put(gateway, moved)
        assert answer.status_code == 409
        assert answer.json()["code"] == "secret_changed"
        assert answer.json()["pointer"] == "/to/0/database/password"
    assert put(gateway, document(ELSEWHERE, "new")).status_code == 200


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        (document("postgres://hifi@127.0.0.1/shop"), "target_forbidden", "/to/0/database/url"),
        (document("postgres://hifi@169.254.169.254/d"), "target_forbidden", "/to/0/database/url"),
        (document("postgres://hifi@[::1]/shop"), "target_forbidden", "/to/0/database/url"),
        (document("postgres://hifi@0x7f.1/shop"), "target_forbidden", "/to/0/database/url"),
        (document("postgres://hifi@1.2.3.4.5/d"), "bad_pipeline", "/to/0/database/url"),
        (
            document(shards=[{"table": "a"}, {"url": "postgres://hifi@10.0.0.1/d"}]),
            "target_forbidden",
            "/to/0/database/shards/1/url",
        ),
        (
            document(shards=[{"url": f"postgres://hifi@93.184.216.{n}/d"} for n in range(40)]),
            "bad_pipeline",
            "/to/0/database/shards",
        ),
        (document(shards=[{"table": "a"}]), "bad_pipeline", "/to/0/database/shards"),
        (document(password=""), "bad_pipeline", "/to/0/database/password"),
        (document(password=7), "bad_pipeline", "/to/0/database/password"),
    ],
)
def test_what_may_not_be_is_refused(
    gateway: RunningGateway, body: dict[str, Any], code: str, pointer: str
) -> None:
    answer = put(gateway, body)
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert answer.json()["pointer"] == pointer


def test_a_stream_that_is_laid_by_shards_has_a_table_for_each(gateway: RunningGateway) -> None:
    two = document(shards=[{"table": "a"}, {"table": "b"}])
    assert put(gateway, two | {"from": {"stream": "laid"}}).status_code == 201
    four = document(shards=[{"table": name} for name in "abcd"])
    refused = gateway.client.put("/v1/pipelines/four", json=four | {"from": {"stream": "laid"}})
    assert "laid has 2 shards, but this names 4 tables" in refused.json()["detail"]


def test_without_keys_no_password_is_taken(config: FixedConfig) -> None:
    with running_gateway(FakePublisher([]), config, Settings(auth="off")) as running:
        answer = put(running, document())
        assert (answer.status_code, answer.json()["code"]) == (422, "secrets_off")
        assert put(running, document(password=None)).status_code == 201


def test_passwords_are_sealed_anew_with_the_newest_key(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    put(gateway, document())
    newest = new_key()
    with running_gateway(FakePublisher([]), config, with_keys(f"{newest},{KEY}")) as running:
        told = running.client.post("/v1/secrets:rotate").json()
        assert told == {"sealed_anew": 1, "already_newest": 0, "not_opened": []}
        again = running.client.post("/v1/secrets:rotate").json()
        assert again == {"sealed_anew": 0, "already_newest": 1, "not_opened": []}
    (sealed,) = passwords_of(config.configuration.pipelines["sales"].to_fields()).values()
    assert SecretBox([newest]).unseal(sealed, owner=OWNER) == PASSWORD
    with running_gateway(FakePublisher([]), config, with_keys(KEY)) as running:
        told = running.client.post("/v1/secrets:rotate").json()
        assert told == {"sealed_anew": 0, "already_newest": 0, "not_opened": ["sales"]}
