"""The gateway process on a real Kafka: a success is in the log, whatever happens around it."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import httpx
import pytest

from deploy.local.cluster import Cluster
from shared.configuration import Stream
from shared.envelope import EVENT_ID
from shared.runtime.config_topic import write_config
from shared.runtime.topic_admin import topic_admin
from shared.topics import fixed_specs, stream_spec, stream_topic
from tests.kafka_log import read_all

pytestmark = pytest.mark.integration

PARTITION_COUNT = 4
ACK_DEADLINE_S = 4.0
QUEUE_DEADLINE_S = 1.0
# Past the deadline comes the sweep, and two busy cores.
SLACK_S = 3.0
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
    """A gateway in a process of its own, on free ports."""
    ports_free: dict[str, object] = {"HIFI_GATEWAY_PORT": 0, "HIFI_GATEWAY_METRICS_PORT": 0}
    environment = settings(bootstrap_servers, **ports_free, **more)
    with started(environment) as process:
        lines: list[str] = []
        reader = threading.Thread(target=_keep_lines, args=(process, lines))
        reader.start()
        try:
            wait_until(lambda: _started_line(process, lines) is not None, timeout_s=60)
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
        cwd=Path(__file__).parents[2],
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
        "HIFI_GATEWAY_ACK_DEADLINE_S": ACK_DEADLINE_S,
        "HIFI_GATEWAY_QUEUE_DEADLINE_S": QUEUE_DEADLINE_S,
    }
    return {**os.environ, **{name: str(value) for name, value in (given | more).items()}}


def _keep_lines(process: subprocess.Popen[str], lines: list[str]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        lines.append(line)  # noqa: PERF402 - another thread reads them as they come


def _started_line(process: subprocess.Popen[str], lines: list[str]) -> dict[str, int] | None:
    assert process.poll() is None, f"the gateway ended: {lines}"
    found = [line for line in lines if '"gateway.started"' in line]
    return json.loads(found[0]) if found else None


def wait_until(is_so: Callable[[], bool], *, timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline_s, f"not so after {timeout_s} s"
        time.sleep(0.02)


def new_stream(bootstrap_servers: str) -> str:
    """A stream with its topic, known to every gateway that reads the config topic."""
    name = f"s-{uuid.uuid4().hex}"

    async def make() -> None:
        async with topic_admin(bootstrap_servers) as admin:
            spec = stream_spec(name, partition_count=PARTITION_COUNT)
            await admin.create_missing([*fixed_specs(["30s"]), spec])
        await write_config(bootstrap_servers, [Stream(name, partition_count=PARTITION_COUNT)])

    asyncio.run(make())
    return name


def stored_ids(bootstrap_servers: str, stream: str) -> list[str]:
    """The ids of all events in a stream's topic."""
    found = asyncio.run(read_all(bootstrap_servers, stream_topic(stream)))
    return [dict(one.headers)[EVENT_ID].decode() for one in found]


@dataclass
class Load:
    """Clients that post without a pause, and remember what they were told of each event."""

    gateway: Gateway
    stream: str
    statuses: list[int] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    refused_connections: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._threads = [threading.Thread(target=self._run) for _ in range(8)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=60)
            assert not thread.is_alive(), "a client waits for an answer that does not come"

    def _run(self) -> None:
        url = f"{self.gateway.url}/v1/streams/{self.stream}/events"
        with httpx.Client(timeout=30) as client:
            while not self._stop.is_set():
                ids = [uuid.uuid4().hex for _ in range(20)]
                body = json.dumps([{"id": event_id} for event_id in ids])
                begun_s = time.monotonic()
                try:
                    response = client.post(url, content=body, headers=JSON)
                except httpx.TransportError:
                    self.refused_connections += 1
                    return
                self.took_s.append(time.monotonic() - begun_s)
                self.statuses.append(response.status_code)
                if response.status_code == 200:
                    self.accepted += ids
                else:
                    assert response.status_code in {503, 504}, response.text


def test_what_was_accepted_is_in_the_log_once(kafka: Cluster) -> None:
    stream = new_stream(kafka.bootstrap_servers)
    with running(kafka.bootstrap_servers) as gateway:
        assert gateway.is_ready()
        with Load(gateway, stream) as load:
            wait_until(lambda: len(load.accepted) >= 5_000, timeout_s=60)
        assert set(load.statuses) == {200}
        stored = stored_ids(kafka.bootstrap_servers, stream)
        assert sorted(stored) == sorted(load.accepted)
        metrics = httpx.get(f"{gateway.probes}/metrics").text
        told = f'hifi_gateway_events_total{{result="accepted",stream="{stream}"}}'
        assert f"{told} {float(len(stored))}" in metrics
        assert httpx.get(f"{gateway.probes}/livez").status_code == 200
        assert gateway.end() == 0


def test_a_stream_that_is_configured_later_is_taken_without_a_restart(kafka: Cluster) -> None:
    new_stream(kafka.bootstrap_servers)
    with running(kafka.bootstrap_servers) as gateway:
        stream = new_stream(kafka.bootstrap_servers)
        wait_until(lambda: gateway.post(stream, ["a"]).status_code == 200, timeout_s=2)
        assert stream in httpx.get(f"{gateway.url}/v1/streams").json()["streams"]
        assert gateway.post("nobodys", ["a"]).status_code == 404


def test_sigterm_ends_every_request_with_its_true_answer(kafka: Cluster) -> None:
    stream = new_stream(kafka.bootstrap_servers)
    with running(kafka.bootstrap_servers) as gateway, Load(gateway, stream) as load:
        wait_until(lambda: len(load.accepted) >= 1_000, timeout_s=60)
        assert gateway.end() == 0
        load.finish()
        assert set(load.statuses) == {200}
        stored = set(stored_ids(kafka.bootstrap_servers, stream))
        assert stored >= set(load.accepted)


def test_no_success_before_kafka_has_reported(kafka: Cluster) -> None:
    """A broker that is frozen takes connections and bytes, but it stores nothing."""
    stream = new_stream(kafka.bootstrap_servers)
    with running(kafka.bootstrap_servers) as gateway:
        assert gateway.post(stream, ["warm"]).status_code == 200
        kafka.pause(kafka.broker_ids[0])
        try:
            begun_s = time.monotonic()
            response = gateway.post(stream, ["frozen"])
            took_s = time.monotonic() - begun_s
        finally:
            kafka.resume(kafka.broker_ids[0])
        assert response.status_code == 504
        assert response.json()["results"][0]["status"] == "unknown"
        assert ACK_DEADLINE_S <= took_s < ACK_DEADLINE_S + SLACK_S
        wait_until(lambda: gateway.post(stream, ["after"]).status_code == 200, timeout_s=30)
        stored = stored_ids(kafka.bootstrap_servers, stream)
        assert {"warm", "after"} <= set(stored)
        # It may be stored by now, as "unknown" says, but the producer must not have doubled it.
        assert stored.count("frozen") <= 1


def test_with_two_of_three_brokers_stopped_nothing_is_accepted(kafka_three: Cluster) -> None:
    servers = kafka_three.bootstrap_servers
    stream = new_stream(servers)
    others = kafka_three.broker_ids[1:]
    with running(servers) as gateway:
        with Load(gateway, stream) as healthy:
            wait_until(lambda: len(healthy.accepted) >= 500, timeout_s=60)
        assert set(healthy.statuses) == {200}
        for broker in others:
            kafka_three.kill(broker)
        with Load(gateway, stream) as starved:
            wait_until(lambda: len(starved.statuses) >= 40, timeout_s=60)
        assert starved.accepted == []
        assert set(starved.statuses) <= {503, 504}
        assert max(starved.took_s) < ACK_DEADLINE_S + SLACK_S
        kafka_three.restart(others[0], wait=False)
        kafka_three.restart(others[1])
        wait_until(lambda: gateway.post(stream, ["again"]).status_code == 200, timeout_s=60)
        with Load(gateway, stream) as recovered:
            wait_until(lambda: len(recovered.accepted) >= 500, timeout_s=60)
        kafka_three.wait_in_sync()
        stored = stored_ids(servers, stream)
        assert set(stored) >= set(healthy.accepted) | set(recovered.accepted) | {"again"}
        assert gateway.end() == 0


def test_a_port_in_use_is_one_sentence(kafka: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        environment = settings(kafka.bootstrap_servers, HIFI_GATEWAY_PORT=port)
        with started(environment) as process:
            _, told = process.communicate(timeout=30)
    assert process.returncode == 1
    assert told.startswith(f"hifi gateway: The gateway cannot listen on 127.0.0.1:{port} ")
    assert "HIFI_GATEWAY_PORT" in told
    assert told.count("\n") == 1


def test_a_setting_that_is_wrong_is_one_sentence() -> None:
    with started(settings("127.0.0.1:1", HIFI_GATEWAY_PORT="many")) as process:
        _, told = process.communicate(timeout=30)
    assert process.returncode == 1
    assert told.startswith("hifi gateway: HIFI_GATEWAY_PORT is 'many': ")
    assert told.count("\n") == 1


def test_no_kafka_is_one_sentence_after_the_deadline() -> None:
    more = {"HIFI_GATEWAY_START_DEADLINE_S": 1.5, "HIFI_GATEWAY_PORT": 0}
    environment = settings("127.0.0.1:1", **more, HIFI_GATEWAY_METRICS_PORT=0)
    with started(environment) as process:
        _, told = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "hifi gateway: Kafka does not answer at 127.0.0.1:1: start it, or set " in told
    assert "Traceback" not in told


def test_ctrl_c_does_not_wait_for_a_kafka_that_is_not_there() -> None:
    environment = settings("127.0.0.1:1", HIFI_GATEWAY_PORT=0, HIFI_GATEWAY_METRICS_PORT=0)
    with started(environment) as process:
        lines: list[str] = []
        reader = threading.Thread(target=_keep_lines, args=(process, lines))
        reader.start()
        wait_until(lambda: any("kafka.unreachable" in line for line in lines), timeout_s=30)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 0
        reader.join(timeout=10)
    assert not any("Traceback" in line for line in lines)
