"""A destination that needs more than one delivery process: each has some of its shards."""

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.delivery_driver import running_driver
from deploy.local.cluster import Cluster
from shared.config.destination import Destination
from tests.integration.delivery.test_spark_cluster import make, write
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.servers.scripted_destination import scripted_destination

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]

EVENTS = 2_000


def test_two_processes_share_a_destination_of_four_shards_and_one_takes_over_without_a_repeat(
    kafka: Cluster, tmp_path: Path
) -> None:
    servers = kafka.bootstrap_servers
    with scripted_destination() as shop, ExitStack() as running:
        to = Destination("hot", "shop", shop.url, shards=4, batch_count_max=50)
        asyncio.run(make(servers, to))
        stays = running.enter_context(running_driver(servers, tmp_path / "stays"))
        with running_driver(servers, tmp_path / "goes") as goes:
            for driver in (stays, goes):
                wait_until(lambda each=driver: "lane_up" in each.says(), what="it has a shard")  # type: ignore[misc]
            asyncio.run(write(servers, to.stream, range(EVENTS)))
            wait_until(lambda: len(shop.accepted_ids) == EVENTS, what="all have come")
            for driver in (stays, goes):
                wait_until(lambda each=driver: each.events_sent(to) > 0, what="both send")  # type: ignore[misc]
            assert stays.events_sent(to) + goes.events_sent(to) == EVENTS
        asyncio.run(write(servers, to.stream, range(EVENTS, 2 * EVENTS)))
        wait_until(lambda: len(shop.accepted_ids) == 2 * EVENTS, what="all have come to one")
    assert set(shop.accepted_ids.values()) == {1}
