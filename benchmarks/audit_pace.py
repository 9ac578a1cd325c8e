"""Measures how many events per second the audit handles, and whether its memory grows.

It writes one minute's events after the other, with the ledger and receipts that gateway and
delivery would write. After each minute the audit, a separate process, runs once. At the end a newly
started audit reads everything at once.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.backlog import MINUTE_MS, Backlog
from benchmarks.process_tree import used_by
from deploy.local.cluster import Cluster
from observe.audit.audit_run import Audit
from observe.audit.kafka import AuditKafka, audit_kafka
from observe.audit.loop import audit_spark
from observe.audit.memory import Memory
from observe.audit.minutes import Rules
from observe.audit.signing import Signer
from observe.audit.spark_job import AuditReads
from shared.event.topics import destination_id, fixed_specs, stream_spec, stream_topic
from shared.proof.statement import SignedStatement
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.java.cache_folder import default_cache
from shared.runtime.kafka.topic_admin import topic_admin

_STREAM = "pace"
# A minute at 2,500 events a second, and one at 20,000.
_EVENTS, _BUSY_EVENTS = 150_000, 1_200_000
_BEGINNING, _MINUTES = 2, 20
_HEAP_MB = 512
_TIERS = [tier.name for tier in RetrySchedule().tiers]
_AT_ONCE = Rules(check_after_ms=0, overdue_ms=600_000)
# Begin this long ago, so that all minutes are over.
_AGE_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of the audit."""

    took_s: float
    # Processor time of the driver, its JVM and its workers.
    processor_s: float
    memory_mb: int
    # Events in statements of complete minutes.
    stated: int


@dataclass(frozen=True, slots=True)
class Pace:
    """The audit's runs: over small minutes, over a busy one, and a new audit's over all of them."""

    first: Ran
    # Medians of the later small minutes.
    warm_s: float
    warm_processor_s: float
    busy: Ran
    all_at_once: Ran
    # After 0.3 million events, and after ten times as many.
    memory_mb: tuple[int, int]

    @property
    def events_per_s(self) -> float:
        """The audit's rate over the busy minute of 20,000 events a second."""
        return self.busy.stated / self.busy.took_s

    @property
    def cold_events_per_s(self) -> float:
        return self.all_at_once.stated / self.all_at_once.took_s


def pace() -> Pace:
    """Measure the audit on a separate Kafka."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster(folder=Path(folder) / "kafka", cache=default_cache()) as kafka,
    ):
        return asyncio.run(_pace(kafka.bootstrap_servers, Path(folder) / "audit"))


async def _pace(kafka: str, folder: Path) -> Pace:
    async with topic_admin(kafka) as admin:
        await admin.create_missing([*fixed_specs(_TIERS), stream_spec(_STREAM)])
    backlog = Backlog(kafka, _STREAM)
    began_ms = now_ms() - now_ms() % MINUTE_MS - _AGE_MS
    runs = []
    with _audit(kafka, folder) as run:
        for minute in range(_MINUTES):
            await backlog.write(began_ms + minute * MINUTE_MS, _EVENTS)
            runs.append(run(_EVENTS))
        await backlog.write(began_ms + _MINUTES * MINUTE_MS, _BUSY_EVENTS)
        busy = run(_BUSY_EVENTS)
    with _audit(kafka, folder / "again") as run:
        all_at_once = run(_MINUTES * _EVENTS + _BUSY_EVENTS)
    return Pace(
        first=runs[0],
        warm_s=statistics.median(one.took_s for one in runs[1:]),
        warm_processor_s=statistics.median(one.processor_s for one in runs[1:]),
        busy=busy,
        all_at_once=all_at_once,
        memory_mb=(runs[_BEGINNING - 1].memory_mb, runs[-1].memory_mb),
    )


@contextmanager
def _audit(kafka: str, folder: Path) -> Iterator["_Run"]:
    command = [sys.executable, "-m", "benchmarks.audit_pace", kafka, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        try:
            yield _Run(one)
        finally:
            assert one.stdin is not None
            one.stdin.close()


class _Run:
    """Runs the audit once per call, and returns its figures."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        self._in, self._out = child.stdin, child.stdout

    def __call__(self, count: int) -> Ran:
        self._in.write("run\n")
        self._in.flush()
        ran = Ran(**json.loads(self._out.readline()))
        assert ran.stated == count, f"{ran.stated} of {count} events were stated as complete"
        return ran


async def _answer(kafka: str, folder: Path) -> None:
    """Run the audit once for each line of input; the main loop of the measured process."""
    with audit_spark(folder / "spark", None, heap_mb=_HEAP_MB) as spark:
        async with audit_kafka(kafka) as asked:
            await _runs(AuditReads(spark, kafka), asked, Memory(), folder)


async def _runs(job: AuditReads, kafka: AuditKafka, memory: Memory, folder: Path) -> None:
    stated = 0

    async def publish(made: Sequence[SignedStatement]) -> None:
        nonlocal stated
        await kafka.publish_statements(made)
        stated += sum(one.statement.acked for one in made if not _lost(one))

    audit = Audit(
        job=job,
        kafka=kafka,
        memory=memory,
        signer=Signer(folder),
        publish=publish,
        rules=_AT_ONCE,
        now_ms=now_ms,
    )
    destinations = {stream_topic(_STREAM): [destination_id(_STREAM, "sink")]}
    for _ in iter(sys.stdin.readline, ""):
        stated = 0
        before_s, _ = used_by(os.getpid())
        begun_s = time.perf_counter()
        is_behind = True
        while is_behind:
            outcome = await audit.run(destinations)
            await kafka.publish_minutes(outcome.changed)
            await kafka.save_memory(memory.to_bytes())
            is_behind = outcome.is_behind
        took_s = time.perf_counter() - begun_s
        after_s, memory_mb = used_by(os.getpid())
        print(json.dumps(asdict(Ran(took_s, after_s - before_s, memory_mb, stated))), flush=True)


def _lost(signed: SignedStatement) -> int:
    return sum(sum(one.lost.values()) for one in signed.statement.destinations.values())


if __name__ == "__main__":
    asyncio.run(_answer(sys.argv[1], Path(sys.argv[2])))
