"""Lanes run on a standalone Spark cluster, which is given what its executors need."""

import asyncio
import os
import sys
from collections.abc import Iterator
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
from tests.support.config_records import write_config
from tests.support.scripted_destination import scripted_destination
from tests.support.stack_fixtures import PATIENCE_S, fetch, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.long]

SPARK_HOME = Path(pyspark.__file__).parent
EVENTS = 10_000
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


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A standalone cluster of one worker."""
    port, page = pick_free(2)
    address = f"spark://127.0.0.1:{port}"
    here = ("--host", "127.0.0.1")
    children = [
        started("master", tmp_path, *here, "--port", f"{port}", "--webui-port", f"{page}"),
        started(
            "worker", tmp_path, *here, "--cores", f"{SLOTS}", "--memory", "2g",
            "--work-dir", str(tmp_path / "work"), "--webui-port", "0", address,
        ),
    ]  # fmt: skip
    try:
        wait_until(
            lambda: f"{SLOTS} Total" in fetch(f"http://127.0.0.1:{page}"), what="there is a worker"
        )
        yield address
    finally:
        for child in reversed(children):
            child.stop(timeout_s=10)


async def fill(servers: str, to: Destination) -> None:
    """A stream with events, and a destination that wants all of them."""
    tiers = [tier.name for tier in RetrySchedule().tiers]
    async with topic_admin(servers) as admin:
        await admin.create_missing([*fixed_specs(tiers), stream_spec(to.stream)])
    async with running(new_producer(servers, linger_ms=20), servers) as producer:
        topic = stream_topic(to.stream)
        sent = [await producer.send(topic, b'{"id":"e-%d"}' % each) for each in range(EVENTS)]
        await asyncio.gather(*sent)
    await write_config(servers, [Stream(to.stream), to])


def test_ten_thousand_events_go_through_an_executor(
    kafka: Cluster, tmp_path: Path, master: str
) -> None:
    (port,) = pick_free(1)
    environ = {
        **os.environ,
        "HIFI_SPARK_MASTER": master,
        "HIFI_DELIVERY_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "HIFI_DELIVERY_FOLDER": str(tmp_path / "delivery"),
        "HIFI_DELIVERY_METRICS_PORT": str(port),
        "HIFI_DELIVERY_ALLOW_PRIVATE": "true",
        "HIFI_DELIVERY_MAKES_CLASS_ARCHIVE": "false",
        "HIFI_DELIVERY_SLOTS": str(SLOTS),
        "HIFI_DELIVERY_HEAP_MB": "512",
    }
    with scripted_destination() as destination:
        to = Destination("clustered", "to", destination.url, batch_count_max=500)
        asyncio.run(fill(kafka.bootstrap_servers, to))
        command = [sys.executable, "-m", "delivery"]
        delivery = Child("delivery", command, log=tmp_path / "delivery.log", env=environ)
        try:
            came = destination.wait_for(
                lambda: len(destination.accepted_ids) == EVENTS, timeout_s=PATIENCE_S
            )
            assert came, (len(destination.accepted_ids), delivery.log.read_text()[-3_000:])
            ready = f"http://127.0.0.1:{port}/readyz"
            wait_until(lambda: fetch(ready) == "ready\n", what="it is ready")
        finally:
            delivery.stop(timeout_s=60)
        ids = destination.accepted_ids
    assert set(ids) == {f"e-{each}" for each in range(EVENTS)}
    assert set(ids.values()) == {1}
    # What is known of the destination is where its workers are.
    assert list((tmp_path / "work").rglob("flows/clustered.to.json"))
    assert not (tmp_path / "delivery" / "flows").exists()
