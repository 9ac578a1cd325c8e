"""Describes the machine, because a figure means nothing without it."""

import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

# The same work for all rows: another one would make their speeds incomparable.
_SPEED_WORK = [{"id": f"event-{number}", "value": number / 7} for number in range(2_000)]
_SPEED_TRIES = 30
# The position in /proc/stat's "cpu" line of the time that the hypervisor took away.
_STOLEN = 8


def describe() -> dict[str, Any]:
    """Return date, commit, machine and load, which go with every result."""
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _commit(),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "core_speed": round(core_speed()),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 1),
        "cores_stolen": round(cores_stolen(), 2),
    }


def core_speed() -> float:
    """Return how often a second a core does a fixed piece of work, at its best.

    Machines of one name differ threefold: hosts are shared, and clocks are not told.
    """
    took_s = []
    for _ in range(_SPEED_TRIES):
        begun_s = time.perf_counter()
        json.loads(json.dumps(_SPEED_WORK))
        took_s.append(time.perf_counter() - begun_s)
    return 1 / min(took_s)


def cores_stolen() -> float:
    """Return the cores that the host took away since the benchmark began, while we needed them."""
    return (_stolen_s() - _BEGUN_STOLEN_S) / (time.monotonic() - _BEGUN_S)


def _stolen_s() -> float:
    try:
        total = Path("/proc/stat").read_text().partition("\n")[0].split()
    except OSError:
        return 0.0
    return int(total[_STOLEN]) / os.sysconf("SC_CLK_TCK")


def _commit() -> str:
    run = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return run.stdout.strip() or "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


_BEGUN_S, _BEGUN_STOLEN_S = time.monotonic(), _stolen_s()
