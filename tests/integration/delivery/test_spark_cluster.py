"""Lanes run on a standalone Spark cluster, which gets all that its executors need."""

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Self

import pytest

from benchmarks.process_tree import states_of, tree_of
from deploy.local.children import Child
from deploy.local.cluster import Cluster
from deploy.local.ports import pick_free
from shared.config.configuration import Stream
from shared.config.destination import Destination
from shared.event.topics import fixed_specs, stream_spec, stream_topic
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka.clients import new_producer, running
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.deploy.stack_fixtures import PATIENCE_S, wait_until
from tests.support.deploy.standalone_spark import TASK_PLACES, Standalone, standalone
from tests.support.kafka.config_records import write_config
from tests.support.servers.scripted_destination import (
    Reply,
    ScriptedDestination,
    scripted_destination,
)

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]

EVENTS = 10_000
# Enough that some events are under way whenever a worker dies.
ANSWER = Reply(delay_s=0.1)
EVENTS_PER_S = 100.0


async def make(servers: str, *wanted: Destination) -> None:
    tiers = [tier.name for tier in RetrySchedule().tiers]
    streams = sorted({to.stream for to in wanted})
    async with topic_admin(servers) as admin:
        await admin.create_missing([*fixed_specs(tiers), *map(stream_spec, streams)])
    await write_config(servers, [*map(Stream, streams), *wanted])


async def write(servers: str, stream: str, numbers: range) -> None:
    async with running(new_producer(servers, linger_ms=20), servers) as producer:
        topic = stream_topic(stream)
        await asyncio.gather(
            *[await producer.send(topic, b'{"id":"e-%d"}' % number) for number in numbers]
        )


@dataclass
class Traffic:
    """A steady flow of events to some streams, for as long as the block lasts."""

    servers: str
    streams: list[str]
    ids: list[str] = field(default_factory=list)
    _is_over: bool = False
    _thread: Thread = field(default_factory=Thread)

    def __enter__(self) -> Self:
        self._thread = Thread(target=lambda: asyncio.run(self._write()))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()

    async def _write(self) -> None:
        began_s = time.monotonic()
        async with running(new_producer(self.servers), self.servers) as producer:
            while not self._is_over:
                for stream in self.streams:
                    self.ids.append(f"{stream}-{len(self.ids)}")
                    value = b'{"id":"%s"}' % self.ids[-1].encode()
                    await producer.send(stream_topic(stream), value)
                due_s = began_s + len(self.ids) / EVENTS_PER_S
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))


@contextmanager
def delivering(servers: str, spark: Standalone, folder: Path, **more: str) -> Iterator[Child]:
    (port,) = pick_free(1)
    environ = {
        **os.environ,
        "HIFI_SPARK_MASTER": spark.address,
        "SPARK_CONF_DIR": str(spark.conf),
        "HIFI_DELIVERY_BOOTSTRAP_SERVERS": servers,
        "HIFI_DELIVERY_FOLDER": str(folder),
        "HIFI_DELIVERY_METRICS_PORT": str(port),
        "HIFI_DELIVERY_ALLOW_PRIVATE": "true",
        "HIFI_DELIVERY_MAKES_CLASS_ARCHIVE": "false",
        "HIFI_DELIVERY_TASK_PLACES": str(TASK_PLACES),
        "HIFI_DELIVERY_HEAP_MB": "512",
        **more,
    }
    log = folder.with_suffix(".log")
    delivery = Child("delivery", [sys.executable, "-m", "delivery"], log=log, env=environ)
    try:
        yield delivery
    finally:
        delivery.stop(timeout_s=60)


def assert_each_came_and_repeats_say_so(shop: ScriptedDestination, ids: Sequence[str]) -> None:
    shop.wait_for(lambda: len(shop.accepted_ids) >= len(ids), timeout_s=PATIENCE_S)
    assert shop.accepted_ids.keys() == set(ids)
    seen: set[str] = set()
    for request in sorted(shop.requests, key=lambda each: each.received_s):
        mine = {event["id"] for event in request.events}
        assert not mine & seen or "hifi-maybe-duplicate" in request.headers
        seen |= mine


@contextmanager
def standing_still(worker: Child) -> Iterator[None]:
    """Freeze a worker and its executors while the block lasts, as if they were cut off."""
    pids = tree_of(worker.pid)
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        assert states_of(pids) == {"T"}
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def wait_for_more(shop: ScriptedDestination) -> None:
    count = len(shop.requests)
    wait_until(lambda: len(shop.requests) > count + 2, what="the destination is sent to")


def test_ten_thousand_events_go_through_an_executor_elsewhere(
    kafka: Cluster, tmp_path: Path
) -> None:
    servers, folder = kafka.bootstrap_servers, tmp_path / "delivery"
    with scripted_destination() as shop, standalone(tmp_path) as spark:
        to = Destination("clustered", "to", shop.url, batch_count_max=500)
        asyncio.run(make(servers, to))
        asyncio.run(write(servers, to.stream, range(EVENTS)))
        with delivering(servers, spark, folder) as delivery:
            done = shop.wait_for(
                lambda: sum(shop.accepted_ids.values()) >= EVENTS, timeout_s=PATIENCE_S
            )
            assert done, delivery.log.read_text()[-3_000:]
            assert shop.accepted_ids == Counter(f"e-{number}" for number in range(EVENTS))
            # The destination's flow is stored where its workers are.
            assert list(spark.work(spark.workers[0]).rglob("flows/clustered.to.json"))
            assert not (folder / "flows").exists()


@pytest.mark.parametrize("kills", [4, 20])
def test_workers_die_two_at_once_and_all_goes_on_with_others(
    kills: int, kafka: Cluster, tmp_path: Path
) -> None:
    """Nothing is lost, and every repeat is labelled."""
    servers, folder = kafka.bootstrap_servers, tmp_path / "delivery"
    with (
        ExitStack() as shops,
        standalone(tmp_path, workers=4) as spark,
    ):
        # These destinations have names that spread them over both executors.
        of_stream = {
            f"killed{kills}-{number}": shops.enter_context(
                scripted_destination(lambda _, __: ANSWER)
            )
            for number in range(4)
        }
        wanted = [Destination(stream, "to", shop.url) for stream, shop in of_stream.items()]
        asyncio.run(make(servers, *wanted))
        killed: set[int] = set()
        with delivering(servers, spark, folder, HIFI_SPARK_EXECUTORS="2"):
            with Traffic(servers, list(of_stream)) as traffic:
                while len(killed) < kills:
                    wait_until(lambda: len(spark.busy()) == 2, what="there are two executors")
                    for shop in of_stream.values():
                        wait_for_more(shop)
                    victims = spark.busy()
                    executors = {pid for each in victims for pid in spark.executors(each)}
                    assert len(executors) == 2
                    assert not executors & killed
                    killed |= executors
                    for victim in victims:
                        victim.kill()
                        spark.start_worker()
                for shop in of_stream.values():
                    wait_for_more(shop)
            for stream, shop in of_stream.items():
                mine = [each for each in traffic.ids if each.startswith(f"{stream}-")]
                assert_each_came_and_repeats_say_so(shop, mine)
    # Some events were under way when the workers died.
    assert max(count for shop in of_stream.values() for count in shop.accepted_ids.values()) > 1


def test_a_worker_that_joins_gets_tasks_and_all_of_them_when_the_other_one_freezes(
    kafka: Cluster, tmp_path: Path
) -> None:
    servers, folder = kafka.bootstrap_servers, tmp_path / "delivery"
    with scripted_destination(lambda _, __: ANSWER) as shop, standalone(tmp_path) as spark:
        wanted = [Destination(f"joined{number}", "to", shop.url) for number in range(8)]
        asyncio.run(make(servers, *wanted))
        names = {to.id.replace("/", ".") for to in wanted}

        def known_at(worker: Child) -> set[str]:
            """Return the destinations to which this worker has sent."""
            return {file.stem for file in spark.work(worker).rglob("flows/*.json")}

        with delivering(servers, spark, folder, HIFI_SPARK_EXECUTORS="2"):
            with Traffic(servers, [to.stream for to in wanted]) as traffic:
                first = spark.workers[0]
                wait_until(lambda: known_at(first) == names, what="the first worker has all")
                joined = spark.start_worker()
                wait_until(lambda: len(known_at(joined)) > 1, what="the other worker has some")
                # A destination's name decides which worker has it.
                for _ in range(5):
                    wait_for_more(shop)
                assert known_at(joined) < names
                with standing_still(first):
                    # Issue 15: within a minute.
                    wait_until(
                        lambda: known_at(joined) == names,
                        what="the other worker has all",
                        timeout_s=60,
                    )
                    wait_for_more(shop)
                wait_for_more(shop)
            assert_each_came_and_repeats_say_so(shop, traffic.ids)
