"""Two gateways change one object on a real Kafka: no change is silently lost."""

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from deploy.local.cluster import Cluster
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.gateway.gateway_process import Gateway, new_stream, running

pytestmark = pytest.mark.integration


def test_of_twenty_changes_through_two_gateways_one_wins_each_round(kafka: Cluster) -> None:
    servers = kafka.bootstrap_servers
    new_stream(servers)
    path = f"/v1/tenants/t-{uuid.uuid4().hex}"
    with running(servers) as one, running(servers) as other, ThreadPoolExecutor(20) as pool:
        gateways = (one, other)
        assert httpx.put(one.url + path, json={}).status_code == 201
        for turn in range(3):
            seen = httpx.get(gateways[turn % 2].url + path).headers["etag"]

            def change(nth: int, seen: str = seen, turn: int = turn) -> int:
                answer = httpx.put(
                    gateways[nth % 2].url + path,
                    json={"events_per_s": 100 * turn + nth + 1},
                    headers={"if-match": seen},
                    timeout=30,
                )
                assert answer.status_code in {200, 412}, answer.text
                return answer.status_code

            statuses = list(pool.map(change, range(20)))
            assert sorted(statuses) == [200] + [412] * 19
            won = 100 * turn + statuses.index(200) + 1
            for gateway in gateways:
                wait_until(shows(gateway, path, won), what="the change is seen")


def test_changes_of_different_settings_all_last(kafka: Cluster) -> None:
    """Read, change, write with If-Match, and try again if somebody else was faster."""
    servers = kafka.bootstrap_servers
    new_stream(servers)
    path = f"/v1/tenants/t-{uuid.uuid4().hex}"
    with running(servers) as one, running(servers) as other, ThreadPoolExecutor(2) as pool:
        httpx.put(one.url + path, json={"events_per_s": 1}).raise_for_status()

        def add(gateway: Gateway) -> None:
            for _ in range(10):
                while True:
                    shown = httpx.get(gateway.url + path)
                    more = {"events_per_s": shown.json()["events_per_s"] + 1}
                    headers = {"if-match": shown.headers["etag"]}
                    answer = httpx.put(gateway.url + path, json=more, headers=headers, timeout=30)
                    if answer.status_code != 412:
                        break
                assert answer.status_code == 200, answer.text

        wait_until(shows(other, path, 1), what="both gateways know it")
        list(pool.map(add, (one, other)))
        for gateway in (one, other):
            wait_until(shows(gateway, path, 21), what="every change is there")


def shows(gateway: Gateway, path: str, rate: float) -> Callable[[], bool]:
    def is_shown() -> bool:
        shown: dict[str, object] = httpx.get(gateway.url + path).json()
        return shown.get("events_per_s") == rate

    return is_shown
