"""Tables over HTTP and by the command: made, shown, changed, deleted, and separate by tenant."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from deploy.cli.commands import app
from gateway.settings import Settings
from shared.config.access import ENTROPY_BYTES, ApiKey, Scope, Tenant, new_text, secret_from
from shared.config.configuration import Configuration, RemovedTable
from shared.config.table import Table
from shared.runtime.clock import now_ms
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

PATH = "/v1/tables/customers"
KEYS = {
    name: new_text(kind="secret", key_id=name, entropy=bytes(ENTROPY_BYTES))
    for name in ("ours", "theirs", "some")
}


@pytest.fixture
def config() -> FixedConfig:
    admin: frozenset[Scope] = frozenset({"admin", "read"})
    secrets = {name: (secret_from(text, signs=False),) for name, text in KEYS.items()}
    keys = [
        ApiKey("ours", secrets["ours"], scopes=admin),
        ApiKey("theirs", secrets["theirs"], tenant="them", scopes=admin),
        ApiKey("some", secrets["some"], scopes=admin, streams=frozenset({"orders"})),
    ]
    return FixedConfig(Configuration(keys={key.id: key for key in keys}))


@pytest.fixture
def gateway(config: FixedConfig) -> Iterator[RunningGateway]:
    with running_gateway(FakePublisher([]), config, Settings(auth="keys")) as running:
        running.client.headers["authorization"] = f"Bearer {KEYS['ours']}"
        yield running


def as_key(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[name]}"}


def code(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def test_a_table_is_made_shown_listed_changed_and_deleted(gateway: RunningGateway) -> None:
    assert code(gateway.client.get(PATH)) == (404, "unknown_table")
    made = gateway.client.put(PATH, json={"retention_ms": 86_400_000})
    assert made.status_code == 201, made.text
    assert made.json() == Table("customers", retention_ms=86_400_000).known_fields()
    assert gateway.store.topics == {"hifi.table.customers": 1}
    shown = gateway.client.get(PATH)
    assert (shown.json(), shown.headers["etag"]) == (made.json(), made.headers["etag"])
    # The answer of a GET can be PUT as it is; an omitted retention stays.
    assert gateway.client.put(PATH, json=shown.json()).status_code == 200
    changed = gateway.client.put(PATH, json={"row_bytes_max": 100})
    assert changed.json()["retention_ms"] == 86_400_000
    (line,) = gateway.client.get("/v1/tables").json()["tables"]
    assert (line["name"], line["written_by"]) == ("customers", None)
    assert gateway.client.delete(PATH).status_code == 204
    assert gateway.store.topics == {}
    assert gateway.client.get("/v1/tables").json() == {"tables": []}


def test_one_that_is_made_again_has_a_topic_of_its_own(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    gateway.client.put(PATH, json={})
    gateway.client.delete(PATH)
    # Callers who got no answer the first time may repeat the deletion.
    assert gateway.client.delete(PATH).status_code == 204
    made = gateway.client.put(PATH, json={"retention_ms": 60_000})
    assert (made.status_code, made.json()["generation"]) == (201, 2)
    assert gateway.store.topics == {"hifi.table.customers.2": 1}
    gateway.client.delete(PATH)
    assert code(gateway.client.put(PATH, json={}, headers=as_key("theirs"))) == (
        409,
        "table_in_use",
    )
    gone = config.configuration.removed_tables["customers"]
    assert (gone.tenant, gone.generation) == ("default", 2)


@pytest.mark.parametrize(
    ("changed", "pointer"),
    [
        ({"retention_ms": 120_000}, "/retention_ms"),
        ({"generation": 3}, "/generation"),
        ({"colour": "red"}, "/colour"),
        ({"bytes_max": "many"}, "/bytes_max"),
        ({"name": "other"}, "/name"),
    ],
)
def test_what_cannot_be_is_refused(
    gateway: RunningGateway, changed: dict[str, Any], pointer: str
) -> None:
    gateway.client.put(PATH, json={"retention_ms": 60_000})
    refused = gateway.client.put(PATH, json=changed)
    assert (refused.status_code, refused.json()["pointer"]) == (400, pointer)


def test_a_table_is_its_tenants_alone(gateway: RunningGateway) -> None:
    gateway.client.put(PATH, json={})
    theirs = as_key("theirs")
    assert code(gateway.client.get(PATH, headers=theirs)) == (404, "unknown_table")
    assert code(gateway.client.delete(PATH, headers=theirs)) == (404, "unknown_table")
    assert code(gateway.client.put(PATH, json={}, headers=theirs)) == (409, "table_in_use")
    assert gateway.client.get("/v1/tables", headers=theirs).json() == {"tables": []}
    for method in ("GET", "DELETE"):
        asked = gateway.client.request(method, PATH, headers=as_key("some"))
        assert code(asked) == (403, "scope_missing")
    assert code(gateway.client.put(PATH, json={}, headers=as_key("some"))) == (403, "scope_missing")
    assert gateway.client.get("/v1/tables", headers=as_key("some")).json() == {"tables": []}


def test_how_many_a_tenant_has_and_what_they_may_take_is_bounded(
    gateway: RunningGateway, config: FixedConfig
) -> None:
    bounded = {"default": Tenant("default", tables_max=2, table_bytes_max=10 << 20)}
    gone = {"old": RemovedTable("old", "default", 1, now_ms())}
    config.configuration = Configuration(
        keys=config.configuration.keys, tenants=bounded, removed_tables=gone
    )
    large = gateway.client.put(PATH, json={"bytes_max": 11 << 20})
    assert (code(large), large.json()["bound"]) == ((409, "bound_reached"), "table_bytes")
    assert gateway.client.put(PATH, json={"bytes_max": 10 << 20}).status_code == 201
    assert gateway.client.put(PATH, json={"bytes_max": 9 << 20}).status_code == 200
    more = gateway.client.put("/v1/tables/more", json={"bytes_max": 1 << 20})
    assert (code(more), more.json()["bound"]) == ((409, "bound_reached"), "tables")


def hifi(gateway: RunningGateway, *arguments: str) -> str:
    result = CliRunner().invoke(
        app,
        ["tables", *arguments],
        env={"HIFI_GATEWAY": gateway.url, "HIFI_API_KEY": KEYS["ours"]},
    )
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_makes_lists_shows_and_deletes_them(gateway: RunningGateway) -> None:
    made = hifi(gateway, "put", "customers", "--retention-hours", "24", "--mib-max", "2")
    assert json.loads(made)["bytes_max"] == 2 << 20
    hifi(gateway, "put", "sums", "--written-by", "sales", "--row-bytes-max", "500")
    assert json.loads(hifi(gateway, "show", "sums"))["row_bytes_max"] == 500
    lines = [line.split("  ") for line in hifi(gateway, "list").splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert ["customers", "HTTP", "1 days"] in cells
    assert ["sums", "pipeline sales", "until they are deleted"] in cells
    assert json.loads(hifi(gateway, "list", "--json"))[0]["name"] == "customers"
    hifi(gateway, "delete", "sums", "--yes")
    assert "sums" not in hifi(gateway, "list")
