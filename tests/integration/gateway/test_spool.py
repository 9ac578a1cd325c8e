"""What was answered 202 survives the gateway's death, and is in Kafka once Kafka is back."""

import json
import signal
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from deploy.local.cluster import Cluster
from tests.support.broker_faults import frozen
from tests.support.gateway_process import Gateway, new_stream, running, stored_ids
from tests.support.stack_fixtures import wait_until

pytestmark = pytest.mark.integration

REQUESTS, EVENTS, CLIENTS = 20, 10, 5
ASYNC = {"content-type": "application/json", "prefer": "respond-async"}


def spool_some(gateway: Gateway, stream: str) -> list[str]:
    """Clients that post until each has so many answers of 202: the ids that those are about."""
    url = f"{gateway.url}/v1/streams/{stream}/events"
    until_s = time.monotonic() + 90

    def promised(_: int) -> list[str]:
        mine: list[str] = []
        while len(mine) < REQUESTS * EVENTS // CLIENTS:
            assert time.monotonic() < until_s, f"{len(mine)} events were spooled"
            ids = [uuid.uuid4().hex for _ in range(EVENTS)]
            body = json.dumps([{"id": event_id} for event_id in ids])
            # 504: it was handed to Kafka just before that died.
            response = httpx.post(url, content=body, headers=ASYNC, timeout=30)
            assert response.status_code in {202, 504}, response.text
            if response.status_code == 202:
                mine += ids
        return mine

    # Each answer takes as long as Kafka is given, so that clients side by side save half a minute.
    with ThreadPoolExecutor(CLIENTS) as clients:
        return [one for ids in clients.map(promised, range(CLIENTS)) for one in ids]


def test_a_gateway_killed_between_202_and_kafka_loses_nothing(
    kafka: Cluster, tmp_path: Path
) -> None:
    stream = new_stream(kafka.bootstrap_servers)
    spool = {"HIFI_GATEWAY_SPOOL": tmp_path / "spool", "HIFI_GATEWAY_ACK_DEADLINE_S": 3}
    broker = kafka.broker_ids[0]
    with running(kafka.bootstrap_servers, **spool) as gateway:
        assert gateway.post(stream, ["first"]).status_code == 200
        with frozen(kafka, broker):
            promised = spool_some(gateway, stream)
            gateway.process.send_signal(signal.SIGKILL)
            gateway.process.wait(timeout=30)
    # There are two when the gateway was about to send what it had until then.
    left = next((tmp_path / "spool").iterdir())
    # As a write that was cut short would leave it.
    with left.open("ab") as file:
        file.write(left.read_bytes()[:100])
    # A machine that may vanish: it sends what was left, and takes nothing more.
    with running(kafka.bootstrap_servers, **spool, HIFI_GATEWAY_DISK="passing") as gateway:
        wait_until(
            lambda: not list((tmp_path / "spool").glob("*.spool")),
            what="the spool is empty",
            timeout_s=60,
        )
        metrics = httpx.get(f"{gateway.probes}/metrics", timeout=30).text
        assert "hifi_gateway_spooled_events 0.0" in metrics
        with frozen(kafka, broker):
            # RFC 7240, 2: a server may ignore a preference.
            url = f"{gateway.url}/v1/streams/{stream}/events"
            refused = httpx.post(url, content=b'[{"id":"x"}]', headers=ASYNC, timeout=30)
            assert refused.status_code in {503, 504}
            assert "preference-applied" not in refused.headers
        assert not list((tmp_path / "spool").glob("*.spool"))
    assert not set(promised) - set(stored_ids(kafka.bootstrap_servers, stream))
