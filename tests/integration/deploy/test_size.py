"""`hifi size` on a real broker: its measurements are those of the disk, and plans use them."""

import json
import uuid
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from deploy.cli.commands import app
from deploy.local.cluster import Cluster
from shared.event.rights import OPERATOR
from shared.event.times import DAY_MS
from shared.event.topics import CONFIG, stream_topic
from shared.scale.ask import Ask
from shared.scale.topic_sizes import topic_sizes
from tests.support.deploy.cli_runs import run
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.gateway.gateway_process import JSON, new_stream, running

pytestmark = pytest.mark.integration

EVENT_BYTES, BATCH, REQUESTS = 500, 500, 10


def event() -> dict[str, str]:
    made = {"id": str(uuid.uuid4()), "x": ""}
    made["x"] = "a" * (EVENT_BYTES - len(json.dumps(made, separators=(",", ":"))))
    return made


def post(url: str, body: str) -> int:
    return httpx.post(url, content=body, headers=JSON, timeout=60).status_code


def test_what_a_plan_reckons_with_is_on_the_disk(kafka: Cluster) -> None:
    stream = new_stream(kafka.bootstrap_servers)
    with running(kafka.bootstrap_servers) as gateway:
        url = f"{gateway.url}/v1/streams/{stream}/events"
        for _ in range(REQUESTS):
            body = json.dumps([event() for _ in range(BATCH)], separators=(",", ":"))
            # A busy machine's broker may be late once: only stored events count.
            wait_until(lambda: post(url, body) == 200, what="they are stored", timeout_s=60)  # noqa: B023
        assert gateway.end() == 0
    name = stream_topic(stream)
    result = CliRunner().invoke(
        app, ["size", "--kafka", kafka.bootstrap_servers, "--output", "json"]
    )
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    topic = next(each for each in told["topics"] if each["name"] == name)
    count = topic["record_count"]
    assert topic["recent_count"] == count >= REQUESTS * BATCH
    assert topic["bound"] == "time"
    assert topic["retention_ms"] == 7 * DAY_MS
    assert 0 < told["at_ms"] - topic["oldest_ms"] < 600_000

    # The broker's figure is the size of the log's files, and the plan comes close to it.
    files = Path(kafka._folder).glob(f"broker-1/data/{name}-*/*.log")
    on_disk = sum(path.stat().st_size for path in files)
    assert topic["stored_bytes"] == on_disk
    ask = Ask(events_per_s=count, event_bytes=EVENT_BYTES)
    (planned, *_) = topic_sizes(ask, delivery_instances=1, partition_mb_s=15)
    assert planned.in_bytes_s == pytest.approx(on_disk, rel=0.10)
    # The bytes since the first event, a few seconds ago, projected to seven days.
    reckoned = on_disk / topic["window_ms"] * 7 * DAY_MS
    assert topic["kept_bytes"] == pytest.approx(reckoned, rel=0.01)

    config = next(each for each in told["topics"] if each["name"] == CONFIG)
    assert (config["bound"], config["kept_bytes"]) == ("compacted", None)
    (disk,) = told["disks"]
    assert disk["free_bytes"] > 0
    assert disk["topic_bytes"][name] == on_disk
    assert disk["total_bytes"] >= disk["free_bytes"]


def test_people_are_shown_a_table(kafka: Cluster) -> None:
    new_stream(kafka.bootstrap_servers)
    result = CliRunner().invoke(app, ["size", "--kafka", kafka.bootstrap_servers])
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split()[:3] == ["topic", "kept", "by"]
    assert any(line.startswith(CONFIG) and "compacted" in line for line in lines)
    assert any(line.startswith("broker") for line in lines)


def test_a_locked_kafka_tells_the_operator_and_nobody_else(
    tmp_path: Path, jars_cache: Path
) -> None:
    with Cluster(folder=tmp_path / "kafka", cache=jars_cache, is_secure=True) as cluster:
        assert cluster.lock is not None
        where = ("size", "--kafka", cluster.bootstrap_servers, "-o", "json")
        told = run(*where, folder=tmp_path, env=cluster.lock.variables(OPERATOR))
        assert told.process.returncode == 0, told.err
        assert json.loads(told.out)["disks"][0]["free_bytes"] > 0
        refused = run(*where, folder=tmp_path, env=cluster.lock.variables("observe"))
    assert refused.process.returncode == 1
    assert "does not let the user observe ask how full its disks are: grant" in refused.err
