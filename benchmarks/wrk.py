"""Runs wrk, the load generator, and reads its results."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from shared.runtime.setup_error import SetupError

# The body is in a file, because an argument cannot hold 500 KB.
_SCRIPT = """
wrk.method = "POST"
wrk.headers["content-type"] = "application/json"
local file = io.open("{body}", "rb")
wrk.body = file:read("*all")
file:close()
"""
_UNITS_MS = {"us": 0.001, "ms": 1.0, "s": 1_000.0, "m": 60_000.0}


@dataclass(frozen=True, slots=True)
class Load:
    """The results of one run."""

    requests_per_s: float
    p50_ms: float
    p99_ms: float
    errors: int


def require_wrk() -> None:
    if shutil.which("wrk") is None:
        raise SetupError("The load generator wrk is missing: apt install wrk (Debian, Ubuntu).")


def load(url: str, body: bytes, *, connections: int, duration_s: float, folder: Path) -> Load:
    """POST the body over `connections` connections without a pause."""
    body_file, script = folder / "body", folder / "post.lua"
    body_file.write_bytes(body)
    script.write_text(_SCRIPT.format(body=body_file))
    run = subprocess.run(
        [
            "wrk",
            "-t1",
            f"-c{connections}",
            f"-d{duration_s:g}s",
            "--timeout=30s",
            "--latency",
            f"-s{script}",
            url,
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=duration_s + 60,
    )
    return read_output(run.stdout)


def read_output(text: str) -> Load:
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    assert rate is not None, text
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    broken = re.search(r"connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    errors = int(refused[1]) if refused else 0
    errors += sum(map(int, broken.groups())) if broken else 0
    return Load(
        requests_per_s=float(rate[1]),
        p50_ms=_percentile(text, 50),
        p99_ms=_percentile(text, 99),
        errors=errors,
    )


def _percentile(text: str, percent: int) -> float:
    match = re.search(rf"\s{percent}%\s+([\d.]+)(us|ms|s|m)", text)
    assert match is not None, text
    return float(match[1]) * _UNITS_MS[match[2]]
