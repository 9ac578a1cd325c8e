"""Commands load little before their first request, because people wait for that."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from deploy.cli.commands import OVER_HTTP, app

# Each takes longer to load than a command may take to start, or is not needed there.
_HEAVY = (
    *("aiokafka", "asyncio", "httpx", "importlib.metadata", "logging", "pyarrow", "pydantic"),
    *("pyspark", "rich", "starlette", "structlog", "uvicorn", "yaml"),
)
# Two thirds are from the standard library, and most others are typer's.
_MODULES_MAX = 250
# These first read documents or the defaults of settings, which loads the whole configuration.
_READ_DOCUMENTS = frozenset(
    {"apply", "delete", "export"}
    | {f"pipelines {word}" for word in ("check", "try", "create", "put", "replace")}
)
# These send no request.
_AT_HOME = frozenset({"keys new-operator-key"} | {f"profiles {word}" for word in (
    "put", "list", "get", "show", "use", "delete",
)})  # fmt: skip
# The arguments of other commands; a command that is not listed gets a name.
_CALLED = {
    "destinations": ["orders", "shop"],
    "destinations change": ["orders", "shop", "--set", "a=1"],
    "destinations list": [],
    "destinations update": ["orders", "shop", "--set", "a=1"],
    "events": ["orders"],
    "events get": ["orders", "e-1"],
    "events show": ["orders", "e-1"],
    "events resend": ["orders", "e-1"],
    "dead list": [],
    "dead export": [],
    "dead get": ["0:7"],
    "dead show": ["0:7"],
    "dead redrive": ["--stream", "orders"],
    "changes list": [],
    "channels list": [],
    "keys link": [],
    "keys list": [],
    "listen": ["orders", "--forward-to", "http://127.0.0.1:1"],
    "pipelines list": [],
    "send": ["orders", "{}"],
    "status": ["--console", "http://127.0.0.1:1"],
    "streams list": [],
    "tables list": [],
    "tenants list": [],
    "test": ["orders"],
}
# Each command runs in a copy of a process that has loaded their common modules. It reports the
# modules at its first connection, before it can report that nobody answers.
_SEE = """
import json, os, socket, sys
from deploy.cli.app import main
import deploy.cli.commands

def called(*_, **__):
    print(json.dumps([sys.argv[1:], sorted(sys.modules)]), flush=True)
    os._exit(0)

socket.create_connection = called
for arguments in json.loads(sys.stdin.read()):
    if (child := os.fork()) == 0:
        sys.argv[1:] = arguments
        try:
            main()
        finally:
            os._exit(1)
    os.waitpid(child, 0)
"""


def words() -> list[str]:
    """Return the commands that ask a gateway or a console, as people type them."""
    whole = get_command(app)
    found = []
    for name in sorted(OVER_HTTP):
        parts = getattr(whole.commands[name].loaded(), "commands", None)  # type: ignore[attr-defined]
        found += [name] if parts is None else [f"{name} {part}" for part in parts]
    return [each for each in found if each not in _READ_DOCUMENTS | _AT_HOME]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return the modules that each command had loaded at its first connection."""
    said = [
        [*each.split(), *_CALLED.get(each, _CALLED.get(each.split()[0], ["name"]))]
        for each in words()
    ]
    ended = subprocess.run(
        [sys.executable, "-c", _SEE],
        check=False,
        input=json.dumps(said),
        cwd=Path(__file__).parents[3],
        env={"HIFI_PROFILES": str(tmp_path_factory.mktemp("none") / "profiles.json")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    told = map(json.loads, ended.stdout.splitlines())
    found = {" ".join(arguments): modules for arguments, modules in told}
    silent = [" ".join(each) for each in said if " ".join(each) not in found]
    assert not silent, f"{silent} made no connection:\n{ended.stderr}"
    return found


def test_commands_load_little_before_they_ask(loaded: dict[str, list[str]]) -> None:
    assert len(loaded) > 40
    heavy = {said: sorted(set(_HEAVY) & set(modules)) for said, modules in loaded.items()}
    assert {said: found for said, found in heavy.items() if found} == {}
    counts = {said: len(modules) for said, modules in loaded.items()}
    assert {said: count for said, count in counts.items() if count > _MODULES_MAX} == {}
