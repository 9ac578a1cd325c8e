"""Two gateways act as one: a key is valid at both, and a quota is for both together."""

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from http import HTTPStatus

import httpx
import pytest

from deploy.local.cluster import Cluster
from shared.config.access import ENTROPY_BYTES, ApiKey, Scope, Tenant, new_text, secret_from
from shared.config.configuration import Stream
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.gateway.gateway_process import (
    PARTITION_COUNT,
    Gateway,
    new_stream,
    running,
    stored_ids,
)
from tests.support.kafka.config_records import write_config

pytestmark = pytest.mark.integration

SENDERS = 8
CONFLICT = 409
KEYS = 12


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=30) as client:
        yield client


@pytest.fixture
def stream(kafka: Cluster) -> str:
    return new_stream(kafka.bootstrap_servers)


@pytest.fixture
def two(kafka: Cluster, stream: str) -> Iterator[tuple[Gateway, Gateway]]:
    """Start two gateways once the stream exists, so that both know it."""
    assert stream
    with running(kafka.bootstrap_servers) as one, running(kafka.bootstrap_servers) as other:
        yield one, other


def post(
    client: httpx.Client, gateway: Gateway, stream: str, key: str, body: bytes
) -> httpx.Response:
    headers = {"content-type": "application/json", "idempotency-key": key}
    url = f"{gateway.url}/v1/streams/{stream}/events"
    return client.post(url, content=body, headers=headers)


def test_of_many_senders_of_one_key_at_two_gateways_one_stores(
    kafka: Cluster, client: httpx.Client, stream: str, two: tuple[Gateway, Gateway]
) -> None:
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
                # An answer does not wait forever until its record is stored.
                while (
                    again := post(client, gateway, stream, f"key-{n}", body)
                ).status_code == CONFLICT:
                    time.sleep(0.1)
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

    def send(gateway: Gateway, key: str) -> int:
        body = json.dumps([{"id": f"{key}-{event}"} for event in range(20)]).encode()
        return post(client, gateway, stream, key, body).status_code

    def send_until_it_breaks(gateway: Gateway, name: str) -> list[str]:
        keys: list[str] = []
        with suppress(httpx.TransportError):
            while True:
                keys.append(f"{name}-{len(keys)}")
                assert send(gateway, keys[-1]) == HTTPStatus.OK
        return keys

    # The shorter the time for Kafka's report, the shorter a claim holds.
    with running(servers, HIFI_GATEWAY_ACK_DEADLINE_S=2) as other, ThreadPoolExecutor() as threads:
        with running(servers, HIFI_GATEWAY_ACK_DEADLINE_S=2) as dying:
            sending = [
                threads.submit(send_until_it_breaks, dying, f"key-{n}") for n in range(SENDERS)
            ]
            wait_until(lambda: bool(stored_ids(servers, stream)), what="some events are stored")
            dying.process.send_signal(signal.SIGKILL)
            keys = [key for each in sending for key in each.result()]
        for key in keys:
            while (status := send(other, key)) in {409, 503}:
                time.sleep(0.2)
            assert status == HTTPStatus.OK
    found = Counter(stored_ids(servers, stream))
    assert found == Counter(f"{key}-{event}" for key in keys for event in range(20))


def test_when_a_key_was_used_outlives_the_gateway_that_knew_it(
    kafka: Cluster, client: httpx.Client
) -> None:
    servers = kafka.bootstrap_servers
    stream = new_stream(servers)
    texts = {
        name: new_text(kind="secret", key_id=name, entropy=os.urandom(ENTROPY_BYTES))
        for name in (f"{stream}-shop", f"{stream}-idle", f"{stream}-root")
    }
    shop, idle, root = texts
    scopes: Mapping[str, frozenset[Scope]] = {root: frozenset({"admin"})}
    objects = [
        ApiKey(
            name,
            (secret_from(text, signs=False),),
            scopes=scopes.get(name, frozenset({"write"})),
        )
        for name, text in texts.items()
    ]
    asyncio.run(write_config(servers, objects))

    def used_ms(gateway: Gateway, name: str) -> int | None:
        headers = {"authorization": f"Bearer {texts[root]}"}
        shown = client.get(f"{gateway.url}/v1/keys/{name}", headers=headers)
        found: int | None = shown.json()["last_used_at_ms"]
        return found

    with running(servers, HIFI_GATEWAY_AUTH="keys") as first:
        headers = {"content-type": "application/json", "authorization": f"Bearer {texts[shop]}"}
        url = f"{first.url}/v1/streams/{stream}/events"
        assert client.post(url, content=b"[{}]", headers=headers).status_code == HTTPStatus.OK
        at_ms = used_ms(first, shop)
        assert first.end() == 0
    with running(servers, HIFI_GATEWAY_AUTH="keys") as second:
        wait_until(lambda: used_ms(second, shop) is not None, what="it has read the reports")
        assert used_ms(second, shop) == at_ms
        assert used_ms(second, idle) is None


QUOTA = 500
BATCH = 20
# Per second, at each of ten connections; three times the quota in total.
REQUESTS_PER_S = 8
CONNECTIONS = 10


@pytest.mark.parametrize("lasting_s", [8, pytest.param(20, marks=pytest.mark.long)])
def test_a_quota_is_that_of_both_together_wherever_the_load_is(
    kafka: Cluster, lasting_s: float
) -> None:
    servers = kafka.bootstrap_servers
    stream = new_stream(servers)
    tenant = f"t-{stream}"
    text = new_text(kind="secret", key_id=tenant, entropy=os.urandom(ENTROPY_BYTES))
    objects = [
        Stream(stream, tenant=tenant, partition_count=PARTITION_COUNT),
        ApiKey(tenant, (secret_from(text, signs=False),), tenant=tenant),
        Tenant(tenant, events_per_s=QUOTA),
    ]
    asyncio.run(write_config(servers, objects))
    headers = {"content-type": "application/json", "authorization": f"Bearer {text}"}
    body = json.dumps([{}] * BATCH).encode()
    path = f"/v1/streams/{stream}/events"

    def send(gateway: Gateway) -> tuple[int, int]:
        """Send requests at a steady pace; return how many, and how many were admitted."""
        sent = admitted = 0
        with httpx.Client(base_url=gateway.url, headers=headers, timeout=30) as own:
            due_s = begun_s
            while due_s < until_s:
                time.sleep(max(0.0, due_s - time.monotonic()))
                answer = own.post(path, content=body)
                if time.monotonic() > counted_from_s:
                    sent += 1
                    admitted += answer.status_code == HTTPStatus.OK
                    policy = f'"tenant-events";q={QUOTA};w=1'
                    assert answer.headers["ratelimit-policy"] == policy
                due_s += 1 / REQUESTS_PER_S
        return sent, admitted

    with (
        running(servers, HIFI_GATEWAY_AUTH="keys") as busy,
        running(servers, HIFI_GATEWAY_AUTH="keys") as other,
        ThreadPoolExecutor(CONNECTIONS) as threads,
    ):
        begun_s = time.monotonic()
        # The first burst does not count, nor do events before all know of each other.
        counted_from_s = begun_s + 3
        until_s = counted_from_s + lasting_s
        found = [*threads.map(send, [busy] * (CONNECTIONS - 1) + [other])]
    offered = BATCH * sum(sent for sent, _ in found) / lasting_s
    admitted = BATCH * sum(admitted for _, admitted in found) / lasting_s
    assert offered > 1.5 * QUOTA, "the load is too small to show anything"
    assert 0.9 * QUOTA < admitted < 1.1 * QUOTA, (admitted, found)
    sent, let_in = found[-1]
    assert let_in > 0.9 * sent, "a gateway that wants less than an even part gets it"
