"""Fixtures: a gateway for each test of a client."""

from collections.abc import Iterator

import pytest

from tests.support.gateway.client_gateways import kafka_in_memory, locked_gateway, open_gateway
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import RunningGateway


@pytest.fixture
def publisher() -> FakePublisher:
    return kafka_in_memory()


@pytest.fixture
def gateway(publisher: FakePublisher) -> Iterator[RunningGateway]:
    with open_gateway(publisher) as running:
        yield running


@pytest.fixture
def locked(publisher: FakePublisher) -> Iterator[RunningGateway]:
    """Start a gateway that requires keys."""
    with locked_gateway(publisher) as running:
        yield running
