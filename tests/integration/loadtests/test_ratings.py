"""A real Hifi is rated: its gateway alone, and the whole way with every id followed to its end."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy.local.cluster import Cluster
from tests.support.gateway_process import new_stream, running, stored_ids
from tests.support.locust_runs import ROOT
from tests.support.stack_fixtures import RunningHifi

pytestmark = [pytest.mark.integration, pytest.mark.long]


def rated(folder: Path, *argv: str) -> dict[str, Any]:
    """One step, short: what it comes to on busy cores is no matter, what it counts is."""
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "loadtests", *argv, "--out", str(folder)),
            *("--batch", "10", "--warm-up", "1s", "--processes", "1", "--slo-p99-ms", "5000"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert ended.returncode in {0, 3}, ended.stderr
    rating: dict[str, Any] = json.loads(next(folder.glob("*.json")).read_text())
    return rating


def test_a_gateway_has_stored_what_its_rating_counts(tmp_path: Path, kafka: Cluster) -> None:
    stream = new_stream(kafka.bootstrap_servers)
    with running(kafka.bootstrap_servers) as gateway:
        asked = ("--gateway", gateway.url, "--stream", stream, "--rate", "1000", "--hold", "2s")
        (step,) = rated(tmp_path, "ingest", *asked)["steps"]
    assert step["failed"] == 0
    assert step["answers"] == {"200": step["sent"]}
    ids = stored_ids(kafka.bootstrap_servers, stream)
    assert len(ids) == len(set(ids)) >= step["acked_events"] == 10 * step["sent"]


def test_every_acknowledged_id_of_the_whole_way_is_accounted_for(
    tmp_path: Path, hifi: RunningHifi
) -> None:
    """Issue 16, A6."""
    asked = ("--gateway", hifi.gateway, "--kafka", hifi.kafka, "--stream", "rated-whole")
    rating = rated(tmp_path, "whole", *asked, "--rate", "500", "--hold", "3s")
    (step,) = rating["steps"]
    ends = step["ends"]
    assert ends["acked"] >= step["acked_events"] > 0
    assert ends["delivered"] + ends["waiting"] + ends["dead"] == ends["acked"]
    assert ends["unaccounted"] == 0
    assert 0 < ends["age_ms"]["p50"] <= ends["age_ms"]["p95"]
