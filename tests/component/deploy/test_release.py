"""The rehearsal of a release finds breaks of the HTTP API and the findings of other programs."""

import json
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from deploy.release import check, http_api, linters, tools
from deploy.release.linters import Linter
from shared.runtime.setup_error import SetupError
from tests.support.suite.programs import program

PATH = "/v1/streams/{stream}"


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """Return a repository with a tag, whose document is this gateway's, and one more commit."""
    (tmp_path / "docs").mkdir()
    (tmp_path / http_api.DOCUMENT).write_text(http_api.current_document())
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "Begin")
    git(tmp_path, "tag", "v0.1.0")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "Go on")
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgSign=false")
    subprocess.run([program("git"), *who, *arguments], cwd=folder, check=True, timeout=60)


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(http_api.current_document())
    return found


def test_the_committed_document_is_current_and_breaks_no_client_of_the_last_release() -> None:
    assert list(http_api.problems()) == []
    assert PATH in json.loads((tools.ROOT / http_api.DOCUMENT).read_text())["paths"]


def test_a_break_since_the_last_release_is_found(released: Path) -> None:
    assert list(http_api.problems(released)) == []
    broken = document()
    del broken["paths"][PATH]["delete"]
    schema = broken["components"]["schemas"]["Destination"]["properties"]
    del schema["timeout_s"]
    found = list(http_api.broken_since_release(broken, released))
    assert f"docs/openapi.json: DELETE {PATH} is gone since v0.1.0: put it back" in found
    assert any("timeout_s` is gone since v0.1.0" in each for each in found)


def test_an_addition_since_the_last_release_is_none(released: Path) -> None:
    more = deepcopy(document())
    more["paths"]["/v1/more"] = more["paths"][PATH]
    assert list(http_api.broken_since_release(more, released)) == []


def test_only_releases_before_this_commit_count(released: Path) -> None:
    git(released, "tag", "v0.2.0")
    assert list(tools.tags(released)) == ["v0.1.0"]
    git(released, "commit", "--quiet", "--allow-empty", "--message", "Go on")
    assert list(tools.tags(released)) == ["v0.2.0", "v0.1.0"]


def test_a_document_that_is_behind_is_found(released: Path) -> None:
    (released / http_api.DOCUMENT).write_text(json.dumps(document()))
    (found,) = http_api.problems(released)
    assert found.endswith("run `python docs/generate.py`")


def test_what_a_program_finds_is_a_problem() -> None:
    says = Linter(("python3", "-c", "import sys; sys.exit('line 3 is wrong')"), "")
    reads = Linter(("python3", "-c", "import sys; sys.exit(sys.stdin.read())"), "", "given text")
    quiet = Linter(("python3", "-c", ""), "")
    first, second = linters.problems(linters=[says, quiet, reads])
    assert first.endswith("failed:\n    line 3 is wrong")
    assert second.endswith("failed:\n    given text")


def test_a_missing_program_is_named_and_a_problem_only_if_all_are_needed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    missing = [Linter(("no-such-linter", "check"), "`make setup`")]
    assert list(linters.problems(linters=missing)) == []
    said = (
        "the program no-such-linter is not installed, so `no-such-linter check` does not run:"
        " get it with `make setup`"
    )
    assert capsys.readouterr().err == f"skipped: {said}.\n"
    assert list(linters.problems(linters=missing, needs_all=True)) == [said]


def test_the_rehearsal_counts_what_each_check_finds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> list[str]:
        raise SetupError("uv failed")

    found: dict[str, Any] = {"versions": list, "packages": fails}
    monkeypatch.setattr(check, "checks", lambda *_, **__: found)
    assert check.main([]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["versions: no problems", "packages: 1 problem", "  uv failed."]
    assert lines[3].endswith("cannot be released.")
    monkeypatch.setattr(check, "checks", lambda *_, **__: {"versions": list})
    assert check.main([]) == 0
