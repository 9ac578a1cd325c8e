"""`hifi verify` reports by its exit code and its output what is wrong."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner, Result

from deploy.cli.events import verify
from shared.runtime.setup_error import OperatorError

app = typer.Typer()
app.command()(verify.verify)
MINUTE = "2026-11-21T19:05Z"


@pytest.mark.parametrize(
    ("mine", "problem", "code", "out"),
    [
        ("a\nb\n", "", 0, "complete\n"),
        ("b\n", "", 3, "a\n"),
        ("b\n", "the statement is not signed with that public key.", 4, ""),
    ],
)
def test_missing_ids_and_a_statement_not_to_be_trusted_are_told_apart(  # noqa: PLR0917
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mine: str,
    problem: str,
    code: int,
    out: str,
) -> None:
    theirs = SimpleNamespace(ids=frozenset({"a", "b"}))
    monkeypatch.setattr(verify, "minute_ids", lambda *_: theirs)
    monkeypatch.setattr(verify, "distrust", lambda *_: problem)
    monkeypatch.setattr(verify, "describe", lambda _: None)
    (tmp_path / "ids").write_text(mine)
    (tmp_path / "key").write_text("k")
    ended = invoke(tmp_path, "--minute", MINUTE, "--public-key", str(tmp_path / "key"))
    assert (ended.exit_code, ended.stdout) == (code, out)


def test_what_cannot_be_checked_is_no_missing_id(tmp_path: Path) -> None:
    (tmp_path / "ids").write_text("a")
    (tmp_path / "key").write_text("k")
    key = ["--public-key", str(tmp_path / "key")]
    # main() prints the sentence, and exits with its code.
    for arguments, code, says in (
        (["--minute", "yesterday", *key], 2, "is not a minute"),
        (["--minute", MINUTE, "--data", str(tmp_path)], 2, "There is no public key at"),
        (["--minute", MINUTE, *key], 7, "No gateway answers at http://127.0.0.1:1"),
    ):
        error = invoke(tmp_path, *arguments).exception
        assert isinstance(error, OperatorError)
        assert (error.exit_code, says in str(error)) == (code, True)
    assert invoke(tmp_path, "--minute").exit_code == 2


def invoke(folder: Path, *arguments: str) -> Result:
    ids = ["--ids", str(folder / "ids"), "--gateway", "http://127.0.0.1:1"]
    return CliRunner().invoke(app, ["--stream", "s", *ids, *arguments])
