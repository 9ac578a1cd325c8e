"""Two retriers share waiting events: one joins, one freezes and returns, one dies (ADR 0067)."""

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deploy.local.children import Child, session_of
from deploy.local.cluster import Cluster
from deploy.local.ports import pick_free
from shared.config.configuration import Stream
from shared.config.destination import Destination
from shared.event.envelope import History, open_stream_record, retry_headers
from shared.event.record import RecordOut
from shared.event.topics import fixed_specs, retry_key, retry_topic
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.delivery.deliver_runs import events
from tests.support.deploy.stack_fixtures import PATIENCE_S, fetch, wait_until
from tests.support.kafka.config_records import write_config
from tests.support.kafka.kafka_log import write_rows
from tests.support.servers.scripted_destination import (
    Reply,
    Request,
    ScriptedDestination,
    scripted_destination,
)

pytestmark = [pytest.mark.integration, pytest.mark.long]

# Kafka's minimum.
LEASE_S = 6.0
# Issue 15: the time within which others send the events of a dead one.
FAILOVER_S = 60.0
START_S = 240.0
# Three to five in each of the four Kafka partitions, so that each process has some.
DESTINATIONS = list("abcdefghijklmnop")
# A 30 s tier releases an event after 0.3 s.
TIME_SCALE = 0.01


class Retrier:
    """One process with a folder of its own, as on a machine of its own."""

    def __init__(self, name: str, kafka: str, folder: Path) -> None:
        (self.port,) = pick_free(1)
        mine = {
            "BOOTSTRAP_SERVERS": kafka,
            "FOLDER": str(folder / name),
            "METRICS_PORT": str(self.port),
            "LEASE_S": str(LEASE_S),
            "TIME_SCALE": str(TIME_SCALE),
            "HEAP_MB": "512",
            "ALLOW_PRIVATE": "true",
        }
        env = {f"HIFI_RETRIER_{variable}": value for variable, value in mine.items()}
        argv = [sys.executable, "-m", "retrier"]
        self.child = Child(name, argv, log=folder / f"{name}.log", env={**os.environ, **env})

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all processes of this one's session, as if it hit a machine."""
        for pid in session_of(self.child.pid):
            os.kill(pid, number)

    @property
    def is_ready(self) -> bool:
        return fetch(f"http://127.0.0.1:{self.port}/readyz").startswith("ready")

    @property
    def released(self) -> float:
        metrics = fetch(f"http://127.0.0.1:{self.port}/metrics")
        return sum(
            map(float, re.findall(r"hifi_retrier_events_released_total\{.*\} (.*)", metrics))
        )

    def said(self, word: str) -> int:
        return self.child.log.read_text().count(f'"event": "{word}"')


def slowly(_: int, __: Request) -> Reply:
    """Answer slowly, so that a process's trouble falls between two answers."""
    return Reply(delay_s=0.1)


@dataclass
class Ground:
    """A Kafka with a stream, and destinations for which events wait."""

    kafka: str
    folder: Path
    resources: ExitStack
    to: ScriptedDestination = field(init=False)
    written: int = 0

    def __post_init__(self) -> None:
        self.to = self.resources.enter_context(scripted_destination(slowly))
        asyncio.run(self._make())

    async def _make(self) -> None:
        async with topic_admin(self.kafka) as admin:
            await admin.create_missing(fixed_specs([t.name for t in RetrySchedule().tiers]))
        # Few events at once, so that some are always under way.
        destinations = [
            Destination("demo", name, f"{self.to.url}{name}", batch_count_max=2, parallel_max=1)
            for name in DESTINATIONS
        ]
        await write_config(self.kafka, [Stream("demo"), *destinations])

    def retrier(self, name: str) -> Retrier:
        one = Retrier(name, self.kafka, self.folder)
        self.resources.callback(one.child.kill)
        return one

    def write(self, count: int = 4) -> None:
        """Let `count` more events wait for each destination."""
        at_ms = now_ms()
        history = History(
            attempt_count=1,
            park_count=0,
            first_attempt_at_ms=at_ms,
            deadline_at_ms=at_ms + 3_600_000,
            not_before_ms=at_ms,
        )
        rows = [
            RecordOut(
                retry_topic("30s"),
                retry_key(f"demo/{name}"),
                json.dumps({"id": f"{name}.{record.origin.offset}"}).encode(),
                retry_headers(open_stream_record(record), f"demo/{name}", history, now_ms=at_ms),
            )
            for record in events(count, first=self.written)
            for name in DESTINATIONS
        ]
        asyncio.run(write_rows(self.kafka, rows))
        self.written += count

    def write_until(self, holds: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            self.write()
            return holds()

        # Spark starts in ten seconds on two idle cores, and in minutes on busy ones.
        wait_until(look, what=what, timeout_s=START_S, look_s=0.5)

    def sends(self, one: Retrier) -> None:
        """Write events until this retrier is in the middle of sending."""
        before = one.released
        self.write_until(lambda: one.released > before, f"{one.child.name} sends")

    def all_come(self) -> Counter[str]:
        wanted = {f"{name}.{n}" for name in DESTINATIONS for n in range(self.written)}
        wait_until(
            lambda: self.to.accepted_ids.keys() == wanted,
            what=lambda: (
                f"all events arrive; {len(wanted - self.to.accepted_ids.keys())} are missing"
            ),
            timeout_s=PATIENCE_S,
        )
        return Counter(self.to.accepted_ids)

    def plain(self) -> Counter[str]:
        """Return how often each event arrived without the label of a possible repeat."""
        return Counter(
            event["id"]
            for request in self.to.accepted
            if "hifi-maybe-duplicate" not in request.headers
            for event in request.events
        )


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory, jars_cache: Path) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("retriers")
    with ExitStack() as resources:
        cluster = resources.enter_context(Cluster(folder=folder / "kafka", cache=jars_cache))
        yield Ground(cluster.bootstrap_servers, folder, resources)


def test_who_joins_repeats_nothing_and_who_freezes_or_dies_loses_nothing(ground: Ground) -> None:
    stays, other = ground.retrier("stays"), ground.retrier("other")
    wait_until(
        lambda: stays.is_ready and other.is_ready, what="both retriers are up", timeout_s=START_S
    )
    # First wait until the slots that move between the two have settled.
    ground.sends(stays)
    ground.sends(other)
    joins = ground.retrier("joins")
    ground.write_until(lambda: joins.is_ready and joins.released > 0, "a third retrier sends")
    assert max(ground.all_come().values()) == 1
    assert set(ground.plain().values()) == {1}
    joins.child.stop(PATIENCE_S)
    ground.write()
    assert max(ground.all_come().values()) == 1, "a process that leaves repeats nothing"
    for _ in range(3):
        ground.sends(other)
        lost = other.said("lease.lost")
        other.send(signal.SIGSTOP)
        frozen_s = time.monotonic()
        ground.all_come()
        assert time.monotonic() - frozen_s < FAILOVER_S
        other.send(signal.SIGCONT)
        wait_until(lambda now=lost: other.said("lease.lost") > now, what="its lease is lost")  # type: ignore[misc]
    for _ in range(2):
        ground.sends(other)
        other.send(signal.SIGKILL)
        killed_s = time.monotonic()
        ground.all_come()
        assert time.monotonic() - killed_s < FAILOVER_S
        other = ground.retrier("other")
    came = ground.all_come()
    assert max(ground.plain().values()) == 1, "an event arrived twice without a label"
    again = sum(times - 1 for times in came.values())
    # Five processes stopped, each with a batch or two of each destination under way.
    assert again < 5 * 4 * len(DESTINATIONS)
