"""`hifi destinations` against a gateway, and the keys that `hifi up` makes for itself."""

import json
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.cli.commands import app
from deploy.local.ports import pick_free
from deploy.local.secret_keys import secret_keys
from gateway.settings import Settings
from observe.books_page import BOOKS_PATH, BooksPage, BooksRow
from shared.config.configuration import Configuration, Stream
from shared.config.signing import signing_key
from shared.proof.balance import Balance
from shared.proof.last_answer import LastAnswer
from shared.proof.overview import RecentOutcomes, StreamVerdict
from shared.runtime.clock import now_ms
from shared.runtime.metrics import Metrics
from shared.runtime.secret_box import SecretBox, new_key
from shared.runtime.setup_error import SetupError, UsageError
from tests.support.console.console_fixtures import RunningConsole, overview
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

URL = "https://1.1.1.1/in"


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningGateway]:
    monkeypatch.setenv("HIFI_SECRET_KEYS", new_key())
    config = FixedConfig(Configuration(streams={"orders": Stream("orders")}))
    with running_gateway(FakePublisher([]), config, Settings(auth="off")) as running:
        yield running


def hifi(
    gateway: RunningGateway,
    *arguments: str,
    stdin: str = "",
    console: str = "http://127.0.0.1:9",
) -> tuple[str, str]:
    environment = {"HIFI_GATEWAY": gateway.url, "HIFI_CONSOLE": console}
    result = CliRunner().invoke(app, list(arguments), env=environment, input=stdin)
    if isinstance(result.exception, UsageError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def at(gateway: RunningGateway, verb: str, *arguments: str, stdin: str = "") -> Any:
    out, _ = hifi(gateway, "destinations", verb, "orders", "shop", *arguments, stdin=stdin)
    return json.loads(out)


def test_a_destination_is_put_changed_paused_resumed_and_deleted(
    gateway: RunningGateway, tmp_path: Path
) -> None:
    file = tmp_path / "shop.json"
    file.write_text(json.dumps({"auth": {"kind": "bearer", "token": "hunter2"}}))
    made = at(gateway, "put", URL, "--settings", str(file), "--set", "body_format=ndjson")
    assert (made["url"], made["body_format"]) == (URL, "ndjson")
    assert "hunter2" not in json.dumps(made)
    changed = at(gateway, "change", "--set", "parallel_max=8", "--set", "retry_on=[408]")
    assert changed == made | {"parallel_max": 8, "retry_on": [408]}
    hifi(gateway, "destinations", "pause", "orders", "shop")
    assert at(gateway, "show") == changed | {"is_paused": True}
    listed, _ = hifi(gateway, "destinations", "list", "orders")
    assert listed.splitlines()[1].split() == ["shop", "paused", "ndjson", "micro-batch", URL]
    hifi(gateway, "destinations", "resume", "orders", "shop")
    resumed = at(gateway, "show")
    assert resumed == changed | {"resumed_at_ms": resumed["resumed_at_ms"]}
    # `put` sets everything to its default, except the secret.
    anew = at(gateway, "put", "--settings", "-", stdin=json.dumps({"url": URL}))
    assert (anew["parallel_max"], anew["auth"]) == (4, made["auth"])
    hifi(gateway, "destinations", "delete", "orders", "shop", "--yes")
    listed, _ = hifi(gateway, "destinations", "list", "orders", "--json")
    assert json.loads(listed) == []


def test_whoever_changes_its_address_hears_when_what_waits_for_it_follows(
    gateway: RunningGateway,
) -> None:
    at(gateway, "put", URL)
    change = ("destinations", "change", "orders", "shop", "--set")
    out, said = hifi(gateway, *change, "parallel_max=8")
    assert (json.loads(out)["parallel_max"], said) == (8, "")
    out, said = hifi(gateway, *change, f"url={URL}/new")
    assert json.loads(out)["resumed_at_ms"] > 0
    assert "shop is tried now." in said
    assert "follow when their wait is over" in said


def test_beside_its_settings_stands_what_the_console_shows_of_it(
    gateway: RunningGateway, console: RunningConsole
) -> None:
    made = at(gateway, "put", URL)
    shown = overview(at_ms=1_790_000_000_000)
    stream = shown.streams[0]
    shop = replace(
        stream.destinations[0],
        name="shop",
        destination_id="orders/shop",
        verdict=StreamVerdict.FAILING,
        reason="0 of 9 delivered in 5 min; 503 since 13:33: no upstream",
        lately=RecentOutcomes(failed=9),
        last_ok_at_ms=1_789_999_999_000,
        last_refusal=LastAnswer(1_790_000_000_000, "status_503", "no upstream \x1b[2J"),
    )
    console.show(replace(shown, streams=(replace(stream, destinations=(shop,)),)))
    show = ("destinations", "show", "orders", "shop")
    out, said = hifi(gateway, *show, console=console.url)
    # Programs read the same JSON as before.
    assert json.loads(out) == made
    assert said.splitlines() == [
        "FAILING 0 of 9 delivered in 5 min; 503 since 13:33: no upstream",
        "Outcomes of the last 5 min: 0 delivered, 0 refused, 9 failed, 0 rate-limited",
        "Last taken at: 2026-09-21 14:13:19.000Z",
        "Last refusal: 503 at 2026-09-21 14:13:20.000Z",
        "no upstream \\x1b[2J",
    ]
    console.show(shown)
    assert "does not know it yet" in hifi(gateway, *show, console=console.url)[1]
    assert "No console answers at http://127.0.0.1:9" in hifi(gateway, *show)[1]


def test_nothing_is_removed_before_somebody_has_seen_what_waits_and_said_yes(
    gateway: RunningGateway,
) -> None:
    at(gateway, "put", URL)
    (port,) = pick_free(1)
    where = ("--kafka", "k:1", "--observe-metrics-port", str(port))
    remove = ("destinations", "delete", "orders", "shop", *where)

    def asked(answer: str) -> tuple[int, str]:
        result = CliRunner().invoke(
            app, list(remove), env={"HIFI_GATEWAY": gateway.url}, input=answer
        )
        return result.exit_code, result.stderr

    code, said = asked("")
    assert code == 1
    assert "cannot be counted: observe does not answer" in said
    rows = [
        BooksRow("orders", "shop", Balance(acked=2_007, queued=2_000, waiting=3, dead=4)),
        BooksRow("orders", "crm", Balance(acked=99, queued=99)),
    ]
    page = BooksPage("k:1", now_ms() + 3_600_000, "", rows)
    Metrics().serve(host="127.0.0.1", port=port, pages={BOOKS_PATH: page.to_json})
    code, said = asked("n\n")
    assert code == 1
    assert "2,000 queued events will not be sent. 3 that wait for a retry become dead" in said
    assert "4 dead letters stay readable" in said
    assert "Remove orders/shop?" in said
    assert at(gateway, "show")["url"] == URL
    code, said = asked("y\n")
    assert code == 0
    assert "shop is removed" in said
    with pytest.raises(UsageError, match="unknown_destination"):
        hifi(gateway, *remove)
    # Removing the stream counts the events of all its destinations.
    stream = ("streams", "delete", "orders", *where)
    result = CliRunner().invoke(app, list(stream), env={"HIFI_GATEWAY": gateway.url}, input="y\n")
    assert "2,099 queued" in result.stderr
    out, said = hifi(gateway, "streams", "list")
    assert (out, said.startswith("orders was removed 20")) == ("", True)


def test_a_mistake_is_one_sentence(gateway: RunningGateway, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="target_forbidden: url: Hifi sends to public addresses"):
        at(gateway, "put", "http://10.0.0.1/")
    with pytest.raises(UsageError, match="write it as SETTING=VALUE"):
        at(gateway, "put", URL, "--set", "colour")
    with pytest.raises(UsageError, match="cannot be read as JSON"):
        at(gateway, "put", URL, "--settings", str(tmp_path / "nothing.json"))
    with pytest.raises(UsageError, match="does not contain a JSON object"):
        at(gateway, "put", URL, "--settings", "-", stdin="[]")
    with pytest.raises(UsageError, match="unknown_destination"):
        at(gateway, "show")


def test_a_warning_is_said_beside_the_answer(gateway: RunningGateway) -> None:
    where = ("orders", "shop", "https://nowhere.invalid/")
    _, err = hifi(gateway, "destinations", "put", *where)
    assert "no such name now: 'nowhere.invalid'" in err


def test_new_keys_and_secrets_are_of_use(gateway: RunningGateway) -> None:
    key, _ = hifi(gateway, "secrets", "new-key")
    assert SecretBox([key.strip()]).has_keys
    secret, _ = hifi(gateway, "secrets", "new-signing-secret")
    assert len(signing_key(secret.strip())) == 32


def test_the_keys_of_up_are_made_once_and_for_the_owner_alone(tmp_path: Path) -> None:
    keys = secret_keys(tmp_path, {})
    assert SecretBox([keys]).has_keys
    file = tmp_path / "secret-keys"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secret_keys(tmp_path, {}) == keys
    given = new_key()
    assert secret_keys(tmp_path, {"HIFI_SECRET_KEYS": given}) == given
    file.chmod(0o644)
    with pytest.raises(SetupError, match="chmod 600"):
        secret_keys(tmp_path, {})
    with pytest.raises(SetupError, match="hifi secrets new-key"):
        secret_keys(tmp_path, {"HIFI_SECRET_KEYS": "hunter2"})
