"""Runs Locust with our locustfile, as people do, and reads its output."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
LOCUSTFILE = "loadtests/locustfile.py"


def locust(folder: Path, host: str, *argv: str, file: str = LOCUSTFILE) -> dict[str, Any]:
    """Run Locust once without its page; return the JSON of its step."""
    out = folder / "step.json"
    command = [sys.executable, "-m", "locust", "-f", file, "--headless", "--only-summary"]
    ended = subprocess.run(
        [*command, "-H", host, "--out", str(out), *argv],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    found: dict[str, Any] = json.loads(out.read_text())
    found["said"] = ended.stdout + ended.stderr
    return found
