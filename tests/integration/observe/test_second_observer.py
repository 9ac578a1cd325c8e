"""A second observer beside the stack's stands by, and takes over when the first dies."""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog

from deploy.local.children import Child
from deploy.local.ports import pick_free
from shared.config.destination import Destination
from tests.support.deploy.stack_fixtures import (
    PATIENCE_S,
    QUICK_INTERVALS,
    STATEMENT_KEY,
    RunningHifi,
    fetch,
    wait_until,
)
from tests.support.servers.scripted_destination import scripted_destination

log = structlog.get_logger()

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class Observer:
    child: Child
    metrics_port: int
    console_port: int

    @property
    def metrics(self) -> list[str]:
        return fetch(f"http://127.0.0.1:{self.metrics_port}/metrics").splitlines()

    @property
    def overview(self) -> dict[str, Any]:
        page = fetch(f"http://127.0.0.1:{self.console_port}/api/overview")
        return dict(json.loads(page or "{}"))


@pytest.fixture
def second(hifi: RunningHifi, tmp_path: Path) -> Iterator[Observer]:
    """Run a second observer with its own folder and the first one's settings."""
    service = next(each for each in hifi.stack.services if each.name == "observe")
    folder = tmp_path / "observe"
    metrics, console = pick_free(2)
    child = Child(
        "second",
        [sys.executable, "-m", "observe"],
        log=tmp_path / "second.log",
        env={
            **QUICK_INTERVALS,
            **STATEMENT_KEY,
            **service.env,
            "HIFI_OBSERVE_FOLDER": str(folder),
            "HIFI_OBSERVE_METRICS_PORT": str(metrics),
            "HIFI_OBSERVE_CONSOLE_PORT": str(console),
            "HIFI_OBSERVE_CONSOLE_AUTH": "off",
            "HIFI_OBSERVE_BOOTSTRAP_SERVERS": hifi.kafka,
        },
    )
    try:
        yield Observer(child, metrics, console)
    finally:
        child.kill()


def test_a_second_one_shows_its_console_and_stands_by(hifi: RunningHifi, second: Observer) -> None:
    with scripted_destination() as destination:
        hifi.add(Destination(stream="seen", name="to", url=destination.url))
        wait_until(
            lambda: "hifi_observe_lease_up 0.0" in second.metrics,
            what="the second observer stands by",
        )
        wait_until(
            lambda: [one["name"] for one in second.overview.get("streams", ())].count("seen") == 1,
            what="its console shows the stream",
        )
        assert "another observer runs the audit" in second.overview["audit"]["problem"]
        first = Observer(second.child, hifi.stack.settings.observe_metrics_port, 0)
        assert "hifi_observe_lease_up 1.0" in first.metrics
        figures = 'hifi_observe_backlog_events{destination="seen/to"}'
        wait_until(
            lambda: any(line.startswith(figures) for line in first.metrics),
            what="the first observer has the figures",
        )
        assert not [line for line in second.metrics if line.startswith(figures)]
    assert second.child.stop(PATIENCE_S)
    assert "hifi_observe_lease_up 1.0" in first.metrics


@pytest.mark.long
def test_a_second_one_takes_the_audit_over_within_a_minute_of_a_kill(
    hifi: RunningHifi, second: Observer
) -> None:
    """Issue 15: takeover within 60 s of the first observer's death. Spark starts meanwhile."""
    wait_until(
        lambda: "hifi_observe_lease_up 0.0" in second.metrics, what="the second observer stands by"
    )
    hifi.stack.children["observe"].kill()
    died_s = time.monotonic()
    try:
        wait_until(
            lambda: second.overview["audit"]["last_run_ms"] is not None,
            what="the second observer has audited",
        )
        took_s = time.monotonic() - died_s
        assert "hifi_observe_lease_up 1.0" in second.metrics
        log.info("observer.taken_over", took_s=took_s)
        assert took_s < 60
        assert second.child.stop(PATIENCE_S)
    finally:
        hifi.stack.spawn(next(each for each in hifi.stack.services if each.name == "observe"))
