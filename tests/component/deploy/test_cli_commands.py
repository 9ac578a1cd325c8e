"""`hifi` itself: what it lists is what there is, and little is loaded for it."""

import inspect
import subprocess
import sys
from importlib import import_module

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from deploy.cli.commands import PANELS, app

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
    # Of a group, its subcommands: all of them, and none besides.
    listed = summary.rstrip(".").partition(": ")[2].split(", ")
    assert isinstance(group := get_command(found), TyperGroup)
    assert sorted(listed) == sorted(group.commands)


def test_the_list_loads_none_of_them() -> None:
    says = (
        "import sys; from deploy.cli.app import main\n"
        "try: main()\n"
        "finally: print(*sorted(set(sys.modules) & set(sys.argv[2:])), file=sys.stderr)"
    )
    # What most of the time goes to, should it be loaded.
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
