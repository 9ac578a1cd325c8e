"""Starts child processes that cannot outlive this one, and stops them within a bounded time."""

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# A log larger than this is renamed (one old copy is kept) before the child starts again.
LOG_BYTES_MAX = 10 * 1024 * 1024
# SIGKILL cannot be refused; only a process stuck in the kernel (a dead disk) takes longer.
_KILL_TIMEOUT_S = 10.0
# Time between checks of an ending group: people do not notice 10 ms.
_POLL_S = 0.01

# A fresh interpreter runs this between us and the child. It asks Linux for SIGKILL when the thread
# that started it ends, and then becomes the child by exec, which keeps that request. A
# `preexec_fn` would run Python in a forked copy of a process with threads, which can deadlock.
_EXEC = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
    if os.getppid() != int(sys.argv[1]):
        os._exit(1)  # the parent was gone before the request was made
if int(sys.argv[2]):
    os.nice(int(sys.argv[2]))
    try:  # where Linux shares processors out by sessions first, theirs counts
        open("/proc/self/autogroup", "w").write(sys.argv[2])
    except OSError:
        pass
os.execvp(sys.argv[3], sys.argv[3:])
"""

# The kernel's "kill me when my parent ends" means the parent *thread*: a child started from a
# short-lived worker thread would die with that worker. This thread lives as long as the process.
_spawner = ThreadPoolExecutor(1, "spawner")
_live: "weakref.WeakSet[Child]" = weakref.WeakSet()


class Child:
    """One running child in its own session; its output goes to `log`.

    On Linux the kernel kills it when this process dies, whatever the cause. Elsewhere it is killed
    when the interpreter ends in any way that Python notices.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        niceness: int = 0,
    ) -> None:
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
            log.replace(log.with_name(log.name + ".1"))
        wrapped = [sys.executable, "-I", "-S", "-c", _EXEC, str(os.getpid()), str(niceness)]
        wrapped += map(str, argv)
        with log.open("ab") as out:
            self._log_start = out.tell()
            self._process = _spawner.submit(
                subprocess.Popen,
                wrapped,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
            ).result()
        _live.add(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while it runs, minus the signal's number if a signal ended it."""
        return self._process.poll()

    def send(self, what: signal.Signals) -> None:
        """Send a signal to the child itself, if it still runs."""
        self._process.send_signal(what)

    def stop(self, timeout_s: float) -> bool:
        """Send SIGTERM, then SIGKILL to the rest; return whether the child ended by itself.

        SIGTERM goes to the child alone, which ends its own children in the right order (a Spark
        driver's Python and Java halves must end together).
        """
        self.send(signal.SIGTERM)
        # A process that was paused sees SIGTERM only when it runs again.
        self.send(signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        ended = not self.alive
        self.kill()
        return ended

    def kill(self) -> None:
        """Send SIGKILL to the child and all its descendants; wait until all are gone."""
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        while True:
            # No other process can get the child's number until the child is reaped.
            left = session_of(self.pid)
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not left or time.monotonic() > deadline:
                break
            self._process.poll()
            time.sleep(_POLL_S)
        self._process.wait(_KILL_TIMEOUT_S)
        _live.discard(self)

    def tail_log(self, count: int) -> list[str]:
        """Return the last lines written since this start."""
        with self.log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            # 1 KB a line is ample: the longest lines are Java stack frames of 200 bytes.
            file.seek(max(self._log_start, end - count * 1024))
            text = file.read().decode(errors="replace")
        return text.splitlines()[-count:]


def session_of(leader: int) -> list[int]:
    """Return the running processes of the leader's session.

    A process group would not do, because Spark's Python workers leave theirs.
    """
    processes = Path("/proc")
    if not processes.is_dir():
        return _group(leader)
    pids = []
    for entry in processes.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text(errors="replace")
        except OSError:
            continue  # it ended between the listing and the reading
        # The fields after the name in brackets are state, parent, group and session.
        state, _, _, session = stat.rpartition(")")[2].split()[:4]
        if int(session) == leader and state != "Z":
            pids.append(int(entry.name))
    return pids


def _group(leader: int) -> list[int]:
    try:
        os.killpg(leader, 0)
    except (ProcessLookupError, PermissionError):  # macOS raises the second for a zombie
        return []
    return [-leader]


@atexit.register
def _kill_all() -> None:
    for child in list(_live):
        child.kill()
