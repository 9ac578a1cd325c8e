"""Rehearses a release with what works offline: `make release-check`.

It compares versions, changelog and the HTTP API, runs the linters, and builds all packages. Images,
signatures and uploads are left to the workflow. Each problem is a sentence with its remedy.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from deploy.release import changelog, http_api, linters, packages, versions
from deploy.release.tools import ROOT
from shared.runtime.setup_error import SetupError

_Check = Callable[[], Iterable[str]]


def checks(folder: Path, *, tag: str | None, needs_all: bool) -> Mapping[str, _Check]:
    """Return the checks by their names; packages are built into the folder."""
    text = (ROOT / changelog.FILE).read_text(encoding="utf-8")
    return {
        "versions": partial(versions.problems, tag=tag),
        "changelog": partial(changelog.problems, text, versions.version()),
        "HTTP API": http_api.problems,
        "linters": partial(linters.problems, needs_all=needs_all),
        "packages and bills of materials": partial(packages.build, folder, needs_all=needs_all),
    }


def found_by(check: _Check) -> list[str]:
    """Return the problems that a check finds; an error of a program is one of them."""
    found: list[str] = []
    try:
        found.extend(check())
    except SetupError as error:
        found.append(str(error))
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.release.check")
    parser.add_argument("--tag", help="Require this tag to name the version, as in v0.1.0.")
    parser.add_argument("--all", action="store_true", help="Require every program.")
    given = parser.parse_args(arguments)
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, check in checks(Path(folder), tag=given.tag, needs_all=given.all).items():
            found = found_by(check)
            count += len(found)
            sys.stdout.write(f"{name}: {len(found) or 'no'} problem{'s' * (len(found) != 1)}\n")
            sys.stdout.write("".join(f"  {each}.\n" for each in found))
    ours = versions.version()
    sys.stdout.write(f"{ours} {'cannot' if count else 'can'} be released.\n")
    return 1 if count else 0


if __name__ == "__main__":
    raise SystemExit(main())
