"""The file compose.yaml as processes: its commands, variables and health checks make a Hifi."""

import json
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.support.deploy.compose import ComposeProcesses, compose
from tests.support.deploy.stack_fixtures import PATIENCE_S, wait_until
from tests.support.servers.own_network import own_network
from tests.support.suite.programs import program
from tests.tidy.sources import ROOT

pytestmark = pytest.mark.integration

ROLES = ("gateway", "delivery", "retrier", "pipelines", "observe")
EVENTS = 10_000


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        text: str = answer.read().decode()
    return text


def arrived() -> int:
    return int(json.loads(fetch("http://127.0.0.1:8090/events"))["count"])


def test_all_services_start_are_healthy_and_deliver(tmp_path: Path, jars_cache: Path) -> None:
    with own_network(), ExitStack() as resources:
        hifi = ComposeProcesses(tmp_path, jars_cache, resources)
        hifi.start_kafka()
        topics = lambda: hifi.run("topics").returncode == 0  # noqa: E731 - a condition to wait for
        wait_until(topics, what="Kafka takes the topics", timeout_s=PATIENCE_S)
        for name in (*ROLES, "sample"):
            hifi.start(name)
        for name in ROLES:
            wait_until(
                lambda name=name: hifi.is_healthy(name),  # type: ignore[misc]
                what=f"{name} is healthy",
                timeout_s=3 * PATIENCE_S,
            )
        demo = hifi.run("demo")
        assert demo.returncode == 0, demo.stderr
        sent = hifi.run("demo", "hifi", "send", "demo", "--count", str(EVENTS))
        assert f"{EVENTS:,} accepted, 0 rejected" in sent.stdout + sent.stderr
        wait_until(lambda: arrived() >= EVENTS, what="all events arrived", timeout_s=PATIENCE_S)
        assert arrived() == EVENTS
        assert "demo" in fetch("http://127.0.0.1:8088/")
        _prometheus_scrapes_all(hifi)


def _prometheus_scrapes_all(hifi: ComposeProcesses) -> None:
    """Run Prometheus with the compose file's configuration until all targets are up."""
    config = hifi.folder / "prometheus.yml"
    given = (ROOT / "deploy/compose/prometheus.yaml").read_text()
    rules = ROOT / "deploy/alerts/hifi.yaml"
    config.write_text(given.replace("/etc/prometheus/hifi.yaml", str(rules)).replace("15s", "1s"))
    options = [f"--config.file={config}", f"--storage.tsdb.path={hifi.folder / 'tsdb'}"]
    hifi.start(
        "prometheus", [program("prometheus"), *options, "--web.listen-address=127.0.0.1:9090"]
    )

    def targets() -> list[str]:
        try:
            told = json.loads(fetch("http://127.0.0.1:9090/api/v1/targets"))
        except OSError:
            return []
        return [each["health"] for each in told["data"]["activeTargets"]]

    wait_until(lambda: targets() == ["up"] * 5, what="Prometheus scrapes all", timeout_s=PATIENCE_S)


def test_each_mounted_file_exists_and_each_volume_is_declared() -> None:
    declared = compose()["volumes"]
    for service in compose()["services"].values():
        for place, *_ in (each.split(":") for each in service.get("volumes", ())):
            assert (ROOT / place).exists() if place.startswith(".") else place in declared


def test_grafana_finds_its_source_and_its_boards() -> None:
    grafana = compose()["services"]["grafana"]
    boards = yaml.safe_load((ROOT / "deploy/compose/grafana/boards.yaml").read_text())
    source = yaml.safe_load((ROOT / "deploy/compose/grafana/source.yaml").read_text())
    (folder,) = (each["options"]["path"] for each in boards["providers"])
    assert f"./deploy/dashboards:{folder}:ro" in grafana["volumes"]
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (ROOT / "deploy/dashboards" / Path(home).name).is_file()
    assert source["datasources"][0]["url"] == "http://prometheus:9090"
    step = source["datasources"][0]["jsonData"]["timeInterval"]
    scraped = yaml.safe_load((ROOT / "deploy/compose/prometheus.yaml").read_text())
    assert scraped["global"]["scrape_interval"] == step
