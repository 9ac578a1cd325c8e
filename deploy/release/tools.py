"""Runs programs that a release needs; a missing or failing one becomes an error in one sentence."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from shared.runtime.setup_error import SetupError

ROOT = Path(__file__).parents[2]
# The output of a program that failed: its last lines are enough to find the place.
_LINES_MAX = 20
_TIMEOUT_S = 600.0


class MissingToolError(SetupError):
    """A program is not installed, so its check is skipped."""


class ToolFailedError(SetupError):
    """A program ended with an error; the text has its last lines."""


def run(*command: str, folder: Path = ROOT, given: str = "") -> str:
    """Run a program of the virtual environment, of .tools or of the PATH; return its output."""
    name, *arguments = command
    for place in (str(Path(sys.executable).parent), str(ROOT / ".tools" / "bin"), None):
        if found := shutil.which(name, path=place):
            break
    else:
        raise MissingToolError(f"the program {name} is not installed")
    ended = subprocess.run(
        [found, *arguments],
        cwd=folder,
        input=given,
        capture_output=True,
        check=False,
        text=True,
        timeout=_TIMEOUT_S,
    )
    if ended.returncode != 0:
        lines = [line for line in (ended.stdout + ended.stderr).splitlines() if line.strip()]
        told = "".join(f"\n    {line}" for line in lines[-_LINES_MAX:])
        raise ToolFailedError(f"`{' '.join(command)}` failed:{told}")
    return ended.stdout


def attempt(*command: str, source: str, needs_all: bool, given: str = "") -> Iterator[str]:
    """Run a program; yield its error. A missing one is an error only if `needs_all`."""
    try:
        run(*command, given=given)
    except ToolFailedError as error:
        yield str(error)
    except MissingToolError as error:
        said = f"{error}, so `{' '.join(command[:3])}` does not run: get it with {source}"
        if needs_all:
            yield said
        else:
            sys.stderr.write(f"skipped: {said}.\n")


def tags(folder: Path = ROOT) -> Iterator[str]:
    """Yield the tags of releases before the present commit, newest first."""
    listed = run(
        *("git", "tag", "--list", "v*", "--sort=-version:refname"),
        *("--merged", "HEAD", "--no-contains", "HEAD"),
        folder=folder,
    )
    yield from listed.split()


def at_tag(tag: str, path: str, folder: Path = ROOT) -> str | None:
    """Return a file's text at a tag; None if it was not there."""
    with suppress(ToolFailedError):
        return run("git", "show", f"{tag}:{path}", folder=folder)
    return None
