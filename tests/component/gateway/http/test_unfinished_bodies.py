"""Unfinished bodies keep no other tenant out: those of the tenant with the most are dropped."""

import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from gateway.settings import Settings
from shared.config.access import SCOPES, ApiKey, new_text, secret_from
from shared.config.configuration import Configuration, Stream
from shared.event.topics import stream_topic
from shared.metric_names import GATEWAY_IN_FLIGHT_BYTES
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

TENANTS = ("acme", "globex", "initech")
TEXTS = {tenant: new_text(kind="secret", key_id=tenant, entropy=bytes(20)) for tenant in TENANTS}
KEYS = {
    tenant: ApiKey(tenant, (secret_from(text, signs=False),), tenant=tenant, scopes=SCOPES)
    for tenant, text in TEXTS.items()
}
STREAMS = {f"s-{tenant}": Stream(f"s-{tenant}", tenant=tenant) for tenant in TENANTS}
# The largest body that the control plane accepts, and how many at once.
OBJECT_BYTES, OBJECTS_AT_ONCE = 1_048_576, 4


@pytest.fixture
def gateway() -> Iterator[RunningGateway]:
    config = FixedConfig(Configuration(keys=KEYS, streams=STREAMS))
    settings = Settings(auth="keys", body_bytes_max=900_000, in_flight_bytes_max=1_000_000)
    publisher = FakePublisher([stream_topic(name) for name in STREAMS])
    with running_gateway(publisher, config, settings) as running:
        yield running


def headers(tenant: str) -> dict[str, str]:
    return {"content-type": "application/json", "authorization": f"Bearer {TEXTS[tenant]}"}


def begin(
    gateway: RunningGateway, request: str, tenant: str, whole: int, sent: int
) -> socket.socket:
    """Begin a request of `whole` bytes, and send only the first `sent`."""
    wire = socket.create_connection(("127.0.0.1", gateway.port), timeout=10)
    lines = [f"{request} HTTP/1.1", "host: a", *map(": ".join, headers(tenant).items())]
    head = "\r\n".join([*lines, f"content-length: {whole}", "\r\n"])
    wire.sendall(head.encode() + b" " * sent)
    return wire


def is_answered(wire: socket.socket) -> bool:
    return bool(select.select([wire], [], [], 0)[0])


def wait_until(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 8
    while not is_so():
        assert time.monotonic() < until_s, "it did not happen within 8 s"
        time.sleep(0.02)


def test_objects_that_never_end_do_not_close_the_control_plane(gateway: RunningGateway) -> None:
    def put(tenant: str) -> httpx.Response:
        path = f"/v1/streams/new-{tenant}"
        return gateway.client.put(path, json={"partition_count": 1}, headers=headers(tenant))

    with ExitStack() as resources:
        wires = [
            resources.enter_context(
                begin(gateway, f"PUT /v1/streams/{nth}", "acme", OBJECT_BYTES, OBJECT_BYTES - 1)
            )
            for nth in range(OBJECTS_AT_ONCE)
        ]
        # A tenant's own request does not drop its earlier ones.
        wait_until(lambda: put("acme").status_code == 503)
        assert not any(map(is_answered, wires))
        made = put("globex")
        assert made.status_code == 201, made.text
        wait_until(lambda: any(map(is_answered, wires)))
        (refused,) = filter(is_answered, wires)
        assert refused.makefile("rb").readline() == b"HTTP/1.1 503 Service Unavailable\r\n"


def test_events_that_never_end_keep_no_other_tenant_out(gateway: RunningGateway) -> None:
    def post(tenant: str) -> httpx.Response:
        body = b'[{"pad":"%s"}]' % (b"x" * 130_000)
        path = f"/v1/streams/s-{tenant}/events"
        return gateway.client.post(path, content=body, headers=headers(tenant))

    with ExitStack() as resources:
        most, less = (
            resources.enter_context(
                begin(gateway, f"POST /v1/streams/s-{tenant}/events", tenant, sent + 1, sent)
            )
            for tenant, sent in (("acme", 580_000), ("initech", 300_000))
        )
        wait_until(lambda: gateway.sample(GATEWAY_IN_FLIGHT_BYTES.name) == 880_000)
        assert post("acme").status_code == 503
        stored = post("globex")
        assert stored.status_code == 200, stored.text
        wait_until(lambda: is_answered(most))
        assert not is_answered(less)
        assert b"503" in most.makefile("rb").readline()
        # A request that was not dropped is read to its end.
        less.sendall(b" ")
        assert b"400" in less.makefile("rb").readline()
