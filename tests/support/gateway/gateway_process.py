"""Starts the gateway as a process of its own, and reads the events that it has stored."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from shared.config.configuration import Stream
from shared.event.envelope import EVENT_ID
from shared.event.topics import fixed_specs, stream_spec, stream_topic
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.kafka.config_records import write_config
from tests.support.kafka.kafka_log import read_all

PARTITION_COUNT = 4
ACK_DEADLINE_S = 4.0
QUEUE_DEADLINE_S = 1.0
JSON = {"content-type": "application/json"}


@dataclass
class Gateway:
    process: subprocess.Popen[str]
    url: str
    probes: str
    lines: list[str]

    def post(self, stream: str, ids: list[str], *, timeout_s: float = 30) -> httpx.Response:
        body = json.dumps([{"id": event_id} for event_id in ids])
        url = f"{self.url}/v1/streams/{stream}/events"
        return httpx.post(url, content=body, headers=JSON, timeout=timeout_s)

    def is_ready(self) -> bool:
        return httpx.get(f"{self.probes}/readyz").status_code == 200

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=40)


@contextlib.contextmanager
def running(bootstrap_servers: str, **more: object) -> Iterator[Gateway]:
    """Run a gateway as a process of its own, on free ports."""
    ports_free: dict[str, object] = {"HIFI_GATEWAY_PORT": 0, "HIFI_GATEWAY_METRICS_PORT": 0}
    environment = settings(bootstrap_servers, **ports_free, **more)
    with started(environment) as process:
        lines: list[str] = []
        reader = threading.Thread(target=keep_lines, args=(process, lines))
        reader.start()
        try:
            wait_until(
                lambda: _started_line(process, lines) is not None, what="the gateway started"
            )
            ports = _started_line(process, lines) or {}
            yield Gateway(
                process,
                url=f"http://127.0.0.1:{ports['port']}",
                probes=f"http://127.0.0.1:{ports['metrics_port']}",
                lines=lines,
            )
        finally:
            process.kill()
            reader.join(timeout=10)


@contextlib.contextmanager
def started(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[3],
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=10)
        assert process.stderr is not None
        process.stderr.close()


def settings(bootstrap_servers: str, **more: object) -> dict[str, str]:
    given = {
        "HIFI_GATEWAY_BOOTSTRAP_SERVERS": bootstrap_servers,
        "HIFI_GATEWAY_AUTH": "off",
        "HIFI_GATEWAY_ACK_DEADLINE_S": ACK_DEADLINE_S,
        "HIFI_GATEWAY_QUEUE_DEADLINE_S": QUEUE_DEADLINE_S,
        # Tests share a Kafka, and with it a tenant.
        "HIFI_GATEWAY_TENANT_STREAMS_MAX": 100_000,
        "HIFI_GATEWAY_TENANT_PARTITIONS_MAX": 1_000_000,
        "HIFI_KAFKA_REPLICAS": 1,
        "HIFI_KAFKA_IN_SYNC_MIN": 1,
    }
    return {**os.environ, **{name: str(value) for name, value in (given | more).items()}}


def keep_lines(process: subprocess.Popen[str], lines: list[str]) -> None:
    """Read a process's log; otherwise the process would stand still once the pipe is full."""
    assert process.stderr is not None
    for line in process.stderr:
        lines.append(line)  # noqa: PERF402 - another thread reads them as they come


def _started_line(process: subprocess.Popen[str], lines: list[str]) -> dict[str, int] | None:
    assert process.poll() is None, f"the gateway ended: {lines}"
    found = [line for line in lines if '"gateway.started"' in line]
    return json.loads(found[0]) if found else None


def new_stream(bootstrap_servers: str) -> str:
    """Create a stream with its topic, known to every gateway that reads the config topic."""
    name = f"s-{uuid.uuid4().hex}"

    async def make() -> None:
        async with topic_admin(bootstrap_servers) as admin:
            spec = stream_spec(name, partition_count=PARTITION_COUNT)
            await admin.create_missing([*fixed_specs(["30s"]), spec])
        await write_config(bootstrap_servers, [Stream(name, partition_count=PARTITION_COUNT)])

    asyncio.run(make())
    return name


def stored_ids(bootstrap_servers: str, stream: str) -> list[str]:
    """Return the ids of all events in a stream's topic."""
    found = asyncio.run(read_all(bootstrap_servers, stream_topic(stream)))
    return [dict(one.headers)[EVENT_ID].decode() for one in found]


@contextlib.contextmanager
def clients_at_work(
    client: Callable[[], None], count: int, *, stop: threading.Event
) -> Iterator[None]:
    """Run `count` clients for as long as the block lasts; each must end when `stop` is set."""
    threads = [threading.Thread(target=client) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=60)
            assert not thread.is_alive(), "a client waits for an answer that does not come"
