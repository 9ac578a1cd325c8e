"""Starts child processes so that none outlives us, and stops them within a bounded time."""

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

# A log larger than this is set aside (one old copy is kept) before the child starts again.
LOG_BYTES_MAX = 10 * 1024 * 1024
# SIGKILL cannot be refused; only a process stuck in the kernel (a dead disk) takes longer.
_KILL_TIMEOUT_S = 10.0
# How often a group is looked at while it ends: 10 ms is well under what a person notices.
_POLL_S = 0.01

# Run by a fresh interpreter between us and the child: it asks Linux to kill it when the thread
# that started it ends, and then becomes the child (both survive exec). Doing the same in
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
# short-lived worker thread would die with that worker. This one lives as long as we do.
_spawner = ThreadPoolExecutor(1, "spawner")
_live: "weakref.WeakSet[Child]" = weakref.WeakSet()


class Child:
    """One running child in a session of its own; its output goes to `log`.

    On Linux the kernel kills it when we die, however we die. Elsewhere it is killed when the
    interpreter ends in any way that Python notices.
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
        """None while it runs; minus the signal's number when a signal ended it."""
        return self._process.poll()

    def send(self, what: signal.Signals) -> None:
        """Send a signal to the child itself, if it still runs."""
        self._process.send_signal(what)

    def stop(self, timeout_s: float) -> bool:
        """SIGTERM, then SIGKILL for all that is left; True when the child ended by itself.

        SIGTERM goes to the child alone: it knows in which order to end what it started itself
        (a Spark driver must outlive neither its Python nor its Java half).
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
        """SIGKILL for the child and everything it started; waits until all of it is gone."""
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        while True:
            # Before the child is reaped its number cannot be given to another process.
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
        """The last lines written since this start."""
        with self.log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            # 1 KB a line is generous: the longest lines are Java stack frames of 200.
            file.seek(max(self._log_start, end - count * 1024))
            text = file.read().decode(errors="replace")
        return text.splitlines()[-count:]


def session_of(leader: int) -> list[int]:
    """Everything of the leader's session that still runs.

    The session and not only the process group: Spark's Python workers leave their group.
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
        # After the name, which stands in brackets: state, parent, group, session.
        state, _, _, session = stat.rpartition(")")[2].split()[:4]
        if int(session) == leader and state != "Z":
            pids.append(int(entry.name))
    return pids


def _group(leader: int) -> list[int]:
    try:
        os.killpg(leader, 0)
    except (ProcessLookupError, PermissionError):  # macOS says the second of a zombie
        return []
    return [-leader]


@atexit.register
def _kill_all() -> None:
    for child in list(_live):
        child.kill()
