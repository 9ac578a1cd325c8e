"""`hifi keys`, `hifi streams` and `hifi tenants` against a gateway that requires keys."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.cli.commands import app
from gateway.routes import request_ids
from gateway.settings import Settings
from shared.config.access import ApiKey, new_text, secret_from
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from shared.event.topics import stream_topic
from shared.proof.last_answer import FailedTry
from shared.proof.receipt import CoveredOffsets, Receipt, ReceiptOutcome
from shared.runtime.setup_error import UsageError
from tests.component.gateway.control.test_receipt_chain import a_restore
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import (
    FakeReceipts,
    FixedConfig,
    RunningGateway,
    a_ledger_row,
    running_gateway,
)

ROOT = new_text(kind="secret", key_id="root", entropy=b"r" * 20)
CRM = Destination("orders", "crm", "https://crm.example/")
ADMIN = ApiKey("root", (secret_from(ROOT, signs=False),), scopes=frozenset({"admin"}))
POINTER = ("--shard-pointer", "/t")


@pytest.fixture
def gateway() -> Iterator[RunningGateway]:
    config = FixedConfig(Configuration(streams={"orders": Stream("orders")}, keys={"root": ADMIN}))
    publisher = FakePublisher([stream_topic("orders")])
    with running_gateway(publisher, config, Settings(auth="keys")) as running:
        yield running


def hifi(gateway: RunningGateway, *arguments: str, key: str | None = ROOT) -> tuple[int, str, str]:
    environment = {"HIFI_GATEWAY": gateway.url, "HIFI_API_KEY": key}
    result = CliRunner().invoke(app, list(arguments), env=environment)
    if isinstance(result.exception, UsageError):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def said(gateway: RunningGateway, *arguments: str) -> Any:
    code, out, err = hifi(gateway, *arguments)
    assert code == 0, err
    return json.loads(out)


def test_a_key_is_made_used_rotated_and_revoked(gateway: RunningGateway) -> None:
    code, out, err = hifi(gateway, "keys", "create", "shop", "--stream", "orders")
    assert code == 0
    # Only the key's text is printed, so that a shell can store it.
    assert out.startswith("hifisk_shop_")
    assert out.count("\n") == 1
    assert "this once" in err
    first = out.strip()
    assert hifi(gateway, "send", "orders", "{}", key=first)[0] == 0
    second = hifi(gateway, "keys", "rotate", "shop")[1].strip()
    assert second != first
    for text in (first, second):
        assert hifi(gateway, "send", "orders", "{}", key=text)[0] == 0
    assert hifi(gateway, "keys", "rotate", "shop", "--finish")[0] == 0
    assert hifi(gateway, "send", "orders", "{}", key=first)[0] == 1
    assert hifi(gateway, "send", "orders", "{}", key=second)[0] == 0
    assert hifi(gateway, "keys", "revoke", "shop")[0] == 0
    assert hifi(gateway, "send", "orders", "{}", key=second)[0] == 1


def test_a_link_is_one_line_for_a_shell_and_signed_by_the_key(gateway: RunningGateway) -> None:
    maker = hifi(gateway, "keys", "create", "portal", "--scope", "admin")[1].strip()
    asked = ["--stream", "orders", "--origin", "https://portal.example", "--hours", "2"]
    at = ["--console", "https://hifi.example/"]
    code, out, err = hifi(gateway, "keys", "link", *asked, *at, key=maker)
    assert code == 0
    assert out.startswith("https://hifi.example/embed/hifilk_")
    assert out.endswith("/\n")
    assert out.count("\n") == 1
    assert "Anyone with this link sees default until" in err
    _, told, _ = hifi(gateway, "keys", "link", *asked, *at, "--json", key=maker)
    made = json.loads(told)
    assert (made["streams"], made["origins"]) == (["orders"], ["https://portal.example"])
    assert made["url"] == "https://hifi.example" + made["path"]
    # A link used as a key has no administrator's rights.
    with pytest.raises(UsageError, match="needs the scope 'admin'"):
        hifi(gateway, "keys", "list", key=made["link"])
    with pytest.raises(UsageError, match="rotate it first"):
        hifi(gateway, "keys", "link")
    assert hifi(gateway, "keys", "link", "--hours", "25", key=maker)[0] != 0


def test_a_list_shows_what_keys_allow_and_no_secret(gateway: RunningGateway) -> None:
    page = ["--origin", "https://shop.example", "--stream", "orders", "--days", "30"]
    made = said(gateway, "keys", "create", "page", *page, "--json")
    assert made["kind"] == "browser"
    _, out, _ = hifi(gateway, "keys", "list")
    assert "https://shop.example" in out
    assert made["key"] not in out
    # The key that lists has a last use; the unused one only has its end.
    assert len(re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d", out)) == 2, "one end and one last use"
    assert "not within a year" in out
    shown = said(gateway, "keys", "show", "page")
    assert shown["origins"] == ["https://shop.example"]
    assert shown["expires_at_ms"] == made["expires_at_ms"]
    assert {key["id"] for key in said(gateway, "keys", "list", "--json")} == {"root", "page"}


def test_a_stream_is_given_shards(gateway: RunningGateway) -> None:
    made = said(gateway, "streams", "put", "bills", "--shards", "x,y", *POINTER)
    assert made["partitioning"] == {"pointer": "/t", "shards": ["x", "y"]}
    assert made["partition_count"] == 2
    with pytest.raises(UsageError, match="Give both --shards"):
        hifi(gateway, "streams", "put", "bills", "--shards", "x,y")
    with pytest.raises(UsageError, match=r"partitioning\.shards\.1"):
        hifi(gateway, "streams", "put", "bills", "--shards", "x,", *POINTER)


def test_streams_are_put_shown_listed_and_deleted(gateway: RunningGateway, tmp_path: Path) -> None:
    schema = tmp_path / "order.json"
    schema.write_text('{"type":"object","required":["price"]}')
    fields = ["--key-pointer", "/user/id", "--partitions", "3", "--schema", str(schema)]
    made = said(gateway, "streams", "put", "bills", *fields)
    assert made["partition_count"] == 3
    assert made["schema"]["required"] == ["price"]
    assert said(gateway, "streams", "show", "bills") == made
    assert hifi(gateway, "streams", "list")[1] == "bills\norders\n"
    assert hifi(gateway, "streams", "delete", "bills", "--yes")[0] == 0
    assert said(gateway, "streams", "list", "--json") == ["orders"]
    schema.write_text("{")
    with pytest.raises(UsageError, match=r"order\.json is not JSON"):
        hifi(gateway, "streams", "put", "bills", "--schema", str(schema))


def test_quotas_are_put_shown_and_deleted(gateway: RunningGateway) -> None:
    made = said(gateway, "tenants", "put", "acme", "--events-per-s", "10")
    assert made == said(gateway, "tenants", "show", "acme")
    assert made["events_per_s"] == 10
    assert made["bytes_per_s"] is None
    assert said(gateway, "tenants", "list", "--json") == [made]
    listed = hifi(gateway, "tenants", "list")[1].splitlines()
    assert listed[1].split() == ["acme", "-", "10", "-"]
    # A tenant does not see another tenant's quotas.
    others = hifi(gateway, "keys", "create", "others", "--tenant", "others", "--scope", "read")[1]
    _, listed_to_others, _ = hifi(gateway, "tenants", "list", "-o", "json", key=others.strip())
    assert json.loads(listed_to_others) == []
    assert hifi(gateway, "tenants", "delete", "acme")[0] == 0
    with pytest.raises(UsageError, match="404 unknown_tenant"):
        hifi(gateway, "tenants", "show", "acme")


def test_changes_are_listed_the_newest_first(gateway: RunningGateway) -> None:
    for rate in ("10", "20"):
        hifi(gateway, "tenants", "put", "acme", "--events-per-s", rate)
    hifi(gateway, "streams", "put", "bills")
    code, out, _ = hifi(gateway, "changes", "list")
    lines = out.splitlines()
    assert code == 0
    assert [line.split()[2:5] for line in lines[1:]] == [
        ["default", "root", "created"],
        ["acme", "root", "changed"],
        ["acme", "root", "created"],
    ]
    assert lines[2].split()[4:] == ["changed", "tenant", "acme", "events_per_s", "10", ">", "20"]
    chosen = ("--kind", "tenant", "--did", "changed", "--from", "1h", "--by", "root")
    found = said(gateway, "changes", "list", "--json", *chosen)
    assert (len(found["changes"]), found["is_all"]) == (1, True)
    assert found["changes"][0]["before"] != found["changes"][0]["after"]
    _, out, err = hifi(gateway, "changes", "list", "--limit", "2")
    assert (len(out.splitlines()), "--limit 20 shows them" in err) == (3, True)
    # The command reads as many pages as the limit needs.
    assert said(gateway, "changes", "list", "--json", "--limit", "3")["is_all"]


def test_what_is_refused_is_one_sentence_that_says_what_next(gateway: RunningGateway) -> None:
    with pytest.raises(UsageError, match=r"401 .*--api-key or HIFI_API_KEY"):
        hifi(gateway, "keys", "list", key=None)
    with pytest.raises(UsageError, match=r"409 key_in_use: .*rotate or delete"):
        hifi(gateway, "keys", "create", "root")
    with pytest.raises(UsageError, match="400 bad_object: scopes"):
        hifi(gateway, "keys", "create", "odd", "--scope", "everything")
    with pytest.raises(UsageError, match="No gateway answers at http://127"):
        hifi(gateway, "keys", "list", "--gateway", "http://127.0.0.1:1")


def test_dead_letters_may_be_asked_for_since_before_any_calendar(gateway: RunningGateway) -> None:
    listed = said(gateway, "dead", "list", "--from", "999999d", "--json")
    assert listed == {"dead_letters": [], "is_all": True}


def test_a_receipt_is_shown_to_people_and_to_programs() -> None:
    config = FixedConfig(Configuration(streams={"orders": Stream("orders")}, keys={"root": ADMIN}))
    publisher, request_id = FakePublisher([stream_topic("orders")]), next(request_ids())
    kept = FakeReceipts([a_ledger_row(request_id, "e-1", "e-2", count=3)])
    with running_gateway(publisher, config, Settings(auth="keys"), receipts=kept) as gateway:
        assert said(gateway, "receipt", request_id, "--json")["count"] == 3
        code, out, err = hifi(gateway, "receipt", request_id, "--limit", "1")
        assert (code, "3 events" in out, "2:10" in out, "e-2" in out) == (0, True, True, False)
        assert "no destination" in out
        assert "--after 2:11" in err
        assert "ask again" in err
        _, out, err = hifi(gateway, "receipt", request_id, "--after", "2:11")
        assert ("e-1" in out, "e-2" in out, "--after" in err) == (False, True, False)
        config.configuration = replace(config.configuration, destinations={CRM.id: CRM})
        assert "crm: 2 queued" in hifi(gateway, "receipt", request_id, "--event", "e-2")[1]
        kept.is_whole = False
        assert "crm: 2 unknown" in hifi(gateway, "receipt", request_id, "--event", "e-2")[1]
        with pytest.raises(UsageError, match="bad_request_id"):
            hifi(gateway, "receipt", "x")
        assert "not taken" not in hifi(gateway, "receipt", request_id)[1]
        kept.receipts = [a_refused_batch()]
        assert kept.restored is not None
        kept.restored.take(a_restore("spring", "orders", 10, 11).to_json())
        _, out, _ = hifi(gateway, "receipt", request_id)
    assert "2 requests not taken" in out
    assert "the restore spring put 2 events of these into orders again, between" in out
    (line,) = [line for line in out.splitlines() if "no healthy upstream" in line]
    assert all(word in line for word in ("12 ms", "status_503", "msg_1", "3 events: e-1, e-2, ..."))
    # A compromised gateway must not get escape sequences to a terminal.
    assert "\x1b" not in out
    assert "\\x1b[2J" in out


def a_refused_batch() -> Receipt:
    covered = (CoveredOffsets(stream_topic("orders"), 2, 10, 13),)
    return Receipt(
        "orders/crm", ReceiptOutcome.WAITING, "status_503", "msg_1", 3, covered, {0: 3},
        event_time_ms_min=0, accepted_at_ms_min=0, attempt=1, started_at_ms=1, ended_at_ms=2,
        failed_tries=(
            FailedTry(1_500, "connect_refused", 3, text="\x1b[2J"),
            FailedTry(2_000, "status_503", 12, 503, "no healthy upstream"),
        ),
    )  # fmt: skip
