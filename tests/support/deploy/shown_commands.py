"""Runs the commands in pages of the documentation like a reader, and compares the output.

A page's ```console blocks are one session of one shell, from top to bottom. `...` in the shown
output stands for anything, and on a line of its own for other lines.
"""

import os
import re
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from tests.support.deploy.stack_fixtures import PATIENCE_S
from tests.tidy import sources

# Commands that the reader runs once, and that a test has already run.
_DONE = ("make up", "source ")
# Repeating these does more than running them once.
_ONCE = ("hifi send ", "AT=", "export ", "hifi keys ", "hifi dead redrive ")
_SENDS = re.compile(r"\bcurl\b.* (-d|--data\S*|-X|-H|-T|-F) ")
# A block in a step of a list is indented.
_BLOCK = re.compile(r"^ *```console\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_CONTINUED = re.compile(r"\\\n\s*")


# The README shows a past run: these parts differ each time.
_OF_A_RUN = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}|(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d|\b\d+:\d+\b"
    r"|\d+\.\d\d s|[\d,]+ events/s"
)
README = "../README.md"


class ShownCommand(NamedTuple):
    command: str
    says: str


def shown(page: str, names: Mapping[str, str]) -> list[ShownCommand]:
    """Return the commands of a page (its path in docs/), with its own names replaced."""
    text = (sources.ROOT / "docs" / page).read_text()
    for name, other in names.items():
        text = text.replace(name, other)
    blocks = [textwrap.dedent(block[1]) for block in _BLOCK.finditer(text)]
    found = []
    for part in re.split(r"^\$ ", _CONTINUED.sub(" ", "".join(blocks)), flags=re.MULTILINE)[1:]:
        command, _, says = part.partition("\n")
        if page == README:
            says = _OF_A_RUN.sub("...", says)
        if not command.startswith(_DONE):
            found.append(ShownCommand(command, says))
    return found


class Terminal:
    """One shell; its background processes end with it."""

    def __init__(
        self,
        folder: Path,
        environ: Mapping[str, str],
        shell: Sequence[str] = ("bash", "--norc"),
    ) -> None:
        self._folder = folder
        for name in ("examples", "deploy"):
            (folder / name).symlink_to(sources.ROOT / name)
        path = os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])
        python_path = os.pathsep.join([str(sources.ROOT), str(sources.ROOT / "clients" / "python")])
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("HIFI_")}
        kept = {"PATH": path, "PYTHONPATH": python_path, "COLUMNS": "200"}
        self._process = subprocess.Popen(
            shell,
            cwd=folder,
            env={**inherited, **kept, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )

    def do(self, one: ShownCommand, *, timeout_s: float = PATIENCE_S) -> None:
        """Run a command, repeatedly if that does no harm, until the shown output appears."""
        until_s = time.monotonic() + timeout_s
        while True:
            code, told = self._say(one.command)
            if code == 0 and (not one.says or is_shown(one.says, told)):
                return
            is_once = one.command.startswith(_ONCE) or _SENDS.search(one.command) is not None
            may_repeat = not is_once and time.monotonic() < until_s
            assert may_repeat, f"$ {one.command}\n{told}(exit code {code}), not:\n{one.says}"
            time.sleep(1)

    def _say(self, command: str) -> tuple[int, str]:
        end = uuid.uuid4().hex
        source, answers = self._ends()
        # The input is empty, as a command that reads input would otherwise read the next command.
        source.write(f"{{ {command}\n}} </dev/null\necho {end} $?\n")
        source.flush()
        lines = []
        for line in answers:
            before, found, code = line.partition(end)
            lines.append(before)
            if found:
                return int(code), "".join(lines)
        raise AssertionError(f"the shell ended at: {command}\n{''.join(lines)}")

    def _ends(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def end(self) -> None:
        source, answers = self._ends()
        source.write("kill $(jobs -p) 2>/dev/null; wait\n")
        source.close()
        answers.read()
        answers.close()
        self._process.wait(30)


def dated(folder: Path, *, minutes_ago: int) -> None:
    """Make a `date` that is behind: a past minute is signed at once, the present one later."""
    program = folder / "date"
    program.write_text(f'#!/bin/sh\nexec /bin/date -d "-{minutes_ago} min" "$@"\n')
    program.chmod(0o755)


def run_page(terminal: Terminal, commands: Sequence[ShownCommand]) -> None:
    try:
        for each in commands:
            terminal.do(each)
    finally:
        terminal.end()


def is_shown(says: str, told: str) -> bool:
    """Return whether exactly the lines on the page are there; its `...` lines allow others."""
    lines = {" ".join(line.split()) for line in told.splitlines()} - {""}
    wanted = [" ".join(line.split()) for line in says.splitlines()]
    patterns = [re.compile(".*".join(map(re.escape, line.split("...")))) for line in wanted if line]
    return all(any(map(pattern.fullmatch, lines)) for pattern in patterns) and (
        "..." in wanted or all(any(each.fullmatch(line) for each in patterns) for line in lines)
    )
