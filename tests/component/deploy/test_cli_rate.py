"""`hifi rate` hands over what it was asked, keeps a key to itself, and says what lacks."""

import subprocess
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from deploy.cli.capacity import rate
from shared.runtime.setup_error import UsageError

app = typer.Typer()
app.command()(rate.rate)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_what_was_asked_for_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def run(argv: list[str], **options: Any) -> SimpleNamespace:
        seen.update(argv=argv, **options)
        return SimpleNamespace(returncode=3)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(rate, "find_spec", lambda _: object())
    ended = invoke(
        "whole", "--gateway", "http://10.0.0.5:8080", "--rate", "5000", "--api-key", "k1"
    )
    assert ended.exit_code == 3, "what the load test ends with"
    argv = seen["argv"]
    assert argv[1:4] == ["-m", "loadtests", "whole"]
    given = dict(zip(argv[4::2], argv[5::2], strict=True))
    assert given["--gateway"] == "http://10.0.0.5:8080"
    assert given["--rate"] == "5000.0"
    assert given["--batch"] == "100"
    assert "--start" not in given
    assert "k1" not in " ".join(argv), "everybody on a machine can read arguments"
    assert seen["env"]["HIFI_API_KEY"] == "k1"


def test_where_the_load_tests_are_not_it_is_said_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rate, "find_spec", lambda name: None if name == "locust" else object())
    refused = invoke().exception
    assert isinstance(refused, UsageError)
    assert "Ratings need locust" in str(refused)
    assert "make rate" in str(refused)


def test_what_cannot_be_rated_is_refused() -> None:
    assert invoke("everything").exit_code == 2
    assert invoke("--batch", "0").exit_code == 2
    assert invoke("--event-bytes", "10").exit_code == 2
