"""Gateways are killed while they change something: the trail has every change that took effect."""

import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from deploy.local.cluster import Cluster
from tests.support.gateway.gateway_process import Gateway, new_stream, running

pytestmark = pytest.mark.integration

# One gateway makes at most some 20 changes a second, so each kill falls among them.
KILLED_AFTER_S = (0.35, 0.8, 0.55)


def changes(gateway: Gateway, **query: str) -> list[dict[str, Any]]:
    """Return all changes, page by page, the newest first."""
    found: list[dict[str, Any]] = []
    more: dict[str, str] = {}
    while True:
        asked = {**query, **more, "limit": "10"}
        answer = httpx.get(f"{gateway.url}/v1/changes", params=asked, timeout=30)
        answer.raise_for_status()
        found += answer.json()["changes"]
        if answer.json()["next"] is None:
            return found
        more = {"before": answer.json()["next"]}


def test_no_change_lacks_its_record_whenever_a_gateway_is_killed(kafka: Cluster) -> None:
    servers = kafka.bootstrap_servers
    new_stream(servers)
    tenant = f"t-{uuid.uuid4().hex}"
    acknowledged: list[float] = []
    asked = 0

    def change_until_killed(gateway: Gateway) -> None:
        nonlocal asked
        while True:
            asked += 1
            rate = float(asked)
            try:
                answer = httpx.put(
                    f"{gateway.url}/v1/tenants/{tenant}", json={"events_per_s": rate}, timeout=30
                )
            except httpx.HTTPError:
                return
            assert answer.status_code in {200, 201}, answer.text
            acknowledged.append(rate)

    for killed_after_s in KILLED_AFTER_S:
        with running(servers) as gateway:
            before = len(acknowledged)
            changing = threading.Thread(target=change_until_killed, args=(gateway,))
            changing.start()
            while len(acknowledged) == before:
                assert changing.is_alive()
                time.sleep(0.01)
            time.sleep(killed_after_s)
            gateway.process.kill()
            changing.join(timeout=40)
    with running(servers) as gateway:
        told = changes(gateway, tenant=tenant)
        now = httpx.get(f"{gateway.url}/v1/tenants/{tenant}").headers["etag"]
    rates = [setting["after"] for each in told for setting in each["settings"]]
    assert len(acknowledged) >= len(KILLED_AFTER_S)
    assert set(acknowledged) <= set(rates)
    # The trail has no change that did not take effect: each continues from the one before.
    assert [each["number"] for each in told] == list(range(len(told), 0, -1))
    assert [each["before"] for each in told[:-1]] == [each["after"] for each in told[1:]]
    assert (told[0]["after"], told[-1]["before"]) == (now, None)


def test_two_gateways_tell_the_same_and_one_tenants_crowd_hides_nothing_of_anothers(
    kafka: Cluster,
) -> None:
    servers = kafka.bootstrap_servers
    new_stream(servers)
    quiet, loud = f"t-{uuid.uuid4().hex}", f"t-{uuid.uuid4().hex}"
    with running(servers) as one, running(servers) as other, ThreadPoolExecutor(8) as pool:

        def put(nth: int) -> None:
            gateway, tenant = (one, other)[nth % 2], quiet if nth % 10 == 0 else loud
            path = f"{gateway.url}/v1/tenants/{tenant}"
            httpx.put(path, json={"events_per_s": nth + 1}, timeout=30).raise_for_status()

        list(pool.map(put, range(31)))
        for gateway in (one, other):
            few = changes(gateway, tenant=quiet)
            assert [each["number"] for each in few] == [4, 3, 2, 1]
            many = changes(gateway, kind="tenant", name=loud)
            assert [each["number"] for each in many] == list(range(27, 0, -1))
            newest = changes(gateway, contains=quiet)
            assert newest == few
