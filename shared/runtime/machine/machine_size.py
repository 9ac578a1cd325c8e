"""Counts the processors and the memory that this process may use: in a container, its quota."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
# The first version writes about this many bytes for "no limit".
_NO_LIMIT_BYTES = 2**60


def core_count() -> int:
    """Return the number of processors: those that this process may run on, or a smaller quota."""
    # macOS cannot bind a process to processors.
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min([there or 1, *map(math.ceil, _processors())]))


def memory_bytes() -> int:
    """Return the memory of the machine, or of the container if that is less."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([there, *_memory_limits()])


def _processors() -> Iterator[float]:
    """Yield the quota of each group that this process is in, in processors."""
    for folder in _folders("cpu"):
        # "max 100000" or "150000 100000": microseconds in each period.
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        if not quota:
            quota = _text(folder / "cpu.cfs_quota_us")
            period = _text(folder / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal():
            yield int(quota) / int(period)


def _memory_limits() -> Iterator[int]:
    for folder in _folders("memory"):
        limit = _text(folder / "memory.max") or _text(folder / "memory.limit_in_bytes")
        if limit.isdecimal() and int(limit) < _NO_LIMIT_BYTES:
            yield int(limit)


def _folders(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's groups, and of those above them."""
    for line in _text(_OWN_GROUPS).splitlines():
        _, names, own = line.split(":", 2)
        # The second version has one tree without a name; the first has one for each controller.
        if names and controller not in names.split(","):
            continue
        top = _GROUPS / (names and controller)
        # In a container the path may name the host's folder, while the container's is at the top.
        yield top
        for above in list(Path(own).parents)[:-1]:
            yield top / above.relative_to("/")
        yield top / own.removeprefix("/")


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
