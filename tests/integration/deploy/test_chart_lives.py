"""A rolling upgrade and a scale-in with the chart's probes and grace periods lose nothing.

The pods are processes. A role is upgraded as its Deployment does it: one new pod becomes ready, and
then one old pod gets SIGTERM.
"""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from shared.config.destination import Destination
from tests.integration.delivery.test_spark_cluster import Traffic, make
from tests.integration.gateway.test_drain import Senders
from tests.support.deploy.pods import GRACE_S, PROBES, Endpoint, Pod
from tests.support.deploy.stack_fixtures import wait_until
from tests.support.gateway.gateway_process import new_stream, stored_ids
from tests.support.servers.balancer import balanced
from tests.support.servers.scripted_destination import Reply, Request, scripted_destination

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1_200)]

# The startup probe gives a pod this long.
START_S = PROBES["startup"]["periodSeconds"] * PROBES["startup"]["failureThreshold"]
# A retry tier of 30 s lasts 0.3 s.
TIME_SCALE = "0.01"
Start = Callable[[str], Pod]


@pytest.fixture
def start(kafka: Cluster, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a pod of a role; all pods end with the test."""
    numbers = count()
    with ExitStack() as resources:

        def started(role: str) -> Pod:
            own = {
                "HIFI_GATEWAY_TENANT_STREAMS_MAX": "100000",
                "HIFI_DELIVERY_MAKES_CLASS_ARCHIVE": "false",
                f"HIFI_{role.upper()}_HEAP_MB": "512",
                f"HIFI_{role.upper()}_TIME_SCALE": TIME_SCALE,
            }
            folder = tmp_path / f"{role}-{next(numbers)}"
            pod = Pod(role, kafka.bootstrap_servers, folder, own)
            resources.callback(pod.kill)
            return pod

        yield started


def test_gateways_are_upgraded_and_scaled_in_and_no_request_fails(
    kafka: Cluster, start: Start
) -> None:
    stream = new_stream(kafka.bootstrap_servers)
    with balanced() as balancer:

        def add() -> Pod:
            pod = start("gateway")
            endpoint = Endpoint(pod.port, pod.probes)
            balancer.backends.append(endpoint)
            wait_until(lambda: endpoint.is_ready, what="a gateway gets requests", timeout_s=START_S)
            return pod

        old = [add(), add()]
        senders = Senders(f"http://127.0.0.1:{balancer.port}/v1/streams/{stream}/events")
        took_s: list[float] = []
        with senders.sending():
            senders.wait_for_more()
            new: list[Pod] = []
            for pod in old:
                new.append(add())
                took_s.append(pod.delete())
            senders.wait_for_more()
            took_s.append(new.pop().delete())
            senders.wait_for_more()
        assert senders.errors == []
        assert Counter(status for status, _ in senders.answers) == {200: len(senders.answers)}
    assert max(took_s) < GRACE_S
    accepted = [event_id for _, event_id in senders.answers]
    assert sorted(stored_ids(kafka.bootstrap_servers, stream)) == sorted(accepted)


def fail_some(number: int, request: Request) -> Reply:
    """Fail some first attempts, so that the retrier has work, too."""
    return Reply(503 if number % 5 == 0 and request.headers["hifi-attempt"] == "1" else 200)


def test_delivery_and_retriers_are_upgraded_and_scaled_in_and_each_event_arrives_once(
    kafka: Cluster, start: Start
) -> None:
    with scripted_destination(fail_some) as shop:
        to = Destination(f"s-{uuid.uuid4().hex}", "shop", shop.url)
        asyncio.run(make(kafka.bootstrap_servers, to))
        old = [start("delivery"), start("delivery"), start("retrier")]
        for pod in old:
            pod.wait_until_ready(START_S)
        took_s: list[float] = []
        new: list[Pod] = []

        def more_arrive() -> None:
            wanted = len(shop.accepted_ids) + 200
            wait_until(lambda: len(shop.accepted_ids) >= wanted, what="200 more events arrive")

        with Traffic(kafka.bootstrap_servers, [to.stream]) as traffic:
            more_arrive()
            for pod in old:
                new.append(start(pod.role))
                new[-1].wait_until_ready(START_S)
                took_s.append(pod.delete())
                more_arrive()
            took_s.append(new[0].delete())
            more_arrive()
        wait_until(lambda: shop.accepted_ids.keys() == set(traffic.ids), what="all arrive")
        # A late copy would arrive within this time.
        time.sleep(2)
        assert max(took_s) < GRACE_S
        assert set(shop.accepted_ids.values()) == {1}
        assert any(request.headers["hifi-attempt"] != "1" for request in shop.accepted)
