"""Measures a process with all its descendants: processor time and memory, from /proc."""

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Fields of /proc/PID/stat after the name: state, parent, own time, time of ended children.
_STATE, _PARENT, _OWN, _ENDED = 0, 1, slice(11, 13), slice(13, 15)
_RESIDENT = 21


def used_by(pid: int) -> tuple[float, int]:
    """Return seconds of processor time, and resident MB (shared memory counts for each worker)."""
    stats = _stats()
    ticks = pages = 0
    for one in _tree(stats, pid):
        fields = stats[one]
        ticks += sum(map(int, (*fields[_OWN], *fields[_ENDED])))
        pages += int(fields[_RESIDENT])
    return ticks / _TICKS, pages * _PAGE_BYTES // 1_000_000


def used_by_each(pid: int) -> dict[int, float]:
    """Return seconds of processor time of a process and of each running descendant."""
    stats = _stats()
    return {one: sum(map(int, stats[one][_OWN])) / _TICKS for one in _tree(stats, pid)}


def proportional_mb(pid: int) -> int:
    """Return resident MB of a process and its descendants; shared pages are divided among users."""
    kb = 0
    for one in tree_of(pid):
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        kb += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kb * 1_024 // 1_000_000


def tree_of(pid: int) -> list[int]:
    """Return a process and its running descendants."""
    return _tree(_stats(), pid)


def states_of(pids: Iterable[int]) -> set[str]:
    """Return the states of processes, in the letters of `ps`: T is stopped by SIGSTOP."""
    stats = _stats()
    # Z has ended, but its parent has not read its exit code yet.
    return {stats[pid][_STATE] for pid in pids if pid in stats} - {"Z"}


def _stats() -> dict[int, list[str]]:
    stats: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            stats[int(entry.name)] = fields
    return stats


def _tree(stats: dict[int, list[str]], pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for one, fields in stats.items():
        children.setdefault(int(fields[_PARENT]), []).append(one)
    tree = [pid]
    for one in tree:
        tree += children.get(one, [])
    return tree
