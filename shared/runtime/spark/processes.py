"""Reads from /proc which processes a process has started, and how long they have run."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def children(pid: int) -> Iterator[int]:
    """OSError if there is no such process."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            yield from map(int, (thread / "children").read_text().split())


def processor_s(process: Path) -> float:
    """The processor time of a process or thread, by its folder; OSError if it has ended."""
    user, system = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _TICKS_PER_S


def tree_processor_s(pid: int) -> float:
    """The processor time of a process and of all that it has started and that still run."""
    total_s = 0.0
    with suppress(OSError):
        total_s += processor_s(Path(f"/proc/{pid}"))
        total_s += sum(map(tree_processor_s, children(pid)))
    return total_s
