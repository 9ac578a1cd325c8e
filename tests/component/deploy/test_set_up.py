"""`make test` installs or names missing programs; their tests are skipped, and fail in CI."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy import sources

# Programs of an empty system, without those that `.ci/programs` looks for.
_OF_THE_SYSTEM = ("bash", "id", "env", "cat", "chmod")
_TESTS = """
import pytest
from tests.support.suite.programs import program

def test_that_needs_it():
    program("no-such-program", "nor-this")

def test_that_needs_nothing():
    pass

@pytest.mark.xfail
def test_that_is_known_to_fail():
    assert False
"""


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Make a folder for PATH with very few programs; its `apt-get` records its arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in _OF_THE_SYSTEM:
        (folder / name).symlink_to(next(Path("/usr/bin").glob(name)))
    return folder


def program_of(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


def programs(bare: Path, *arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sources.ROOT / ".ci" / "programs", *arguments],
        env={"PATH": str(bare), **env},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )


def test_who_may_not_install_is_told_in_one_sentence_what_is_missing(bare: Path) -> None:
    program_of(bare, "id", "echo 1000")
    program_of(bare, "apt-get", "exit 9")
    ran = programs(bare)
    assert ran.returncode == 0
    (line,) = ran.stderr.splitlines()
    assert line.startswith("This machine lacks promtool, prometheus, chromium, node, npm, git, ")
    assert "the tests that need them are skipped" in line
    packages = "prometheus chromium nodejs npm git curl iproute2 procps systemd wrk squid"
    packages += " nghttp2-server nginx-light"
    assert line.endswith(f"sudo apt-get install {packages}).")
    assert ran.stdout == ""


def test_root_has_what_is_missing_installed_and_nothing_else(bare: Path, tmp_path: Path) -> None:
    program_of(bare, "id", "echo 0")
    there = "promtool prometheus google-chrome node npm git curl ip squid nghttpd nginx"
    for name in there.split():
        program_of(bare, name, "exit 0")
    asked = tmp_path / "asked"
    install = f'echo "$@" >> {asked}; [ "$1" = update ] || cp {bare}/git {bare}/"${{!#}}"'
    # One package has programs with other names.
    aliases = f"for n in pgrep systemd-analyze; do cp {bare}/git {bare}/$n; done"
    program_of(bare, "apt-get", f'{install}; [ "$1" = update ] || {aliases}')
    (bare / "cp").symlink_to("/usr/bin/cp")
    ran = programs(bare)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "Installing procps systemd wrk ...\n"
    update, once = asked.read_text().splitlines()
    assert update == "update -qq"
    assert once == "install -qq -y --no-install-recommends procps systemd wrk"
    assert programs(bare).stdout == ""


def test_a_package_that_there_is_not_keeps_the_others_in(bare: Path, tmp_path: Path) -> None:
    program_of(bare, "id", "echo 0")
    (bare / "cp").symlink_to("/usr/bin/cp")
    install = f"for n; do [ $n = chromium ] && exit 1; done; for n; do cp {bare}/id {bare}/$n; done"
    program_of(bare, "apt-get", f"cd {tmp_path}; {install}")
    ran = programs(bare)
    assert ran.returncode == 0
    assert "chromium" in ran.stderr
    assert "wrk" not in ran.stderr
    assert "curl" not in ran.stderr


def test_a_python_without_venv_is_one_sentence_and_an_error(bare: Path) -> None:
    program_of(bare, "id", "echo 1000")
    program_of(bare, "python3", "exit 1")
    ran = programs(bare, "venv")
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert line.startswith("Hifi needs the module venv of Python")
    assert "apt-get install python3-venv" in line
    assert programs(bare, "venv", PYTHON=sys.executable).returncode == 0


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_a_test_without_its_program_is_skipped_by_name_and_fails_where_nobody_reads(
    tmp_path: Path, ci: str, code: int
) -> None:
    (tmp_path / "test_some.py").write_text(_TESTS)
    listed = tmp_path / "listed"
    argv = ["-m", "pytest", "-p", "tests.support.suite.skips", "-c", "/dev/null", "-q", "--rootdir"]
    ran = subprocess.run(
        [sys.executable, *argv, tmp_path, tmp_path],
        env={**os.environ, "CI": ci, "PYTEST_SKIPPED": str(listed), "PYTHONPATH": "."},
        cwd=sources.ROOT,
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert "test_some.py::test_that_needs_it" in ran.stdout
    assert "this machine lacks no-such-program" in ran.stdout
    if ci:
        assert "1 failed, 1 passed, 1 xfailed" in ran.stdout
        assert not listed.exists()
    else:
        assert "1 tests were skipped: this machine lacks no-such-program (1)." in ran.stdout
        assert listed.read_text() == "this machine lacks no-such-program\n"
