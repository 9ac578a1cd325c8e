"""Exit codes of commands that ask a gateway: what scripts can rely on (docs/commands.md)."""

from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from deploy.cli.commands import OVER_HTTP, app
from gateway.settings import Settings
from shared.config.access import SCOPES, ApiKey, new_text, secret_from
from shared.config.configuration import Configuration, Stream
from shared.runtime.setup_error import OperatorError
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

ROOT = new_text(kind="secret", key_id="root", entropy=b"r" * 20)
ADMIN = ApiKey("root", (secret_from(ROOT, signs=False),), scopes=SCOPES)
NOBODY = "http://127.0.0.1:1"
# Each names objects that do not exist; commands that need a file run without one.
CALLED = {
    "changes list": "",
    "channels create": "new --via webhook --url https://1.1.1.1/",
    "channels delete": "nobody --yes",
    "channels get": "nobody",
    "channels list": "",
    "channels put": "new --via webhook --url https://1.1.1.1/",
    "channels test": "nobody",
    "channels update": "nobody --about loss",
    "dead export": "",
    "dead get": "0:999",
    "dead list": "",
    "dead redrive": "--stream nobody",
    "destinations create": "nobody none https://1.1.1.1/",
    "destinations delete": "nobody none --yes",
    "destinations get": "nobody none",
    "destinations list": "nobody",
    "destinations pause": "nobody none",
    "destinations put": "nobody none https://1.1.1.1/",
    "destinations resume": "nobody none",
    "destinations update": "nobody none --set parallel_max=2",
    "events get": "nobody e-1",
    "events list": "nobody",
    "events resend": "nobody e-1",
    "events tail": "nobody",
    "export": "nobody",
    "keys create": "one --scope read",
    "keys get": "nobody",
    "keys link": "",
    "keys list": "",
    "keys revoke": "nobody",
    "keys rotate": "nobody",
    "listen": "nobody --forward-to http://127.0.0.1:1",
    "pipelines delete": "nobody --yes",
    "pipelines get": "nobody",
    "pipelines give-up": "nobody",
    "pipelines list": "",
    "receipt": "01a1ff25-35c5-7a5b-b0e6-761692f0e9b6",
    "send": "nobody {}",
    "streams create": "new",
    "streams delete": "nobody --yes",
    "streams get": "nobody",
    "streams list": "",
    "streams put": "new",
    "streams spread": "nobody",
    "streams update": "nobody --partitions 9",
    "tables create": "new",
    "tables delete": "nobody --yes",
    "tables get": "nobody",
    "tables list": "",
    "tables put": "new",
    "tables update": "nobody --mib-max 2",
    "tenants create": "new --events-per-s 9",
    "tenants delete": "nobody",
    "tenants get": "nobody",
    "tenants list": "",
    "tenants put": "new --events-per-s 9",
    "tenants update": "nobody --events-per-s 9",
    "test": "nobody",
}
# These read documents, or ask no gateway; other tests run them.
OTHERS = {
    *("apply", "delete", "status", "keys new-operator-key"),
    *(f"pipelines {word}" for word in ("check", "try", "create", "put", "replace")),
    *(f"profiles {word}" for word in ("put", "list", "get", "use", "delete")),
}


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    config = FixedConfig(Configuration(streams={"orders": Stream("orders")}, keys={"root": ADMIN}))
    with running_gateway(FakePublisher([]), config, Settings(auth="keys")) as running:
        yield running


def ended(said: str, gateway: str, *, key: str = ROOT) -> tuple[int, str]:
    """Return a command's exit code and its output, with the sentence of an error at the end."""
    environ = {"HIFI_GATEWAY": gateway, "HIFI_API_KEY": key, "HIFI_CONSOLE": NOBODY}
    result = CliRunner().invoke(app, said.split(), env=environ)
    error: Any = result.exception
    if isinstance(error, OperatorError):
        return error.exit_code, f"{result.output}{error}"
    assert error is None or isinstance(error, SystemExit), f"{said}: {error!r}"
    return result.exit_code, result.output


def test_all_that_ask_a_gateway_are_here() -> None:
    whole: Any = get_command(app)
    found = set()
    for name in OVER_HTTP:
        parts = getattr(whole.commands[name].loaded(), "commands", {"": None})
        listed = [part for part, its in parts.items() if not (its and its.hidden)]
        found |= {f"{name} {part}".strip() for part in listed}
    assert found == CALLED.keys() | OTHERS


@pytest.mark.parametrize("command", CALLED)
def test_a_script_can_tell_how_it_ended(gateway: RunningGateway, command: str) -> None:
    said = f"{command} {CALLED[command]}"
    if "nobody" in said or command in {"dead get", "receipt"}:
        code, text = ended(said, gateway.url)
        assert code == 6, text
    code, text = ended(said, NOBODY)
    assert code == 7, text
    assert f"No gateway answers at {NOBODY} (" in text
    code, text = ended(said, "localhost:8080")
    assert code == 2, text
    assert "'localhost:8080' is not an address: write it as http://" in text
    code, text = ended(said, gateway.url, key="hifisk_wrong")
    assert code == 1, text
    assert "401" in text
    code, text = ended(f"{said} --no-such-option", gateway.url)
    assert code == 2, text
    assert "--no-such-option" in text
