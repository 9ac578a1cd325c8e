"""A destination gets a whole stream in order only if the stream has one Kafka partition."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway.settings import Settings
from shared.config.configuration import Configuration, Stream
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

SHOP = "destinations/shop"


@pytest.fixture
def gateway() -> Iterator[RunningGateway]:
    streams = {"wide": Stream("wide"), "line": Stream("line", partition_count=1)}
    config = FixedConfig(Configuration(streams=streams))
    with running_gateway(FakePublisher([]), config, Settings(auth="off")) as running:
        yield running


def put(gateway: RunningGateway, path: str, **body: Any) -> httpx.Response:
    url = {"url": "https://1.1.1.1/in"} if path.endswith("shop") else {}
    return gateway.client.put(f"/v1/streams/{path}", json={**url, **body})


def refused(answer: httpx.Response, pointer: str) -> str:
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["pointer"]) == (400, "bad_object", pointer)
    return str(problem["detail"])


def test_the_order_of_a_stream_takes_one_kafka_partition_and_keeps_it(
    gateway: RunningGateway,
) -> None:
    assert "wide has 4" in refused(put(gateway, f"wide/{SHOP}", order="stream"), "/order")
    assert put(gateway, f"line/{SHOP}", order="stream").status_code == 201
    refused(put(gateway, f"line/{SHOP}", order="stream", latency="realtime"), "/latency")
    said = refused(put(gateway, "line", partition_count=2), "/partition_count")
    assert "shop gets events in the stream's order" in said
    assert put(gateway, f"line/{SHOP}", order="key").status_code == 200
    assert put(gateway, "line", partition_count=2).status_code == 200
