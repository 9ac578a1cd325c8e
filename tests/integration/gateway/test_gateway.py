"""The gateway process on a real Kafka: a success is in the log, whatever happens around it."""

import json
import signal
import socket
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import Self

import httpx
import pytest

from deploy.local.cluster import Cluster
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.gateway.gateway_process import (
    ACK_DEADLINE_S,
    JSON,
    Gateway,
    keep_lines,
    new_stream,
    running,
    settings,
    started,
    stored_ids,
)
from tests.support.kafka.broker_faults import frozen, restart, wait_in_sync

pytestmark = pytest.mark.integration

# After the deadline, time for the sweep and for two busy cores.
SLACK_S = 3.0


@dataclass
class Load:
    """Clients that post without a pause, and remember the answer for each event."""

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
            wait_until(lambda: len(load.accepted) >= 5_000, what="5,000 accepted", timeout_s=60)
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
        wait_until(
            lambda: gateway.post(stream, ["a"]).status_code == 200,
            what="the stream is accepted",
            timeout_s=2,
        )
        assert stream in httpx.get(f"{gateway.url}/v1/streams").json()["streams"]
        assert gateway.post("nobodys", ["a"]).status_code == 404


def test_sigterm_ends_every_request_with_its_true_answer(kafka: Cluster) -> None:
    stream = new_stream(kafka.bootstrap_servers)
    with running(kafka.bootstrap_servers) as gateway, Load(gateway, stream) as load:
        wait_until(lambda: len(load.accepted) >= 1_000, what="1,000 accepted", timeout_s=60)
        assert gateway.end() == 0
        load.finish()
        assert set(load.statuses) == {200}
        stored = set(stored_ids(kafka.bootstrap_servers, stream))
        assert stored >= set(load.accepted)


def test_no_success_before_kafka_has_reported(kafka: Cluster) -> None:
    """A frozen broker accepts connections and bytes, but stores nothing."""
    stream = new_stream(kafka.bootstrap_servers)
    with running(kafka.bootstrap_servers) as gateway:
        assert gateway.post(stream, ["warm"]).status_code == 200
        with frozen(kafka, kafka.broker_ids[0]):
            begun_s = time.monotonic()
            response = gateway.post(stream, ["frozen"])
            took_s = time.monotonic() - begun_s
        assert response.status_code == 504
        assert response.json()["results"][0]["status"] == "unknown"
        assert ACK_DEADLINE_S <= took_s < ACK_DEADLINE_S + SLACK_S
        wait_until(
            lambda: gateway.post(stream, ["after"]).status_code == 200,
            what="the gateway recovered",
            timeout_s=30,
        )
        stored = stored_ids(kafka.bootstrap_servers, stream)
        assert {"warm", "after"} <= set(stored)
        # The event may be stored now, as "unknown" says, but the producer must not have doubled it.
        assert stored.count("frozen") <= 1


def test_with_two_of_three_brokers_stopped_nothing_is_accepted(kafka_three: Cluster) -> None:
    servers = kafka_three.bootstrap_servers
    stream = new_stream(servers)
    others = kafka_three.broker_ids[1:]
    with running(servers) as gateway:
        with Load(gateway, stream) as healthy:
            wait_until(lambda: len(healthy.accepted) >= 500, what="500 accepted", timeout_s=60)
        assert set(healthy.statuses) == {200}
        for broker in others:
            kafka_three.child(broker).kill()
        with Load(gateway, stream) as starved:
            wait_until(lambda: len(starved.statuses) >= 40, what="40 answers", timeout_s=60)
        assert starved.accepted == []
        assert set(starved.statuses) <= {503, 504}
        assert max(starved.took_s) < ACK_DEADLINE_S + SLACK_S
        restart(kafka_three, *others)
        wait_until(
            lambda: gateway.post(stream, ["again"]).status_code == 200,
            what="an event is accepted again",
            timeout_s=60,
        )
        with Load(gateway, stream) as recovered:
            wait_until(
                lambda: len(recovered.accepted) >= 500, what="500 accepted again", timeout_s=60
            )
        wait_in_sync(kafka_three)
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
    assert process.returncode == 2
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
        reader = threading.Thread(target=keep_lines, args=(process, lines))
        reader.start()
        wait_until(
            lambda: any("kafka.unreachable" in line for line in lines),
            what="the gateway logged it",
            timeout_s=30,
        )
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 0
        reader.join(timeout=10)
    assert not any("Traceback" in line for line in lines)
