"""Breaks things in a chaos run, and proves of each that it really happened.

A fault is begun and, so long after it, ended; what either did is told in a few words.
"""

import errno
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from deploy.local.children import _session
from tests.chaos.actions import Action
from tests.chaos.world import World
from tests.support.stack_fixtures import wait_until

_DISKS = {"spool": "spool", "scratch": "retrier"}
_BLOCK = bytes(1 << 20)
# Spark's workers come with the first task after a start.
_WORKER_S = 5.0


class NotHereError(Exception):
    """What this machine, or this moment, does not allow."""


@dataclass
class Faults:
    """All faults of a run; `end_all` heals what is left."""

    _world: World
    _ends: dict[Action, Callable[[], None]] = field(default_factory=dict)

    def begin(self, action: Action) -> str:
        """Do it; gives the proof."""
        what, _, target = action.kind.partition(" ")
        match what:
            case "kill" if target == "delivery-worker":
                return self._kill_one_of("delivery", _senders)
            case "kill" if target == "gateway-worker":
                return self._kill_one_of("gateway", _forks)
            case "kill":
                return self._kill(action, target)
            case "freeze":
                return self._freeze(action, target)
            case "fill":
                return self._fill(action, target)
            case _:
                return self._step_clock(action, float(dict(action.settings)["seconds"]))

    def end(self, action: Action) -> None:
        undo = self._ends.pop(action, None)
        if undo is not None:
            undo()

    def end_all(self) -> None:
        for action in list(self._ends):
            self.end(action)

    def _kill(self, action: Action, target: str) -> str:
        name = self._named(target)
        if target == "broker":
            # As long as it is away and until others have found it again.
            self._world.excuse(for_s=action.for_s)
        pid = self._world.kill(name, holds=True)
        self._ends[action] = lambda: self._world.release(name)
        if target == "broker":
            number = int(name.split()[1])
            port = self._world.stack.settings.kafka_ports[number - 1]
            assert not _answers(port), f"{name} still answers on port {port}"
            return f"process {pid} is gone, port {port} is closed"
        return f"process {pid} is gone"

    def _kill_one_of(self, name: str, workers_of: Callable[[int], list[int]]) -> str:
        """The busiest of the workers that a process has; it makes another one by itself."""
        parent = self._world.children[name].pid
        until_s = time.monotonic() + _WORKER_S
        while not (workers := workers_of(parent)):
            if time.monotonic() > until_s:
                raise NotHereError(f"{name} has no worker just now")
            time.sleep(0.05)
        pid = max(workers, key=_ticks)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: _state(pid) in {"", "Z"}, what=f"worker {pid} is gone", timeout_s=10)
        return f"worker {pid} of {name} is gone"

    def _freeze(self, action: Action, target: str) -> str:
        name = self._named(target)
        if target == "broker":
            self._world.excuse(for_s=action.for_s)
        pids = _session(self._world.children[name].pid)
        _send_all(pids, signal.SIGSTOP)
        self._ends[action] = lambda: _send_all(pids, signal.SIGCONT)
        wait_until(
            lambda: all(_state(pid) in {"T", "", "Z"} for pid in pids),
            what=f"all of {name} stands still",
            timeout_s=5,
        )
        return f"{len(pids)} process(es) of {name} stand still"

    def _fill(self, action: Action, target: str) -> str:
        if not self._world.has_disks:
            raise NotHereError("this user may not mount a file system to fill")
        folder = self._world.folder / _DISKS[target]
        self._world.excuse(for_s=action.for_s)
        filler = folder / "filler"
        self._ends[action] = lambda: filler.unlink(missing_ok=True)
        size = _fill_up(filler)
        refused = _write_error(folder / "one-more")
        assert refused == errno.ENOSPC, f"{folder} still takes something"
        return f"{size >> 20} MB written, and not a byte more is taken"

    def _step_clock(self, action: Action, seconds: float) -> str:
        self._world.step_clock(seconds)
        self._ends[action] = lambda: self._world.step_clock(0)
        # Request ids begin with the time at which they were made, in ms.
        try:
            answer = httpx.get(f"{self._world.stack.gateway}/v1/streams", timeout=5)
            made_ms = int(answer.json()["request_id"].replace("-", "")[:12], 16)
        except (httpx.HTTPError, ValueError, KeyError) as error:
            raise NotHereError(f"the gateway does not tell its time ({error!r})") from error
        off_s = made_ms / 1_000 - time.time()
        assert abs(off_s - seconds) < 10, f"the gateway's clock is off by {off_s:.0f} s"
        return f"the gateway's clock is off by {off_s:.0f} s"

    def _named(self, target: str) -> str:
        """The process; of several brokers the last, which is not the only one to write archives."""
        brokers = self._world.stack._cluster.broker_ids
        return f"broker {brokers[-1]}" if target == "broker" else target


def _fill_up(filler: Path) -> int:
    size = 0
    # Smaller and smaller, so that nothing is left for the last line of a log.
    with filler.open("wb", buffering=0) as file:
        for block in (_BLOCK, _BLOCK[:4096]):
            try:
                while True:
                    size += file.write(block)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
    return size


def _write_error(path: Path) -> int:
    try:
        path.write_bytes(b"x" * 8192)
    except OSError as error:
        return error.errno or 0
    finally:
        path.unlink(missing_ok=True)
    return 0


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _send_all(pids: list[int], what: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, what)
        except ProcessLookupError:
            continue


def _senders(driver: int) -> list[int]:
    """The forks of delivery's worker daemon: they send, and the daemon only makes them."""
    session = [pid for pid in _session(driver) if "worker_daemon" in _command(pid)]
    return [pid for pid in session if int(_stat(pid, 1) or 0) in session]


def _forks(supervisor: int) -> list[int]:
    return [pid for pid in _session(supervisor) if pid != supervisor]


def _ticks(pid: int) -> int:
    return int(_stat(pid, 11) or 0) + int(_stat(pid, 12) or 0)


def _state(pid: int) -> str:
    return _stat(pid, 0)


def _stat(pid: int, nth: int) -> str:
    """A field of /proc/PID/stat, counted from the state; empty for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[nth]
    except OSError:
        return ""


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
