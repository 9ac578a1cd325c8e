"""`hifi` itself: it lists exactly the existing commands, and loads little for that."""

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner, Result

from deploy.cli.app import main
from deploy.cli.commands import PANELS, app
from gateway.settings import Settings
from shared.config.access import ApiKey, new_text, secret_from
from shared.config.configuration import Configuration, Stream
from shared.runtime.setup_error import (
    NoAnswerError,
    NotFoundError,
    OperatorError,
    SetupError,
    UsageError,
)
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

ROOT = new_text(kind="secret", key_id="root", entropy=b"r" * 20)
ADMIN = ApiKey("root", (secret_from(ROOT, signs=False),), scopes=frozenset({"admin"}))
COMMANDS = {name: row for panel in PANELS.values() for name, row in panel.items()}


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_said_of_a_command_is_what_it_says_itself(name: str) -> None:
    place, summary = COMMANDS[name]
    module, _, attribute = place.partition(":")
    found = getattr(import_module(module), attribute)
    shown = CliRunner().invoke(app, [name, "--help"])
    assert shown.exit_code == 0
    if inspect.isfunction(found):
        assert " ".join(str(inspect.getdoc(found)).split("\n\n")[0].split()) == summary
        return
    # A group's summary lists all its subcommands except aliases, and nothing else.
    listed = summary.rstrip(".").partition(": ")[2].split(", ")
    assert isinstance(group := get_command(found), TyperGroup)
    assert sorted(listed) == sorted(name for name, it in group.commands.items() if not it.hidden)


def test_the_list_loads_none_of_them() -> None:
    says = (
        "import sys; from deploy.cli.app import main\n"
        "try: main()\n"
        "finally: print(*sorted(set(sys.modules) & set(sys.argv[2:])), file=sys.stderr)"
    )
    # These would take most of the start time if they were loaded.
    heavy = ["aiokafka", "httpx", "pyspark", "pydantic", "structlog", "deploy.cli.options"]
    ended = subprocess.run(
        [sys.executable, "-c", says, "--version", *heavy],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ended.stdout.startswith("hifi ")
    assert ended.stderr == "\n"


def test_a_shell_can_complete_them() -> None:
    environ = {"_HIFI_COMPLETE": "complete_bash", "COMP_WORDS": "hifi st", "COMP_CWORD": "1"}
    shown = CliRunner().invoke(app, [], env=environ, prog_name="hifi")
    assert shown.stdout.split() == ["status", "streams"]
    environ = {"_HIFI_COMPLETE": "complete_bash", "COMP_WORDS": "hifi keys r", "COMP_CWORD": "2"}
    shown = CliRunner().invoke(app, [], env=environ, prog_name="hifi")
    assert shown.stdout.split() == ["rotate", "revoke"]


def hifi(*arguments: str, **environ: str) -> Result:
    result = CliRunner().invoke(app, list(arguments), env=environ)
    if isinstance(result.exception, OperatorError):
        raise result.exception
    return result


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HIFI_PROFILES", str(tmp_path / "own" / "profiles.json"))
    return tmp_path / "own" / "profiles.json"


@pytest.fixture
def gateway() -> Iterator[RunningGateway]:
    keys = {"root": ADMIN}
    config = FixedConfig(Configuration(streams={"orders": Stream("orders")}, keys=keys))
    with running_gateway(FakePublisher([]), config, Settings(auth="keys")) as running:
        yield running


def test_a_profile_is_used_until_another_place_is_named(
    at_home: Path, gateway: RunningGateway
) -> None:
    made = hifi("profiles", "put", "shop", "--gateway", gateway.url, HIFI_API_KEY=ROOT)
    assert "shop is in use" in made.stderr
    assert at_home.stat().st_mode & 0o777 == 0o600
    assert hifi("streams", "list").stdout == "orders\n"
    # A profile's key is for its own gateway: it is never sent to an explicitly named gateway.
    with pytest.raises(OperatorError, match="401"):
        hifi("streams", "list", "--gateway", gateway.url)
    with pytest.raises(OperatorError, match="401"):
        hifi("streams", "list", HIFI_GATEWAY=gateway.url)
    assert hifi("streams", "list", "--gateway", gateway.url, "--api-key", ROOT).exit_code == 0
    hifi("profiles", "put", "away", "--gateway", "http://127.0.0.1:1")
    with pytest.raises(NoAnswerError, match=r"No gateway answers at http://127.0.0.1:1"):
        hifi("--profile", "away", "streams", "list")
    assert hifi("profiles", "use", "away").exit_code == 0
    with pytest.raises(NoAnswerError):
        hifi("streams", "list")
    assert hifi("--profile", "shop", "streams", "list").stdout == "orders\n"
    listed = hifi("profiles", "list").stdout.splitlines()
    assert [line.split()[:2] for line in listed[1:]] == [["*", "away"], ["shop", gateway.url]]
    assert ROOT not in "".join(listed) + hifi("profiles", "show", "shop").stdout
    hifi("profiles", "delete", "away")
    # No profile is in use now, so commands go to the gateway of `hifi up` again.
    assert json.loads(at_home.read_text())["use"] == ""


def test_what_is_wrong_with_profiles_is_said(at_home: Path) -> None:
    with pytest.raises(UsageError, match="--gateway, --console"):
        hifi("profiles", "put", "empty")
    with pytest.raises(NotFoundError, match=r"no profile shop; the profiles are: none"):
        hifi("--profile", "shop", "streams", "list")
    at_home.parent.mkdir()
    for broken in ("{", '{"use":"x"}', '{"use":"","profiles":{"a":{"gatevay":"x"}}}'):
        at_home.write_text(broken)
        with pytest.raises(SetupError, match=rf"profiles in {at_home} cannot be read"):
            hifi("streams", "list")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["streams", "show", "nobody"], 6),
        (["streams", "list", "--gateway", "http://127.0.0.1:1"], 7),
        (["streams", "list", "--api-key", "hk_wrong"], 1),
        (["streams", "list", "--no-such-option"], 2),
        (["send", "orders", "--file", "/nowhere"], 2),
        (["stremas"], 2),
    ],
)
def test_a_script_can_tell_what_went_wrong(
    arguments: list[str], code: int, gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIFI_GATEWAY", gateway.url)
    monkeypatch.setenv("HIFI_API_KEY", ROOT)
    monkeypatch.setattr(sys, "argv", ["hifi", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
