"""What a process and all that it has started take: processor time and memory, out of /proc."""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Fields of /proc/PID/stat behind the name: parent, own time, that of children which have ended.
_PARENT, _OWN, _ENDED = 1, slice(11, 13), slice(13, 15)
_RESIDENT = 21


def used_by(pid: int) -> tuple[float, int]:
    """Seconds of processor time, and resident MB (what workers share counts for each of them)."""
    stats: dict[int, list[str]] = {}
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            stats[int(entry.name)] = fields
            children.setdefault(int(fields[_PARENT]), []).append(int(entry.name))
    ticks = pages = 0
    left = [pid]
    while left:
        one = left.pop()
        left += children.get(one, [])
        fields = stats[one]
        ticks += sum(map(int, (*fields[_OWN], *fields[_ENDED])))
        pages += int(fields[_RESIDENT])
    return ticks / _TICKS, pages * _PAGE_BYTES // 1_000_000
