"""Runs a worst tenant in a process of its own, which ends together with its starter.

On the process's standard input, `go` starts the tenant, `look` asks what has happened, and `stop`
stops it. The process prints a line after each of these, and when the tenant is prepared. When its
input ends, it removes what the tenant has created.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.support.neighbours.kinds import ALL
from tests.support.neighbours.site import Site
from tests.support.neighbours.worst_tenant import WorstTenant

# Hifi's processes come before it: a real tenant would use another machine's processors.
_NICE = 10
_AUTOGROUP = Path("/proc/self/autogroup")
# The process ends after this time at the latest.
_LASTS_S = 900.0
# On a busy machine it takes a while to remove hundreds of destinations.
_ENDS_S = 180.0


class EndedError(Exception):
    """The worst tenant ended too early."""


@dataclass
class WorstProcess:
    """The process, as its starter sees it."""

    _process: "subprocess.Popen[str]"

    def go(self) -> None:
        self._tell("go")

    def look(self) -> Counter[str]:
        """Count what the tenant has done so far, while it continues."""
        return Counter(self._tell("look"))

    def stop(self) -> Counter[str]:
        """Stop the tenant; return how often each thing has happened since it was started."""
        return Counter(self._tell("stop"))

    def wait_until_prepared(self) -> None:
        self._line()

    def _tell(self, word: str) -> dict[str, int]:
        assert self._process.stdin is not None
        # A process that has ended says nothing more, which is detected below.
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()
        return self._line()

    def _line(self) -> dict[str, int]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EndedError(f"it has ended with {self._process.wait(_ENDS_S)}")
        said: dict[str, int] = json.loads(line)
        return said


def be_nice(niceness: int) -> None:
    """Lower the priority; Linux shares processors by session first, then by niceness within one."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
    with suppress(OSError):
        _AUTOGROUP.write_text(str(niceness))


@contextmanager
def worst_process(worst: type[WorstTenant], site: Site) -> Iterator[WorstProcess]:
    """Start a prepared process; it ends after the block, and removes all that it created."""
    argv = [sys.executable, "-m", __name__, worst.kind]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(asdict(site)) + "\n")
        process.stdin.flush()
        running = WorstProcess(process)
        running.wait_until_prepared()
        yield running
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDS_S)
        process.kill()
        process.wait()
        process.stdout.close()


async def _serve(worst: WorstTenant, words: asyncio.StreamReader) -> None:
    async with worst.at_home():
        _say({})
        at_work: asyncio.Task[None] | None = None
        while word := (await words.readline()).strip():
            if word == b"go":
                at_work = asyncio.create_task(worst.misbehave())
                _say({})
            elif word == b"look":
                _say(dict(worst.happened))
            elif at_work is not None:
                await _end(at_work)
                await worst.look_back()
                _say(dict(worst.happened))
        if at_work is not None:
            await _end(at_work)


async def _end(work: "asyncio.Task[None]") -> None:
    work.cancel()
    with suppress(asyncio.CancelledError):
        await work


def _say(what: dict[str, int]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _leave_processors_to_hifi() -> None:
    """Lower the priority, as a real tenant has a machine of its own."""
    with suppress(OSError):
        os.setsid()
    be_nice(_NICE)


async def _main() -> None:
    _leave_processors_to_hifi()
    words = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(words), sys.stdin)
    told: dict[str, Any] = json.loads(await words.readline())
    site = Site(**{**told, "health": tuple(told["health"])})
    async with asyncio.timeout(_LASTS_S):
        await _serve(ALL[sys.argv[1]](site), words)


if __name__ == "__main__":
    asyncio.run(_main())
