"""Two gateway processes are one: an Idempotency-Key is good at both."""

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest

from deploy.local.cluster import Cluster
from tests.support.gateway_process import Gateway, new_stream, running, stored_ids

pytestmark = pytest.mark.integration

SENDERS = 8
KEYS = 12


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def two(kafka: Cluster) -> Iterator[tuple[Gateway, Gateway]]:
    new_stream(kafka.bootstrap_servers)
    with running(kafka.bootstrap_servers) as one, running(kafka.bootstrap_servers) as other:
        yield one, other


def post(
    client: httpx.Client, gateway: Gateway, stream: str, key: str, body: bytes
) -> httpx.Response:
    headers = {"content-type": "application/json", "idempotency-key": key}
    url = f"{gateway.url}/v1/streams/{stream}/events"
    return client.post(url, content=body, headers=headers)


def test_of_many_senders_of_one_key_at_two_gateways_one_stores(
    kafka: Cluster, client: httpx.Client, two: tuple[Gateway, Gateway]
) -> None:
    stream = new_stream(kafka.bootstrap_servers)
    statuses: Counter[int] = Counter()
    with ThreadPoolExecutor(SENDERS) as threads:
        for n in range(KEYS):
            body = json.dumps([{"id": f"{n}-{event}"} for event in range(3)]).encode()
            sent = [
                threads.submit(post, client, two[nth % 2], stream, f"key-{n}", body)
                for nth in range(SENDERS)
            ]
            answers = [each.result() for each in sent]
            statuses.update(answer.status_code for answer in answers)
            bodies = {answer.content for answer in answers if answer.status_code == 200}
            assert len(bodies) == 1, "all successes are the first answer"
            for gateway in two:
                again = post(client, gateway, stream, f"key-{n}", body)
                assert (again.status_code, {again.content}) == (200, bodies)
                other = post(client, gateway, stream, f"key-{n}", b"[{}]")
                assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert set(statuses) <= {200, 409}, statuses
    ids = stored_ids(kafka.bootstrap_servers, stream)
    assert sorted(ids) == sorted(f"{n}-{event}" for n in range(KEYS) for event in range(3))


def test_a_key_outlives_the_gateways_that_knew_it(kafka: Cluster, client: httpx.Client) -> None:
    servers = kafka.bootstrap_servers
    stream = new_stream(servers)
    with running(servers) as first:
        told = post(client, first, stream, "key", b"[{},{}]")
        assert told.status_code == 200
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(10)
    with ExitStack() as stack:
        new = stack.enter_context(running(servers))
        again = post(client, new, stream, "key", b"[{},{}]")
    assert (again.status_code, again.content) == (200, told.content)
    assert again.headers["idempotency-replayed"] == "true"
    assert len(stored_ids(servers, stream)) == 2


def test_what_a_gateway_stored_before_it_was_killed_is_not_stored_again(
    kafka: Cluster, client: httpx.Client
) -> None:
    servers = kafka.bootstrap_servers
    stream = new_stream(servers)
    bodies = {f"key-{n}": [{"id": f"{n}-{event}"} for event in range(50)] for n in range(16)}

    def send(gateway: Gateway, key: str) -> int:
        return post(client, gateway, stream, key, json.dumps(bodies[key]).encode()).status_code

    # The shorter a report may take, the shorter a claim holds.
    with running(servers, HIFI_GATEWAY_ACK_DEADLINE_S=2) as other, ThreadPoolExecutor() as threads:
        with running(servers, HIFI_GATEWAY_ACK_DEADLINE_S=2) as dying:
            sent = [threads.submit(send, dying, key) for key in bodies]
            while not stored_ids(servers, stream):
                assert dying.process.poll() is None
            dying.process.send_signal(signal.SIGKILL)
            errors = [each.exception() for each in sent]
        for key in bodies:
            while (status := send(other, key)) in {409, 503}:
                time.sleep(0.2)
            assert status == 200
    assert any(errors), "it was killed while requests were under way"
    found = Counter(stored_ids(servers, stream))
    assert found == Counter(one["id"] for events in bodies.values() for one in events)
