"""A real Hifi is rated: its gateway alone, and the whole way with every id followed to its end."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from loadtests.rating import rate
from loadtests.rating_file import RatingPlan
from tests.support.deploy.stack_fixtures import RunningHifi
from tests.support.gateway.gateway_process import new_stream, running, stored_ids

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_a_gateway_has_stored_what_its_rating_counts(kafka: Cluster) -> None:
    stream = new_stream(kafka.bootstrap_servers)
    with running(kafka.bootstrap_servers) as gateway:
        wanted = RatingPlan(
            gateway=gateway.url, stream=stream, batch=10, rate=1_000, hold_s=2, warmup_s=1
        )
        (step,) = rate(wanted, print)["steps"]
    assert step["failed"] == 0
    assert step["answers"] == {"200": step["sent"]}
    ids = stored_ids(kafka.bootstrap_servers, stream)
    assert len(ids) == len(set(ids)) >= step["acked_events"] == 10 * step["sent"]


def test_every_acknowledged_id_of_the_whole_way_is_accounted_for(hifi: RunningHifi) -> None:
    """Issue 16, A6."""
    wanted = RatingPlan(
        what="whole",
        gateway=hifi.gateway,
        kafka=hifi.kafka,
        stream="rated-whole",
        batch=10,
        rate=500,
        hold_s=3,
        warmup_s=1,
    )
    (step,) = rate(wanted, print)["steps"]
    ends = step["ends"]
    assert ends["acked"] >= step["acked_events"] > 0
    assert ends["delivered"] + ends["waiting"] + ends["dead"] == ends["acked"]
    assert ends["unaccounted"] == 0
    assert 0 < ends["age_ms"]["p50"] <= ends["age_ms"]["p95"]


def test_a_fresh_hifi_is_started_rated_and_ended(tmp_path: Path) -> None:
    """On busy cores only its files matter, not its figures."""
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "deploy.cli.app", "rate", "--fresh", "--rate", "500"),
            *("--batch", "10", "--hold", "3s", "--warm-up", "1s", "--out", str(tmp_path)),
            *("--slo-p99-ms", "20000"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr
    file = next(tmp_path.glob("looks/*.json"))
    assert str(file) in ended.stdout
    (step,) = json.loads(file.read_text())["steps"]
    assert step["answers"] == {"200": step["sent"]}
    assert "stopping Kafka" in ended.stderr
