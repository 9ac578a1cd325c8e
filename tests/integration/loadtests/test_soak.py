"""A soak starts a Hifi, damages it, and reports each event's end and each process's health."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_a_short_soak_survives_its_faults_and_accounts_for_every_event(tmp_path: Path) -> None:
    """Issue 16, 5; half an hour is `make soak`."""
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "deploy.cli.app", "soak", "--out", str(tmp_path)),
            *("--rate", "100", "--duration", "90s", "--fault-every", "10s", "--seed", "2"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=420,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "0 unaccounted; 3 faults" in ended.stdout
    found = json.loads(next(tmp_path.glob("soak-*.json")).read_text())
    assert found["ends"]["acked"] > 0
    assert found["ends"]["unaccounted"] == 0
    assert found["deaths"] == []
    assert len({fault["kind"] for fault in found["faults"]}) == 3
    assert all(fault["proof"] and fault["well_after_s"] is not None for fault in found["faults"])
    names = {one["name"] for one in found["memory"]}
    assert {"gateway", "delivery", "delivery, Java", "retrier", "observe"} <= names
    assert "<svg" in next(tmp_path.glob("soak-*.html")).read_text()
    assert "stopping Kafka" in ended.stderr
