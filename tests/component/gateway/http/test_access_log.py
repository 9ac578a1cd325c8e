"""The gateway logs requests of the control plane and failed requests, but no accepted events."""

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from gateway.publish.report import Fate
from shared.event.topics import stream_topic
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import RunningGateway, config_with, running_gateway

PATH = "/v1/streams/orders/events"


@pytest.fixture(scope="module")
def publisher() -> FakePublisher:
    return FakePublisher([stream_topic("orders")])


@pytest.fixture(scope="module")
def gateway(publisher: FakePublisher) -> Iterator[RunningGateway]:
    with running_gateway(publisher, config_with("orders")) as gateway:
        yield gateway


def test_a_request_that_is_taken_is_not_logged_and_one_that_fails_is(
    gateway: RunningGateway, publisher: FakePublisher
) -> None:
    with capture_logs() as lines:
        assert gateway.client.post(PATH, json=[{"a": 1}]).status_code == 200
        assert lines == []
        publisher.fate = Fate.NOT_STORED
        answer = gateway.client.post(PATH + "?results=all", json=[{"a": 1}])
        publisher.fate = Fate.STORED
    assert answer.status_code == 503
    (line,) = lines
    assert (line["kind"], line["method"], line["path"]) == ("events", "POST", PATH)
    assert (line["status"], line["log_level"]) == (503, "warning")
    assert line["request_id"] == answer.headers["x-request-id"]


def test_a_control_request_is_logged_whatever_comes_of_it(gateway: RunningGateway) -> None:
    with capture_logs() as lines:
        answer = gateway.client.get("/v1/streams")
        gateway.client.get("/nowhere?key=secret")
    answered = [line for line in lines if line["event"] == "request.answered"]
    assert [(line["path"], line["status"]) for line in answered] == [
        ("/v1/streams", answer.status_code),
        ("/nowhere", 404),
    ]
    assert {line["kind"] for line in answered} == {"control"}
    assert answered[0]["request_id"] == answer.headers["x-request-id"]
