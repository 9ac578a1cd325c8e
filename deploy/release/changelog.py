"""Reads the section of one version from CHANGELOG.md; prints it as the notes of a release."""

import re
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import NamedTuple

from deploy.release.tools import ROOT

FILE = "CHANGELOG.md"
_HEAD = re.compile(r"^## (?P<version>\S+)(?: - (?P<date>\S+))?[ \t]*$", re.MULTILINE)


class ReleaseNotes(NamedTuple):
    """A version's section of the changelog; the date is as written, and may be missing."""

    version: str
    date: str | None
    text: str


def sections(changelog: str) -> Iterator[ReleaseNotes]:
    """Yield the sections from the top, which is the newest."""
    heads = list(_HEAD.finditer(changelog))
    ends = [head.start() for head in heads[1:]] + [len(changelog)]
    for head, end in zip(heads, ends, strict=True):
        yield ReleaseNotes(head["version"], head["date"], changelog[head.end() : end].strip())


def problems(changelog: str, version: str) -> Iterator[str]:
    """Yield what is missing for a release of this version."""
    found = {each.version: each for each in sections(changelog)}
    section = found.get(version)
    if section is None:
        yield f"{FILE} has no section `## {version} - YYYY-MM-DD`: write it"
        return
    if not _is_date(section.date):
        yield f"{FILE}: the section {version} has no date: write `## {version} - YYYY-MM-DD`"
    if not section.text:
        yield f"{FILE}: the section {version} is empty: say what changed"
    unreleased = found.get("Unreleased")
    if unreleased is None or next(iter(found)) != "Unreleased":
        yield f"{FILE} does not begin with `## Unreleased`: add it above {version}"
    elif unreleased.text:
        yield f"{FILE}: Unreleased has entries: move them to {version}"


def _is_date(text: str | None) -> bool:
    try:
        return date.fromisoformat(text or "").isoformat() == text
    except ValueError:
        return False


def main(version: str, path: Path = ROOT / FILE) -> None:
    """Print the text of a version's section."""
    found = {each.version: each.text for each in sections(path.read_text(encoding="utf-8"))}
    if version not in found:
        sys.exit(f"{FILE} has no section {version}.")
    sys.stdout.write(f"{found[version]}\n")


if __name__ == "__main__":
    main(sys.argv[1].removeprefix("v"))
