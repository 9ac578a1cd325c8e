"""Reads patches that put fixed defects back, and checks that the test or run they name finds them.

A patch is a diff for `git apply` below two lines: `what:` describes the defect in a sentence, and
`found by:` names a test, or `make chaos ARGS="..." as KIND`, with the kind of finding.
"""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from xml.etree import ElementTree as ET

from tests.chaos.__main__ import arguments
from tests.support.suite.programs import program
from tests.tidy.sources import ROOT

FOLDER = Path(__file__).parent
_CHAOS = re.compile(r'make chaos ARGS="(.*)" as (.+)')
_TIMEOUT_S = 900
# The beginnings of pytest's message about a test that found something; a broken test has others.
_ASSERTED = ("AssertionError", "assert ", "Failed: DID NOT RAISE")


class UselessDefectError(Exception):
    """A patch does not apply, or the named test or run does not find the defect."""


@dataclass(frozen=True, slots=True)
class Defect:
    patch: Path
    what: str
    found_by: str

    @classmethod
    def read(cls, patch: Path) -> Self:
        first, second, *_ = patch.read_text().splitlines()
        for line, name in ((first, "what: "), (second, "found by: ")):
            if not line.startswith(name):
                raise UselessDefectError(f"{patch.name}: a line begins with {name!r}, not {line!r}")
        return cls(patch, first.removeprefix("what: "), second.removeprefix("found by: "))

    def require_finder(self) -> None:
        """Raise UselessDefectError unless the named test exists."""
        if chaos := _CHAOS.fullmatch(self.found_by):
            # Wrong arguments end the process with a sentence of their own.
            arguments(shlex.split(chaos[1]))
            return
        path, *names = self.found_by.partition("[")[0].split("::")
        within: ast.AST | None = ast.parse((ROOT / path).read_text())
        for name in names:
            inner = ast.iter_child_nodes(within) if within else ()
            within = next((one for one in inner if getattr(one, "name", "") == name), None)
        if within is None or not names:
            raise UselessDefectError(f"{self.patch.name}: there is no test {self.found_by}")

    def apply(self, tree: Path, *, only_checks: bool = False) -> None:
        how = ["--check"] if only_checks else []
        answer = _run([program("git"), "apply", *how, str(self.patch)], tree)
        if answer.returncode:
            raise UselessDefectError(f"{self.patch.name} does not apply: {answer.stderr}")

    def find_in(self, tree: Path) -> str:
        """Run the named test or chaos run in a tree with the defect; return its finding."""
        from_tree = _run([sys.executable, "-c", "import gateway; print(gateway.__file__)"], tree)
        assert from_tree.stdout.startswith(str(tree)), from_tree.stdout
        if chaos := _CHAOS.fullmatch(self.found_by):
            return self._found_by_chaos(tree, shlex.split(chaos[1]), chaos[2])
        return self._found_by_test(tree)

    def _found_by_chaos(self, tree: Path, words: list[str], kind: str) -> str:
        answer = _run([sys.executable, "-m", "tests.chaos", *words], tree)
        last = (answer.stdout.splitlines() or [""])[-1]
        said = json.loads(last.partition("{")[1] + last.partition("{")[2] or "{}")
        # The exit code is 1 for findings, and also for a failure, which has no last line of JSON.
        found = [one["says"] for one in said.get("findings", []) if one["what"] == kind]
        if not found:
            end = (answer.stdout + answer.stderr)[-2_000:]
            raise UselessDefectError(f"{self.patch.name}: chaos found no {kind}: {end}")
        return "; ".join(found)

    def _found_by_test(self, tree: Path) -> str:
        report = tree / "report.xml"
        pytest = [sys.executable, "-m", "pytest", "-q", "-m", "", f"--junitxml={report}"]
        answer = _run([*pytest, self.found_by], tree)
        end = answer.stdout[-2_000:]
        if not report.exists():
            raise UselessDefectError(f"{self.patch.name}: no test ran: {end}")
        cases = list(ET.parse(report).iter("testcase"))
        said = [one.get("message", "") for case in cases for one in case.findall("failure")]
        asserted = [one for one in said if one.startswith(_ASSERTED)]
        if not asserted:
            raise UselessDefectError(f"{self.patch.name}: {self.found_by} asserts nothing: {end}")
        return asserted[0]


def all_defects() -> list[Path]:
    return sorted(FOLDER.glob("*.patch"))


def copy_tree(to: Path) -> None:
    """Copy all files that git does not ignore, and link this environment."""
    listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = _run([program("git"), *listing], ROOT)
    for name in filter(None, set(listed.stdout.split("\0"))):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    (to / ".venv").symlink_to(ROOT / ".venv")


def _run(argv: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    # These must come before the installed packages, which belong to the original tree.
    paths = [str(folder), str(folder / "clients" / "python")]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    # These belong to the run that this one is a part of.
    for name in ("PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST"):
        environ.pop(name, None)
    return subprocess.run(
        argv,
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
