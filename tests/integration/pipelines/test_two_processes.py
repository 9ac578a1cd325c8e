"""Two processes share pipelines: one joins, one leaves, one freezes and returns (ADR 0077)."""

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deploy.local.children import Child, session_of
from deploy.local.cluster import Cluster
from deploy.local.ports import pick_free
from pipelines.jobs.job import MAYBE_DUPLICATE
from shared.config.pipeline import Pipeline
from shared.event.envelope import event_headers
from shared.event.record import RecordOut
from shared.event.topics import fixed_specs, stream_topic
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.deploy.stack_fixtures import PATIENCE_S, fetch, wait_until
from tests.support.kafka.kafka_log import write_rows
from tests.support.pipelines.pipeline_runs import START_S, document, put, written

pytestmark = [pytest.mark.integration, pytest.mark.long]

# Kafka's minimum.
LEASE_S = 6.0
# Each of two processes has three: their slots are in the lower and in the upper half.
NAMES = ["p0", "p1", "p2", "a", "b", "c"]


class Process:
    """A process with a folder of its own, as on a machine of its own."""

    def __init__(self, name: str, kafka: str, folder: Path) -> None:
        (self.port,) = pick_free(1)
        mine = {
            "BOOTSTRAP_SERVERS": kafka,
            "FOLDER": str(folder / name),
            "METRICS_PORT": str(self.port),
            "LEASE_S": str(LEASE_S),
            "HEAP_MB": "512",
        }
        env = {f"HIFI_PIPELINES_{variable}": value for variable, value in mine.items()}
        argv = [sys.executable, "-m", "pipelines"]
        self.child = Child(name, argv, log=folder / f"{name}.log", env={**os.environ, **env})

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all processes of this one's session, as if it hit a machine."""
        for pid in session_of(self.child.pid):
            os.kill(pid, number)

    @property
    def has_work(self) -> bool:
        metrics = fetch(f"http://127.0.0.1:{self.port}/metrics")
        return "hifi_pipelines_lane_up{" in metrics

    def said(self, word: str) -> int:
        return self.child.log.read_text().count(f'"event": "{word}"')


@dataclass
class Ground:
    kafka: str
    folder: Path
    resources: ExitStack
    pipelines: list[Pipeline] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        asyncio.run(self._make())
        self.pipelines = [
            document(name, "shared", schema="n BIGINT", to=[{"stream": f"{name}-out"}])
            for name in NAMES
        ]
        put(self.kafka, *self.pipelines)

    async def _make(self) -> None:
        async with topic_admin(self.kafka) as admin:
            await admin.create_missing(fixed_specs([t.name for t in RetrySchedule().tiers]))

    def process(self, name: str) -> Process:
        one = Process(name, self.kafka, self.folder)
        self.resources.callback(one.child.kill)
        return one

    def write(self, count: int = 200) -> None:
        at_ms = now_ms()
        rows = [
            RecordOut(
                stream_topic("shared"),
                None,
                b'{"n":%d}' % number,
                event_headers(event_id=str(number), event_time_ms=at_ms, accepted_at_ms=at_ms),
            )
            for number in range(self.count, self.count + count)
        ]
        asyncio.run(write_rows(self.kafka, rows))
        self.count += count

    def all_come(self) -> int:
        """Check that each pipeline passed on each event; return the number of repeats."""
        wanted = set(range(self.count))
        again = 0
        for name in NAMES:
            wait_until(
                lambda it=name: (
                    {row.value["n"] for row in written(self.kafka, f"{it}-out")}  # type: ignore[misc]
                    == wanted
                ),
                what=f"all of {name}'s events arrive",
                timeout_s=START_S,
            )
            rows = written(self.kafka, f"{name}-out")
            assert len({(row.value["n"], row.event_id) for row in rows}) == self.count
            plain = Counter(row.event_id for row in rows if MAYBE_DUPLICATE not in row.headers)
            assert max(plain.values()) == 1, "an event arrived twice without a label"
            again += len(rows) - self.count
        return again


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory, jars_cache: Path) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("processes")
    with ExitStack() as resources:
        cluster = resources.enter_context(Cluster(folder=folder / "kafka", cache=jars_cache))
        yield Ground(cluster.bootstrap_servers, folder, resources)


@pytest.mark.timeout(1_200)
def test_who_joins_or_leaves_repeats_nothing_and_who_freezes_loses_nothing(ground: Ground) -> None:
    first = ground.process("first")
    wait_until(lambda: first.has_work, what="the process works", timeout_s=START_S)
    ground.write()
    assert ground.all_come() == 0
    second = ground.process("second")
    wait_until(lambda: second.has_work, what="the process has a part", timeout_s=START_S)
    ground.write()
    assert ground.all_come() == 0, "work ends before its slot moves"
    lost = first.said("lease.lost")
    ground.write()
    first.send(signal.SIGSTOP)
    frozen_s = time.monotonic()
    ground.write()
    ground.all_come()
    assert time.monotonic() - frozen_s < 60.0
    first.send(signal.SIGCONT)
    wait_until(lambda: first.said("lease.lost") > lost, what="the process knows of its loss")
    wait_until(lambda: first.has_work, what="the process has a part again", timeout_s=START_S)
    before = ground.all_come()
    first.child.stop(PATIENCE_S)
    ground.write()
    assert ground.all_come() == before, "a process that leaves repeats nothing"
