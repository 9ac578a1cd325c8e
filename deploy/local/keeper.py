"""Keeps a deliberately damaged Hifi running: restarts dead processes, and leaves stopped ones down.

In `hifi up` a process that dies repeatedly waits longer each time. In soaks and chaos tests deaths
are intended, so these use this module instead of `Stack.look_after`.
"""

import threading
from dataclasses import dataclass, field
from pathlib import Path

from deploy.local.children import Child
from deploy.local.ports import answers
from deploy.local.services import how_it_ended
from deploy.local.stack import Stack

_LOOK_S = 0.3


@dataclass(kw_only=True)
class Keeper:
    """The stack, and what happened to its processes."""

    stack: Stack
    # The processes that a fault keeps down, by name.
    kept_down: set[str] = field(default_factory=set)
    # The processes whose death was requested.
    condemned: set[int] = field(default_factory=set)
    # Unintended deaths: the process's name, how it ended, its last output.
    died: list[tuple[str, str, str]] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _stop: threading.Event = field(default_factory=threading.Event)

    @property
    def children(self) -> dict[str, Child]:
        """Every process that should run, brokers among them."""
        cluster = self.stack.cluster
        brokers = {f"broker {number}": cluster.child(number) for number in cluster.broker_ids}
        return {**self.stack.children, **brokers}

    def kill(self, name: str, *, keeps_down: bool) -> int:
        """Send SIGKILL to a process and its descendants; return its number."""
        with self._lock:
            child = self.children[name]
            self.condemned.add(child.pid)
            if keeps_down:
                self.kept_down.add(name)
            child.kill()
            assert not child.alive, f"{name} outlived SIGKILL"
            assert not Path(f"/proc/{child.pid}").exists(), f"{name} is still there"
            return child.pid

    def end(self, name: str, *, timeout_s: float) -> bool:
        """Ask a process to end, and keep it down; return whether it ended by itself in time."""
        with self._lock:
            child = self.children[name]
            self.condemned.add(child.pid)
            self.kept_down.add(name)
        return child.stop(timeout_s)

    def release(self, name: str) -> None:
        self.kept_down.discard(name)

    def unwell(self) -> list[str]:
        """List the processes that do not run or do not report that they are ready."""
        dead = [name for name, child in self.children.items() if not child.alive]
        deaf = [f"Kafka, port {one}" for one in self.stack.settings.kafka_ports if not answers(one)]
        return dead + deaf + [one.name for one in self.stack.services if not one.is_ready()]

    def watch(self) -> None:
        """Restart dead processes until `stop_watching`."""
        turn = 0
        while not self._stop.wait(_LOOK_S):
            turn += 1
            with self._lock:
                self._look_after()
            self.at_turn(turn)

    def at_turn(self, turn: int) -> None:
        """Let a subclass make more checks in each round."""

    def stop_watching(self) -> None:
        self._stop.set()

    def note_death(self, name: str, child: Child) -> None:
        lines = [line for line in child.tail_log(40) if line.strip()]
        self.died.append((name, how_it_ended(child.exit_code), lines[-1] if lines else ""))

    def _look_after(self) -> None:
        services = {service.name: service for service in self.stack.services}
        for name, child in self.children.items():
            if child.alive or name in self.kept_down:
                continue
            if child.pid not in self.condemned:
                self.note_death(name, child)
                # Its own children still hold its ports and folders.
                child.kill()
            if name in services:
                self.stack.spawn(services[name])
            else:
                self.stack.cluster.restart(int(name.split()[1]))
