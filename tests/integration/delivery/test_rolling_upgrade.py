"""A fleet is upgraded machine by machine, and downgraded again: two releases share its lanes."""

import asyncio
import io
import subprocess
import tarfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.delivery_driver import Driver, running_driver
from deploy.local.cluster import Cluster
from shared.config.destination import Destination, Latency
from tests.integration.delivery.test_spark_cluster import Traffic, make
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.servers.scripted_destination import ScriptedDestination, scripted_destination
from tests.support.suite.programs import program

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]

# A release that neither shares limits over machines nor prolongs real-time jobs.
OLD = "4e6d887"
STREAMS, EACH = 4, 6
ROOT = Path(__file__).parents[3]
# Time for traffic to flow while both releases run.
BESIDE_S = 8.0


@pytest.fixture
def old_code(tmp_path: Path) -> Path:
    asked = [program("git"), "-C", str(ROOT), "archive", OLD]
    packed = subprocess.run(asked, capture_output=True, check=False)
    if packed.returncode:
        pytest.skip(f"{OLD} is not in this clone's history: fetch all of it")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
        files.extractall(tmp_path / "old", filter="data")
    return tmp_path / "old"


def lanes(latency: Latency, url: str) -> list[Destination]:
    return [
        Destination(f"s{n % STREAMS}", f"{latency}{n // STREAMS}", url, latency=latency)
        for n in range(STREAMS * EACH // 2)
    ]


def test_two_releases_share_lanes_and_hand_them_over_both_ways_without_a_repeat(
    kafka: Cluster, tmp_path: Path, old_code: Path
) -> None:
    servers = kafka.bootstrap_servers
    with scripted_destination() as shop, ExitStack() as ends:
        wanted = [*lanes("micro-batch", shop.url), *lanes("realtime", shop.url)]
        asyncio.run(make(servers, *wanted))
        old = ends.enter_context(running_driver(servers, tmp_path / "first", old_code))
        wait_until(lambda: "lane_up" in old.says(), what="the old release sends")
        assert Path(f"/proc/{old.pid}/cwd").readlink() == old_code
        assert not (old_code / "delivery" / "flow_news.py").exists()
        streams = [f"s{n}" for n in range(STREAMS)]
        with Traffic(servers, streams) as traffic:
            wait_until(lambda: sent_all(old, wanted), what="the old release sends to all")
            with running_driver(servers, tmp_path / "new") as new:
                wait_until(lambda: sends_some(new, wanted), what="the new release has lanes")
                time.sleep(BESIDE_S)
                ends.pop_all().close()
                wait_until(lambda: sent_all(new, wanted), what="the new release has all lanes")
                with running_driver(servers, tmp_path / "again", old_code) as again:
                    wait_until(
                        lambda: sends_some(again, wanted),
                        what="the old release has some lanes back",
                    )
                    time.sleep(BESIDE_S)
        # No process is left to send the events that the last one had not begun.
        settle(servers, shop, traffic, tmp_path, wanted)


def sends_some(driver: Driver, wanted: list[Destination]) -> bool:
    return any(driver.events_sent(to) for to in wanted)


def sent_all(driver: Driver, wanted: list[Destination]) -> bool:
    return all(driver.events_sent(to) for to in wanted)


def settle(
    servers: str,
    shop: ScriptedDestination,
    traffic: Traffic,
    folder: Path,
    wanted: list[Destination],
) -> None:
    """Check that each destination of a stream received all of its events exactly once."""
    expected = len(traffic.ids) * len(wanted) // STREAMS
    with running_driver(servers, folder / "last"):
        wait_until(
            lambda: sum(shop.accepted_ids.values()) >= expected, what="all events have arrived"
        )
        time.sleep(2)
    assert set(shop.accepted_ids) == set(traffic.ids)
    assert set(shop.accepted_ids.values()) == {len(wanted) // STREAMS}
