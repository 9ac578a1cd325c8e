"""Gateways behind a balancer are replaced one after the other, and no sender notices."""

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field

import httpx
import pytest

from deploy.local.cluster import Cluster
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.gateway.gateway_process import (
    Gateway,
    clients_at_work,
    new_stream,
    running,
    stored_ids,
)
from tests.support.servers.balancer import Backend, balanced

pytestmark = pytest.mark.integration

JSON = {"content-type": "application/json"}
CLIENTS = 4
# Far longer than the balancer takes to see that a gateway is not ready.
NOTICE = {"HIFI_GATEWAY_DRAIN_NOTICE_S": 1}


@dataclass
class Senders:
    """Clients that keep their connections and send without a pause, with all of their answers."""

    url: str
    answers: list[tuple[int, str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _stop: threading.Event = field(default_factory=threading.Event)

    def wait_for_more(self) -> None:
        wanted = len(self.answers) + 100
        wait_until(lambda: len(self.answers) >= wanted, what="100 more answers", timeout_s=60)

    def sending(self) -> AbstractContextManager[None]:
        return clients_at_work(self._run, CLIENTS, stop=self._stop)

    def _run(self) -> None:
        with httpx.Client(timeout=30) as client:
            while not self._stop.is_set():
                event_id = f"e{next(self._numbers)}"
                body = json.dumps([{"id": event_id}])
                try:
                    answer = client.post(self.url, content=body, headers=JSON)
                except httpx.TransportError as error:
                    self.errors.append(repr(error))
                else:
                    self.answers.append((answer.status_code, event_id))


def test_a_rolling_restart_fails_no_request(kafka: Cluster) -> None:
    stream = new_stream(kafka.bootstrap_servers)
    with ExitStack() as resources:
        balancer = resources.enter_context(balanced())

        def start() -> Gateway:
            gateway = resources.enter_context(running(kafka.bootstrap_servers, **NOTICE))
            backend = Backend(httpx.URL(gateway.url).port or 0, gateway.probes)
            balancer.backends.append(backend)
            wait_until(lambda: backend.is_ready, what="the balancer uses it")
            return gateway

        old = [start(), start()]
        senders = Senders(f"http://127.0.0.1:{balancer.port}/v1/streams/{stream}/events")
        with senders.sending():
            for gateway in old:
                senders.wait_for_more()
                assert gateway.end() == 0
                start()
            senders.wait_for_more()
        assert senders.errors == []
        assert {status for status, _ in senders.answers} == {200}
        # Except for the last gateway, to which no client had to move.
        assert all(backend.connections for backend in balancer.backends[:-1])
    accepted = [event_id for _, event_id in senders.answers]
    assert sorted(stored_ids(kafka.bootstrap_servers, stream)) == sorted(accepted)
