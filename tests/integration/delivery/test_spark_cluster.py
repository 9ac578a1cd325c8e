"""Lanes run on a standalone Spark cluster, which is given what its executors need."""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from deploy.local.children import Child
from deploy.local.cluster import Cluster
from deploy.local.ports import pick_free
from shared.config.configuration import Stream
from shared.config.destination import Destination
from shared.event.topics import fixed_specs, stream_spec, stream_topic
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka.clients import new_producer, running
from shared.runtime.kafka.topic_admin import topic_admin
from tests.integration.deploy.test_probes import jvms_of
from tests.support.config_records import write_config
from tests.support.scripted_destination import Reply, always, scripted_destination
from tests.support.stack_fixtures import PATIENCE_S, fetch, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.long]

SPARK_HOME = Path(pyspark.__file__).parent
EVENTS, MORE = 10_000, 2_000
SLOTS = 12


def started(name: str, folder: Path, *arguments: str) -> Child:
    """One of Spark's own daemons, as its pages say that it is started."""
    what = f"org.apache.spark.deploy.{name}.{name.capitalize()}"
    environ = {
        # A worker has nothing of what the driver has in its environment.
        **{each: value for each, value in os.environ.items() if not each.startswith("HIFI_")},
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    spark_class = SPARK_HOME / "bin" / "spark-class"
    return Child(name, [spark_class, what, *arguments], log=folder / f"{name}.log", env=environ)


@dataclass(frozen=True)
class Standalone:
    """A cluster of one worker, and where that keeps what its executors write."""

    address: str
    worker: Child
    work: Path

    @property
    def executor(self) -> int:
        (found,) = set(jvms_of(self.worker.pid)) - {self.worker.pid}
        return found


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[Standalone]:
    port, page = pick_free(2)
    address, here, work = f"spark://127.0.0.1:{port}", ("--host", "127.0.0.1"), tmp_path / "work"
    master = started("master", tmp_path, *here, "--port", f"{port}", "--webui-port", f"{page}")
    cores = ("--cores", f"{SLOTS}", "--memory", "2g", "--webui-port", "0")
    worker = started("worker", tmp_path, *here, *cores, "--work-dir", f"{work}", address)
    try:
        wait_until(
            lambda: f"{SLOTS} Total" in fetch(f"http://127.0.0.1:{page}"), what="there is a worker"
        )
        yield Standalone(address, worker, work)
    finally:
        worker.stop(timeout_s=10)
        master.stop(timeout_s=10)


async def make(servers: str, to: Destination) -> None:
    tiers = [tier.name for tier in RetrySchedule().tiers]
    async with topic_admin(servers) as admin:
        await admin.create_missing([*fixed_specs(tiers), stream_spec(to.stream)])
    await write_config(servers, [Stream(to.stream), to])


async def write(servers: str, numbers: range) -> None:
    async with running(new_producer(servers, linger_ms=20), servers) as producer:
        topic = stream_topic("clustered")
        await asyncio.gather(
            *[await producer.send(topic, b'{"id":"e-%d"}' % number) for number in numbers]
        )


@contextmanager
def delivering(servers: str, spark: Standalone, folder: Path) -> Iterator[Child]:
    (port,) = pick_free(1)
    environ = {
        **os.environ,
        "HIFI_SPARK_MASTER": spark.address,
        "HIFI_DELIVERY_BOOTSTRAP_SERVERS": servers,
        "HIFI_DELIVERY_FOLDER": str(folder),
        "HIFI_DELIVERY_METRICS_PORT": str(port),
        "HIFI_DELIVERY_ALLOW_PRIVATE": "true",
        "HIFI_DELIVERY_MAKES_CLASS_ARCHIVE": "false",
        "HIFI_DELIVERY_SLOTS": str(SLOTS),
        "HIFI_DELIVERY_HEAP_MB": "512",
    }
    log = folder.with_suffix(".log")
    delivery = Child("delivery", [sys.executable, "-m", "delivery"], log=log, env=environ)
    try:
        yield delivery
    finally:
        delivery.stop(timeout_s=60)


def test_ten_thousand_events_go_through_an_executor_that_dies_once(
    kafka: Cluster, tmp_path: Path, spark: Standalone
) -> None:
    servers, folder = kafka.bootstrap_servers, tmp_path / "delivery"
    with scripted_destination() as shop:
        to = Destination("clustered", "to", shop.url, batch_count_max=500)
        asyncio.run(make(servers, to))
        asyncio.run(write(servers, range(EVENTS)))

        def all_came(count: int) -> bool:
            return shop.wait_for(lambda: len(shop.accepted_ids) == count, timeout_s=PATIENCE_S)

        with delivering(servers, spark, folder) as delivery:
            assert all_came(EVENTS), delivery.log.read_text()[-3_000:]
            assert set(shop.accepted_ids.values()) == {1}
            # What is known of the destination is where its workers are.
            assert list(spark.work.rglob("flows/clustered.to.json"))
            assert not (folder / "flows").exists()

            shop.script = lambda _, __: Reply(delay_s=1.0)
            before = len(shop.requests)
            asyncio.run(write(servers, range(EVENTS, EVENTS + MORE)))
            wait_until(lambda: len(shop.requests) > before, what="requests are under way")
            os.kill(spark.executor, signal.SIGKILL)
            shop.script = always(200)
            assert all_came(EVENTS + MORE), delivery.log.read_text()[-3_000:]
    assert set(shop.accepted_ids) == {f"e-{number}" for number in range(EVENTS + MORE)}
    plain = [each for each in shop.accepted if "hifi-maybe-duplicate" not in each.headers]
    assert set(Counter(event["id"] for each in plain for event in each.events).values()) == {1}
