"""`--output` of each command that shows objects: a table, JSON, YAML or names only."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner, Result

from deploy.cli.commands import app
from deploy.cli.printing import print_one
from gateway.settings import Settings
from shared.config.access import Tenant
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from shared.config.table import Table
from shared.runtime.secret_box import new_key
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import (
    FakeDeadLetters,
    FixedConfig,
    RunningGateway,
    a_dead_letter,
    running_gateway,
)

SHOP = Destination("orders", "shop", "https://1.1.1.1/in")
SHOWING = {"list", "show", "get"}
# The names that each command lists.
LISTS = {
    ("streams", "list"): ["bills", "orders"],
    ("destinations", "list"): ["orders/shop"],
    ("destinations", "list", "orders"): ["shop"],
    ("tables", "list"): ["prices"],
    ("pipelines", "list"): [],
    ("keys", "list"): [],
    ("tenants", "list"): ["acme"],
    ("profiles", "list"): ["away"],
    ("dead", "list"): ["0:7"],
}
ONES = {
    ("streams", "show", "orders"): "orders",
    ("destinations", "show", "orders", "shop"): "shop",
    ("tables", "show", "prices"): "prices",
    ("profiles", "show", "away"): "away",
    ("dead", "show", "0:7"): "0:7",
}


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[RunningGateway]:
    monkeypatch.setenv("HIFI_SECRET_KEYS", new_key())
    monkeypatch.setenv("HIFI_PROFILES", str(tmp_path / "profiles.json"))
    monkeypatch.setenv("HIFI_CONSOLE", "http://127.0.0.1:9")
    streams = {name: Stream(name) for name in ("orders", "bills")}
    config = FixedConfig(
        Configuration(
            streams=streams,
            destinations={SHOP.id: SHOP},
            tables={"prices": Table("prices")},
            tenants={"acme": Tenant("acme", events_per_s=5_000)},
        )
    )
    letters = FakeDeadLetters([a_dead_letter(7)])
    with running_gateway(
        FakePublisher([]), config, Settings(auth="off"), dead_letters=letters
    ) as running:
        hifi(running, "profiles", "put", "away", "--gateway", "http://127.0.0.1:1")
        hifi(running, "profiles", "use", "away")
        yield running


def hifi(gateway: RunningGateway, *arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments), env={"HIFI_GATEWAY": gateway.url})
    assert not result.exception or isinstance(result.exception, SystemExit), result.exception
    return result


def commands() -> Iterator[tuple[str, Any]]:
    whole: Any = get_command(app)
    for name, command in whole.commands.items():
        found = command.loaded()
        for part, its in getattr(found, "commands", {"": found}).items():
            yield f"{name} {part}".strip(), its


def test_every_command_that_shows_something_takes_it() -> None:
    options = {name: {o for param in its.params for o in param.opts} for name, its in commands()}
    showing = [name for name in options if SHOWING & set(name.split())]
    assert len(showing) > 15
    others = {"apply", "delete", "export", "status", "top", "receipt", "streams spread", "send"}
    # These describe a machine for its operator, or print endless output.
    json_alone = {"doctor", "tail", "rate", "plan", "size", "simulate", "soak", "verify"}
    speaking_json = {name for name, offered in options.items() if "--json" in offered}
    for name in {*showing, *others, *speaking_json} - json_alone:
        assert {"--output", "-o", "--json"} <= options[name], name


@pytest.mark.parametrize(("command", "names"), LISTS.items(), ids=" ".join)
def test_a_list_comes_as_it_is_asked_for(
    gateway: RunningGateway, command: tuple[str, ...], names: list[str]
) -> None:
    assert hifi(gateway, *command, "-o", "name").stdout.split() == names
    listed = hifi(gateway, *command, "--json").stdout
    assert hifi(gateway, *command, "-o", "json").stdout == listed
    written = hifi(gateway, *command, "--output", "yaml").stdout
    assert yaml.safe_load(written) == json.loads(listed)
    table = hifi(gateway, *command, "-o", "table").stdout.splitlines()
    assert len(table) == 1 + len(names)
    if command != ("streams", "list"):
        # `streams list` prints names only, because scripts rely on that.
        assert hifi(gateway, *command).stdout.splitlines() == table


@pytest.mark.parametrize(("command", "name"), ONES.items(), ids=str)
def test_one_comes_as_it_is_asked_for(
    gateway: RunningGateway, command: tuple[str, ...], name: str
) -> None:
    shown = hifi(gateway, *command).stdout
    assert hifi(gateway, *command, "--json").stdout == shown
    assert yaml.safe_load(hifi(gateway, *command, "-o", "yaml").stdout) == json.loads(shown)
    assert hifi(gateway, *command, "-o", "name").stdout == f"{name}\n"
    head, *lines = hifi(gateway, *command, "-o", "table").stdout.splitlines()
    assert head.split() == ["setting", "value"]
    assert [line.split()[0] for line in lines] == [*json.loads(shown)]


@pytest.mark.parametrize("wrong", [["-o", "xml"], ["-o"], ["--json", "-o", "yaml"], ["--jsn"]])
def test_a_form_that_there_is_not_is_told(gateway: RunningGateway, wrong: list[str]) -> None:
    ended = hifi(gateway, "streams", "list", *wrong)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert wrong[-2:][0] in ended.stderr or "--output" in ended.stderr


def test_what_comes_from_events_moves_no_cursor_in_any_form(
    capsys: pytest.CaptureFixture[str],
) -> None:
    thing = {"id": "\x1b[2J\x9b", "long": "x" * 9_000, "no": "NO", "at": "12:30", "n": "010"}
    for form in ("table", "json", "yaml", "name"):
        print_one(form, thing, name=thing["id"])
        said = capsys.readouterr().out
        assert "\x1b" not in said
        if form == "yaml":
            assert yaml.safe_load(said) == thing
        if form == "table":
            assert "9,000 characters" in said


def test_a_shell_completes_the_forms() -> None:
    environ = {
        "_HIFI_COMPLETE": "complete_bash",
        "COMP_WORDS": "hifi streams list -o ",
        "COMP_CWORD": "4",
    }
    shown = CliRunner().invoke(app, [], env=environ, prog_name="hifi")
    assert shown.stdout.split() == ["table", "json", "yaml", "name"]


def test_the_same_words_do_the_same_to_every_kind(gateway: RunningGateway) -> None:
    def said(*arguments: str) -> Any:
        done = hifi(gateway, *arguments)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    kinds: dict[tuple[str, ...], list[str]] = {
        ("streams", "new"): ["--key-pointer", "/a"],
        ("tables", "new"): ["--row-bytes-max", "9"],
        ("tenants", "new"): ["--events-per-s", "9"],
        ("destinations", "orders", "new"): ["https://1.1.1.1/"],
    }
    for (kind, *names), settings in kinds.items():
        made = said(kind, "create", *names, *settings)
        assert said(kind, "get", *names) == said(kind, "show", *names) == made
        # `create` refuses what exists; `put` replaces it.
        with pytest.raises(AssertionError, match="already: change it with `put`"):
            hifi(gateway, kind, "create", *names, *settings)
        assert said(kind, "put", *names, *settings) == made
        assert hifi(gateway, kind, "delete", *names, *_yes(kind)).exit_code == 0
        with pytest.raises(AssertionError, match="404"):
            hifi(gateway, kind, "get", *names)


def test_an_update_changes_what_is_said_and_nothing_else(gateway: RunningGateway) -> None:
    def shown(*arguments: str) -> Any:
        return json.loads(hifi(gateway, *arguments).stdout)

    before = shown("streams", "put", "new", "--key-pointer", "/a", "--partitions", "3")
    after = shown("streams", "update", "new", "--partitions", "5")
    assert after == before | {"partition_count": 5}
    before = shown("tables", "put", "new", "--row-bytes-max", "9", "--written-by", "sales")
    assert shown("tables", "update", "new", "--mib-max", "2") == before | {"bytes_max": 2_097_152}
    before = shown("tenants", "put", "new", "--events-per-s", "9", "--functions", "f.g")
    after = shown("tenants", "update", "new", "--keys-max", "2")
    assert after == before | {"keys_max": 2}
    change = ["orders", "shop", "--set", "parallel_max=7"]
    after = shown("destinations", "update", *change)
    assert after == shown("destinations", "change", *change)
    with pytest.raises(AssertionError, match="404 unknown_stream"):
        hifi(gateway, "streams", "update", "nowhere", "--partitions", "2")


def test_a_key_is_deleted_as_it_is_revoked(gateway: RunningGateway) -> None:
    for word in ("delete", "revoke"):
        hifi(gateway, "keys", "create", "shop")
        assert hifi(gateway, "keys", "list", "-o", "name").stdout == "shop\n"
        hifi(gateway, "keys", word, "shop")
        assert hifi(gateway, "keys", "list", "-o", "name").stdout == ""


def test_old_words_go_on_and_no_list_shows_them() -> None:
    hidden = {name for name, its in commands() if its.hidden}
    assert {"streams show", "destinations change", "keys delete", "dead show"} <= hidden
    listed = CliRunner().invoke(app, ["streams", "--help"]).stdout
    assert " get " in listed
    assert " show " not in listed


def _yes(kind: str) -> list[str]:
    return [] if kind == "tenants" else ["--yes"]
