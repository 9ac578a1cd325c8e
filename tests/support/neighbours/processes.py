"""Watches every process of a Hifi: which executors end, and whether anything else does."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from deploy.local.process_faults import command_of
from deploy.local.stack import Stack

_LOOK_S = 0.5
# Processes that may be ended on purpose, by a part of their command line.
_MAY_END = {
    "CoarseGrainedExecutorBackend": "executor",
    "pipelines.judging": "judging",
}
# Spark ends an idle worker, and the workers of an executor that has ended.
_WORKER = "worker_daemon"


@dataclass
class Processes:
    """The services' processes, by their sessions; `gone` lists those that should not have ended."""

    # The process id of each service, by name.
    leaders: Callable[[], Mapping[str, int]]
    ended: Counter[str] = field(default_factory=Counter)
    gone: list[str] = field(default_factory=list)
    _known: dict[int, tuple[str, str]] = field(default_factory=dict)
    _led: dict[str, int] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def look(self) -> None:
        leaders = dict(self.leaders())
        for name, pid in self._led.items():
            if leaders.get(name) != pid:
                self._note_gone(f"{name} ({pid})")
        self._led = leaders
        alive = in_sessions({leader: name for name, leader in leaders.items()})
        for pid in self._known.keys() - alive.keys():
            self._note_end(*self._known.pop(pid))
        for pid in alive.keys() - self._known.keys():
            self._known[pid] = alive[pid], command_of(pid)
        for pid, (name, command) in list(self._known.items()):
            # The process was first seen before it became another program.
            if kind_of(command) is None:
                self._known[pid] = name, command_of(pid) or command

    def watch(self) -> None:
        while not self._stop.wait(_LOOK_S):
            self.look()

    def stop(self) -> None:
        self._stop.set()

    def _note_end(self, name: str, command: str) -> None:
        kind = kind_of(command)
        if kind is None:
            self._note_gone(f"{name}: {command[:200]}")
        else:
            self.ended[kind] += 1

    def _note_gone(self, what: str) -> None:
        if what not in self.gone:
            self.gone.append(what)


def in_sessions(names: Mapping[int, str]) -> dict[int, str]:
    """Return the name of each process's session, by process id."""
    found = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                stat = Path(entry.path, "stat").read_text(errors="replace")
                # After the name, which is in brackets: state, parent, group, session.
                state, _, _, session = stat.rpartition(")")[2].split()[:4]
                if state != "Z" and int(session) in names:
                    found[int(entry.name)] = names[int(session)]
    return found


def kind_of(command: str) -> str | None:
    """Return the kind of a process that may end, or None."""
    for part, kind in _MAY_END.items():
        if part in command:
            return kind
    return "worker" if _WORKER in command else None


@contextmanager
def watched(stack: Stack) -> Iterator[Processes]:
    def leaders() -> dict[str, int]:
        brokers = {f"broker {nth}": stack.cluster.child(nth) for nth in stack.cluster.broker_ids}
        return {name: child.pid for name, child in (*stack.children.items(), *brokers.items())}

    processes = Processes(leaders)
    processes.look()
    thread = threading.Thread(target=processes.watch, name="processes", daemon=True)
    thread.start()
    try:
        yield processes
    finally:
        processes.stop()
        thread.join(10)
