"""Kills and freezes processes of a Hifi, and proves that each fault really happened."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deploy.local.children import session_of
from deploy.local.keeper import Keeper
from deploy.local.ports import answers

# Spark starts its workers with the first task.
_WORKER_S = 5.0
# The kernel obeys within milliseconds, if a core is free.
_DONE_S = 10.0
_LOOK_S = 0.05

# Ends a fault; safe to call after the fault has ended by itself.
Undo = Callable[[], None]


class NotHereError(Exception):
    """The fault is not possible on this machine, or at this moment."""


@dataclass
class ProcessFaults:
    """Faults of a target: a service's name, "broker", "delivery-worker" or "gateway-worker"."""

    keeper: Keeper

    def kill(self, target: str) -> tuple[str, Undo]:
        """Return the proof, and the function that allows a restart."""
        if target.endswith("-worker"):
            service = target.removesuffix("-worker")
            return self._kill_one_of(service), lambda: None
        name = self.named(target)
        pid = self.keeper.kill(name, keeps_down=True)
        proof = f"process {pid} is gone"
        if target == "broker":
            port = self.keeper.stack.settings.kafka_ports[int(name.split()[1]) - 1]
            assert not answers(port), f"{name} still answers on port {port}"
            proof += f", port {port} is closed"
        return proof, lambda: self.keeper.release(name)

    def freeze(self, target: str) -> tuple[str, Undo]:
        """Freeze a process and all its descendants; return the proof and the undo."""
        name = self.named(target)
        pids = session_of(self.keeper.children[name].pid)
        _send_all(pids, signal.SIGSTOP)
        try:
            _wait_until(
                lambda: all(_state(pid) in {"T", "", "Z"} for pid in pids), f"{name} still runs"
            )
        except AssertionError:
            _send_all(pids, signal.SIGCONT)
            raise
        proof = f"{len(pids)} process(es) of {name} are frozen"
        return proof, lambda: _send_all(pids, signal.SIGCONT)

    def named(self, target: str) -> str:
        """Return the process's name; for brokers, the last one, as the first writes the archive."""
        brokers = self.keeper.stack.cluster.broker_ids
        return f"broker {brokers[-1]}" if target == "broker" else target

    def _kill_one_of(self, service: str) -> str:
        """Kill the busiest worker of a service, which then starts another by itself."""
        workers_of = _senders if service == "delivery" else _forks
        parent = self.keeper.children[service].pid
        until_s = time.monotonic() + _WORKER_S
        while not (workers := workers_of(parent)):
            if time.monotonic() > until_s:
                raise NotHereError(f"{service} has no worker at the moment")
            time.sleep(_LOOK_S)
        pid = max(workers, key=_ticks)
        os.kill(pid, signal.SIGKILL)
        _wait_until(lambda: _state(pid) in {"", "Z"}, f"worker {pid} is still there")
        return f"worker {pid} of {service} is gone"


def _wait_until(holds: Callable[[], bool], why_not: str) -> None:
    until_s = time.monotonic() + _DONE_S
    while not holds():
        assert time.monotonic() < until_s, f"{why_not} after {_DONE_S:.0f} s"
        time.sleep(_LOOK_S)


def _send_all(pids: list[int], what: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, what)
        except ProcessLookupError:
            continue


def _senders(driver: int) -> list[int]:
    """Return the forks of delivery's worker daemon, which send; the daemon only starts them."""
    session = [pid for pid in session_of(driver) if "worker_daemon" in command_of(pid)]
    return [pid for pid in session if int(_stat(pid, 1) or 0) in session]


def _forks(supervisor: int) -> list[int]:
    return [pid for pid in session_of(supervisor) if pid != supervisor]


def _ticks(pid: int) -> int:
    return int(_stat(pid, 11) or 0) + int(_stat(pid, 12) or 0)


def _state(pid: int) -> str:
    return _stat(pid, 0)


def _stat(pid: int, nth: int) -> str:
    """Return a field of /proc/PID/stat, counted from the state; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[nth]
    except OSError:
        return ""


def command_of(pid: int) -> str:
    """Return a process's command line; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
