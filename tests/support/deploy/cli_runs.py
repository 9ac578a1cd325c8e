"""Runs the `hifi` command in tests as a person does: a process, its output, its exit code."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from deploy.local.stack_settings import StackSettings

# All processes of a command inherit this variable, so that leftovers can be found.
_RUN_ID = "HIFI_TEST_RUN"


class Run:
    """One run of the command with its output in files; all its processes carry its id."""

    def __init__(
        self, *arguments: str, folder: Path, env: Mapping[str, str] | None = None, stdin: str = ""
    ) -> None:
        self.run_id = uuid.uuid4().hex
        folder.mkdir(parents=True, exist_ok=True)
        self._out, self._err = folder / f"{self.run_id}.out", folder / f"{self.run_id}.err"
        given = folder / f"{self.run_id}.in"
        given.write_text(stdin)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("HIFI_")}
        kept = ("HIFI_CACHE", "HIFI_PROFILES")
        inherited |= {name: os.environ[name] for name in kept if name in os.environ}
        with self._out.open("wb") as out, self._err.open("wb") as err, given.open("rb") as source:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "deploy.cli.app", *arguments],
                stdin=source,
                stdout=out,
                stderr=err,
                env={**inherited, **(env or {}), _RUN_ID: self.run_id},
            )

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def wait(self, timeout_s: float = 120) -> int:
        return self.process.wait(timeout_s)

    def says(self, text: str, *, times: int = 1, timeout_s: float = 60) -> None:
        """Wait until a text is in the output `times` times."""
        until_s = time.monotonic() + timeout_s
        while (self.out + self.err).count(text) < times:
            left = self.process.poll() is None and time.monotonic() < until_s
            assert left, f"{text!r} is not in the output:\n{self.out}{self.err}"
            time.sleep(0.02)

    def send(self, what: signal.Signals) -> None:
        self.process.send_signal(what)

    def children(self) -> dict[int, str]:
        """Return the other live processes that this run has started, with command lines."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == self.process.pid:
                continue
            try:
                environ = (entry / "environ").read_bytes()
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if f"{_RUN_ID}={self.run_id}".encode() in environ and state != "Z":
                found[int(entry.name)] = line
        return found

    def child(self, what: str, *, timeout_s: float = 60) -> int:
        """Return the one child whose command line has a text, once it is there.

        While a process becomes another program the kernel shows neither's command line.
        """
        until_s = time.monotonic() + timeout_s
        while len(found := [pid for pid, line in self.children().items() if what in line]) != 1:
            assert time.monotonic() < until_s, f"{what!r} is not one process: {found}"
            time.sleep(0.02)
        return found[0]

    def leaves_nothing(self, *, timeout_s: float = 0) -> None:
        """Check that nothing that this run started is alive after `timeout_s` at the latest."""
        until_s = time.monotonic() + timeout_s
        while left := self.children():
            assert time.monotonic() < until_s, f"still running: {left}"
            time.sleep(0.02)

    def end(self) -> None:
        """Kill the command and all that it started: a test may have failed halfway."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        for pid in self.children():
            os.kill(pid, signal.SIGKILL)


def port_options(settings: StackSettings) -> list[str]:
    return [text for option, port in settings.ports() for text in (option, str(port))]


def run(
    *arguments: str, folder: Path, env: Mapping[str, str] | None = None, stdin: str = ""
) -> Run:
    """Run a command to its end."""
    started = Run(*arguments, folder=folder, env=env, stdin=stdin)
    try:
        started.wait()
    finally:
        started.end()
    return started
