"""Reads the children of processes and their processor times from /proc."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def children(pid: int) -> Iterator[int]:
    """Yield the children of a process; raise OSError if the process does not exist."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            yield from map(int, (thread / "children").read_text().split())


def processor_s(process: Path) -> float:
    """Return a process's or thread's processor time, by its folder; OSError if it has ended."""
    user, system = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _TICKS_PER_S


def tree_processor_s(pid: int) -> float:
    """Return the processor time of a process and of all its running descendants."""
    total_s = 0.0
    with suppress(OSError):
        total_s += processor_s(Path(f"/proc/{pid}"))
        total_s += sum(map(tree_processor_s, children(pid)))
    return total_s
