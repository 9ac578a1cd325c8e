"""Says on what a rating was measured: without that it means nothing."""

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any


def describe() -> dict[str, Any]:
    """The machine that we run on."""
    return {
        "cpu": _processor(),
        "cores": os.cpu_count() or 1,
        "memory_gb": _memory_gb(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 1),
    }


def commit() -> str:
    """The commit of this checkout, with -dirty if it is not quite that; unknown without git."""
    try:
        ended = subprocess.run(
            ["git", "describe", "--always", "--dirty"],  # noqa: S607 - git is found on the PATH
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return "unknown"
    return ended.stdout.strip() or "unknown"


def today() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _memory_gb() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
