"""Runs and controls a pipelines process for measurements."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

from benchmarks.process_tree import proportional_mb, used_by
from deploy.local.children import Child
from deploy.local.ports import pick_free
from shared.config.configuration import Stream
from shared.config.model import ConfigObject
from shared.config.pipeline import Pipeline
from shared.event.topics import TopicSpec, fixed_specs, stream_spec, stream_topic
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka.reader import open_reader
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.kafka.config_records import write_config, write_records

# A short run has this fraction of the work.
_SHORT_PART = 8
_TIMEOUT_S = 180.0
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Bench:
    """The environment of a measurement: its Kafka and its own folder."""

    servers: str
    folder: Path
    is_short: bool = False

    def count(self, of: int) -> int:
        """Return the number unchanged, or a fraction of it in a short run."""
        return of // _SHORT_PART if self.is_short else of

    @contextmanager
    def running(self, **settings: str) -> Iterator["Runner"]:
        """Run a pipelines process."""
        (port,) = pick_free(1)
        mine = {
            "BOOTSTRAP_SERVERS": self.servers,
            "FOLDER": str(self.folder),
            "METRICS_PORT": str(port),
            **settings,
        }
        child = Child(
            "pipelines",
            [sys.executable, "-m", "pipelines"],
            log=self.folder.with_suffix(".log"),
            env={**os.environ, **{f"HIFI_PIPELINES_{name}": value for name, value in mine.items()}},
        )
        runner = Runner(self.servers, child.pid, f"http://127.0.0.1:{port}/metrics")
        try:
            wait(lambda: _answers(f"http://127.0.0.1:{port}/readyz"))
            yield runner
        finally:
            child.stop(60.0)


@dataclass(frozen=True, slots=True)
class Runner:
    """Controls a pipelines process."""

    servers: str
    pid: int
    metrics: str

    def put(self, *pipelines: Pipeline) -> None:
        """Create pipelines, and the streams that they name."""
        names = {name for pipeline in pipelines for name in pipeline.streams}
        kept = [spec for pipeline in pipelines if (spec := pipeline.kept_spec)]
        make_streams(self.servers, sorted(names), more=kept)
        put(self.servers, pipelines)

    def take_away(self, *pipelines: Pipeline) -> None:
        records = [(pipeline.config_key, None) for pipeline in pipelines]
        asyncio.run(write_records(self.servers, records))

    def figure(self, name: str, pipeline: str, **labels: str) -> float:
        """Return a metric of a pipeline; 0 while it does not exist."""
        with urlopen(self.metrics, timeout=5) as answer:  # noqa: S310 - loopback, ours
            text = answer.read().decode()
        wanted = {"pipeline": pipeline, **labels}
        return sum(
            float(value)
            for labelled, value in re.findall(rf"^{name}{{([^}}]*)}} (\S+)$", text, re.MULTILINE)
            if wanted.items() <= dict(re.findall(r'(\w+)="([^"]*)"', labelled)).items()
        )

    def drain(self, pipeline: Pipeline, count: int) -> float:
        """Run a new pipeline; return its events per second, from its first job to its last."""
        with self.draining(pipeline, count) as draining:
            pass
        return draining.per_s

    @contextmanager
    def draining(self, pipeline: Pipeline, count: int) -> Iterator["Draining"]:
        """Run a new pipeline beside the block, which may check `is_over`; wait for its end."""
        self.put(pipeline)
        self.wait_until_up(pipeline)
        draining = Draining(self, pipeline, count)
        with ThreadPoolExecutor(1) as pool:
            looking = pool.submit(wait, draining.look)
            yield draining
            looking.result()
        self.take_away(pipeline)

    def wait_until_up(self, pipeline: Pipeline) -> None:
        wait(lambda: self.figure("hifi_pipelines_lane_up", pipeline.name) > 0)

    def events_read(self, pipeline: Pipeline) -> float:
        return self.figure("hifi_pipelines_events_read_total", pipeline.name)

    def outcome(self, pipeline: Pipeline, outcome: str) -> float:
        return self.figure("hifi_pipelines_events_total", pipeline.name, outcome=outcome)

    def wait_for_events(self, pipeline: Pipeline, count: int) -> None:
        wait(lambda: self.events_read(pipeline) >= count)

    def used(self, for_s: float) -> tuple[float, int]:
        """Return the used cores and resident MB of the process with its descendants."""
        before_s, _ = used_by(self.pid)
        time.sleep(for_s)
        after_s, _ = used_by(self.pid)
        return (after_s - before_s) / for_s, proportional_mb(self.pid)


@dataclass
class Draining:
    """A pipeline that works through a backlog."""

    runner: Runner
    pipeline: Pipeline
    count: int
    _began_s: float = field(default_factory=time.monotonic)
    _took_s: float | None = None

    def look(self) -> bool:
        """Return whether the pipeline is done; record when it was."""
        is_over = self.runner.events_read(self.pipeline) >= self.count
        if is_over and self._took_s is None:
            self._took_s = time.monotonic() - self._began_s
        return is_over

    @property
    def is_over(self) -> bool:
        return self._took_s is not None

    @property
    def per_s(self) -> float:
        assert self._took_s is not None, "the pipeline is done"
        return self.count / self._took_s


_MEMBERS = "id STRING, made_ns BIGINT, pad STRING"


def pipeline_of(
    name: str,
    source: str,
    *steps: Mapping[str, object],
    to: str | None = None,
    schema: str = _MEMBERS,
) -> Pipeline:
    """Return a pipeline that reads events of `paced`, and writes to another stream."""
    return Pipeline.of(
        {
            "name": name,
            "from": {"stream": source},
            "schema": schema,
            "steps": list(steps),
            "to": [{"stream": to or f"{source}-out"}],
        }
    )


def run_paced(servers: str, streams: Sequence[str], events_per_s: float, seconds: float) -> int:
    """Write to each stream from a separate process; return the number of events of each."""
    load = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.paced", servers),
            *(str(events_per_s), str(seconds), *streams),
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=seconds + 60,
    )
    return int(load.stdout)


def put(servers: str, objects: Sequence[ConfigObject]) -> None:
    """Write objects to the configuration."""
    asyncio.run(write_config(servers, objects))


def make_streams(
    servers: str,
    names: Sequence[str],
    *,
    partition_count: int = 4,
    more: Sequence[TopicSpec] = (),
) -> None:
    """Create the missing streams, and `more` topics."""
    asyncio.run(_make(servers, names, partition_count, more))


async def _make(
    servers: str, names: Sequence[str], partition_count: int, more: Sequence[TopicSpec]
) -> None:
    tiers = [tier.name for tier in RetrySchedule().tiers]
    specs = [stream_spec(name, partition_count=partition_count) for name in names]
    async with topic_admin(servers) as admin:
        await admin.create_missing([*fixed_specs(tiers), *specs, *more])
    await write_config(servers, [Stream(name, partition_count) for name in names])


def count_of(servers: str, stream: str) -> int:
    """Return the number of offsets in a stream, which includes Kafka's own markers."""
    return asyncio.run(_count(servers, stream))


async def _count(servers: str, stream: str) -> int:
    async with open_reader(servers) as reader:
        spans = await reader.spans([stream_topic(stream)])
    return sum(end - start for start, end in spans.values())


def wait(holds: Callable[[], bool]) -> None:
    """Wait until the condition holds; RuntimeError after `_TIMEOUT_S`."""
    until_s = time.monotonic() + _TIMEOUT_S
    while not holds():
        if time.monotonic() > until_s:
            raise RuntimeError(f"not done after {_TIMEOUT_S:g} s: see the process's log")
        time.sleep(_LOOK_S)


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as answer:  # noqa: S310 - loopback, ours
            return bool(answer.read().startswith(b"ready"))
    except OSError:
        return False
