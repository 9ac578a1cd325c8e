"""Says on what a figure was measured: without that it means nothing."""

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any


def describe() -> dict[str, Any]:
    """Date, commit, machine and load, as they stand beside every result."""
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _commit(),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 1),
    }


def _commit() -> str:
    run = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
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
