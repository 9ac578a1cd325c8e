"""Gives tests all of Hifi, started like `hifi up`: real Kafka, Spark and HTTP."""

import asyncio
import os
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from aiokafka import ConsumerRecord

from deploy.cli.events.minute_ids import statements_of
from deploy.cli.events.proofs import Proof
from deploy.local.ports import pick_free
from deploy.local.stack import Stack
from deploy.local.stack_settings import StackSettings
from observe.lag.live_books import open_books
from shared.config.access import DEFAULT_TENANT
from shared.config.configuration import (
    Configuration,
    RemovedDestination,
    RemovedPipeline,
    Stream,
)
from shared.config.destination import Destination
from shared.event.topics import DEAD, STREAM_PARTITIONS, stream_and_name, stream_spec
from shared.proof.balance import Balance
from shared.runtime.clock import now_ms
from shared.runtime.control_client import ControlClient
from shared.runtime.kafka.config_topic import read_config
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.kafka.config_records import write_config
from tests.support.kafka.kafka_log import read_all
from tests.support.pipelines.installed_functions import install
from tests.support.servers.authority import Authority
from tests.support.servers.trace_collector import TraceCollector, trace_collector

# The 30 s tier lasts 0.6 s, the deadline of 72 h an hour and a half.
TIME_SCALE = 0.02
QUICK_INTERVALS = {
    # A minute is judged soon after its last event.
    "HIFI_OBSERVE_CHECK_AFTER_S": "2",
    "HIFI_OBSERVE_AUDIT_INTERVAL_S": "10",
    # An archive writes its objects each second.
    "HIFI_PIPELINES_ARCHIVE_EVERY_S": "1",
    # Kafka's minimum: after this time an observer that was killed regains the audit.
    "HIFI_OBSERVE_LEASE_S": "6",
}
# The same key for all observers, as on several machines: it is not on the disk of one of them.
STATEMENT_KEY = {"HIFI_OBSERVE_STATEMENT_KEY": "07" * 32}
# Spark starts in 10 s on two idle cores; tests never have idle cores.
PATIENCE_S = 90.0
# A Spark driver that starts beside the rest of a suite takes this long.
_REVIVAL_S = 240.0
_LOOK_S = 0.1


@dataclass
class RunningHifi:
    stack: Stack
    # The destinations that this test has added; their lanes go when the test ends.
    added: list[Destination] = field(default_factory=list)

    @property
    def kafka(self) -> str:
        return self.stack.bootstrap_servers

    @property
    def gateway(self) -> str:
        return f"http://127.0.0.1:{self.stack.settings.gateway_port}"

    def add(self, destination: Destination, *, partition_count: int = STREAM_PARTITIONS) -> None:
        """Create a stream with one destination and wait until its lane runs."""
        asyncio.run(self._add(destination, partition_count))
        self.added.append(destination)
        self.wait_for_lane(destination.id)

    def change(self, destination: Destination) -> None:
        """Store a destination's new settings."""
        asyncio.run(write_config(self.kafka, [destination]))

    def dead_letters(self, destination_id: str) -> list[ConsumerRecord]:
        """Return the dead letters of one destination."""
        return [one for one in self.records(DEAD) if one.key == destination_id.encode()]

    def remove_added(self) -> None:
        """Remove the test's destinations, so that the next test has the cores to itself."""
        if self.added:
            gone = [
                RemovedDestination(each.stream, each.name, DEFAULT_TENANT, now_ms())
                for each in self.added
            ]
            asyncio.run(write_config(self.kafka, gone))

    def remove_pipelines(self) -> None:
        """Remove all pipelines: each slows the next test, and is planned again at each start."""
        known = asyncio.run(read_config(self.kafka))
        gone = []
        for name, each in known.pipelines.items():
            built = known.replacements.get(name)
            generation = max(each.generation, built.generation if built else 0)
            keeps = bool(each.kept_shape)
            where = (name, each.tenant, each.source.stream)
            gone.append(RemovedPipeline(*where, generation, now_ms(), keeps=keeps))
        if gone:
            asyncio.run(write_config(self.kafka, gone))

    def revive(self, name: str) -> None:
        """Restart a killed service, and wait until it is ready."""
        # A service that dies too often waits longer; these deaths are intended.
        self.stack.restarts.forgive()
        self.stack.look_after()
        (service,) = [each for each in self.stack.services if each.name == name]
        wait_until(service.is_ready, what=f"{name} is up again", timeout_s=_REVIVAL_S)

    def wait_for_lane(self, destination_id: str) -> None:
        metrics = f"http://127.0.0.1:{self.stack.settings.delivery_metrics_port}/metrics"
        line = f'hifi_delivery_lane_up{{destination="{destination_id}"}} 1.0'
        wait_until(lambda: line in fetch(metrics), what=f"the lane {destination_id} is up")

    def post(
        self, stream: str, events: Sequence[object], headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        url = f"{self.gateway}/v1/streams/{stream}/events"
        return httpx.post(url, json=events, headers=headers, timeout=30)

    def balance(self, destination_id: str) -> Balance:
        """Return the present books."""
        return self.wait_for_balance(destination_id, lambda _: True, what="the books are there")

    def wait_for_balance(
        self,
        destination_id: str,
        holds: Callable[[Balance], bool],
        *,
        what: str,
        timeout_s: float = PATIENCE_S,
    ) -> Balance:
        """Return the books once they are as wanted."""
        stream, _ = stream_and_name(destination_id)
        last: list[Balance] = []

        async def look() -> None:
            # Kept open: rereading all receipts ten times a second would take a core from the lanes.
            async with open_books(self.kafka, Configuration) as books:
                while not last or not holds(last[-1]):
                    await asyncio.sleep(_LOOK_S if last else 0)
                    await books.refresh([stream], [destination_id])
                    last.append(books.balance(destination_id))

        try:
            asyncio.run(asyncio.wait_for(look(), timeout_s))
        except TimeoutError:
            says = f"after {timeout_s:.0f} s still not so: {what}; the books say {last[-1:]}"
            raise AssertionError(says) from None
        return last[-1]

    def wait_until_stated(self, stream: str, minute_ms: int, acked: int) -> None:
        """Wait until the newest statement about a minute counts `acked` events.

        It asks the gateway: a command would be a new process each time, which would delay services
        that are starting.
        """
        last = list[int]()

        def is_stated() -> bool:
            said = self.statements(stream, minute_ms)
            last[:] = [one.acked for one in said if one.minute_ms == minute_ms]
            return last[-1:] == [acked]

        wait_until(is_stated, what=lambda: f"a statement counts {acked} events; it counts {last}")

    def statements(self, stream: str, minute_ms: int) -> list[Proof]:
        """Return the signed statements of a stream's minutes from this one on, oldest first."""
        return statements_of(ControlClient(self.gateway, None), stream, minute_ms)

    def records(self, topic: str) -> list[ConsumerRecord]:
        """Return all records that a topic holds now."""
        return asyncio.run(read_all(self.kafka, topic))

    async def _add(self, destination: Destination, partition_count: int) -> None:
        stream = Stream(destination.stream, partition_count)
        async with topic_admin(self.kafka) as admin:
            spec = stream_spec(stream.name, partition_count=partition_count)
            await admin.create_missing([spec])
        await write_config(self.kafka, [stream, destination])


def stack_settings(folder: Path, cache: Path) -> StackSettings:
    """Return settings with free ports, small heaps and fast retries."""
    kafka, gateway, sample, *metrics = pick_free(9)
    return StackSettings(
        folder=folder,
        cache=cache,
        kafka_port=kafka,
        gateway_port=gateway,
        gateway_metrics_port=metrics[0],
        delivery_metrics_port=metrics[1],
        retrier_metrics_port=metrics[2],
        observe_metrics_port=metrics[3],
        pipelines_metrics_port=metrics[4],
        console_port=metrics[5],
        sample_port=sample,
        spark_heap_mb=512,
        time_scale=TIME_SCALE,
        # Other tests run beside this Hifi, and do not leave it any processors.
        is_nice=False,
    )


@pytest.fixture(scope="session")
def traces() -> Iterator[TraceCollector]:
    """Run the collector of that Hifi's spans."""
    with trace_collector() as collector:
        yield collector


@pytest.fixture(scope="session")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return the authority whose certificates that Hifi trusts."""
    return Authority(tmp_path_factory.mktemp("trusted"))


@pytest.fixture(scope="session")
def hifi_stack(
    tmp_path_factory: pytest.TempPathFactory,
    jars_cache: Path,
    traces: TraceCollector,
    trusted: Authority,
) -> Iterator[Stack]:
    """Start one Hifi for all tests that need all of it: each start costs two Spark drivers."""
    settings = stack_settings(tmp_path_factory.mktemp("hifi"), jars_cache)
    packages = str(install(tmp_path_factory.mktemp("packages")))
    paths = [packages, *filter(None, [os.environ.get("PYTHONPATH")])]
    environ = {
        **os.environ,
        **QUICK_INTERVALS,
        **STATEMENT_KEY,
        "HIFI_OTLP_ENDPOINT": traces.url,
        "SSL_CERT_FILE": str(trusted.file),
        "PYTHONPATH": os.pathsep.join(paths),
    }
    stack = Stack(settings, environ=environ, say=lambda _: None)
    stack.start(lambda _: None)
    try:
        yield stack
    finally:
        stack.stop()


@pytest.fixture
def hifi(hifi_stack: Stack) -> Iterator[RunningHifi]:
    """Return all of Hifi; a test names its own stream, and all that it adds is removed after it."""
    running = RunningHifi(hifi_stack)
    try:
        yield running
    finally:
        running.remove_added()
        running.remove_pipelines()


def fetch(url: str) -> str:
    """Return the text of a page, or nothing while there is no answer."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            text: str = response.read().decode()
            return text
    except OSError:
        return ""


def wait_until(
    holds: Callable[[], bool],
    *,
    what: str | Callable[[], str],
    timeout_s: float = PATIENCE_S,
    look_s: float = _LOOK_S,
) -> None:
    """Wait for a condition, and say which one was never met."""
    until_s = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > until_s:
            says = what if isinstance(what, str) else what()
            raise AssertionError(f"after {timeout_s:.0f} s this is still not true: {says}")
        time.sleep(look_s)
