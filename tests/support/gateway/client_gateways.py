"""Gives tests of clients a gateway with Kafka in memory, open or with keys."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.settings import Settings
from shared.config.access import ApiKey, new_text, secret_from
from shared.config.configuration import Configuration, Stream
from shared.event.topics import stream_topic
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig, RunningGateway, running_gateway

STREAM = "orders"
WAIT_S = 20
# A schema that an event can violate.
_PRICED = {"type": "object", "properties": {"price": {"type": "number"}}}
KEY = new_text(kind="secret", key_id="writer", entropy=b"writer".ljust(20))
SIGNS = new_text(kind="secret", key_id="signer", entropy=b"signer".ljust(20))
_KEYS = {
    "writer": ApiKey("writer", (secret_from(KEY, signs=False),)),
    "signer": ApiKey("signer", (secret_from(SIGNS, signs=True),), must_sign=True),
}


def kafka_in_memory() -> FakePublisher:
    return FakePublisher([stream_topic(STREAM)])


@contextmanager
def open_gateway(publisher: FakePublisher) -> Iterator[RunningGateway]:
    streams = {STREAM: Stream(STREAM, json_schema=json.dumps(_PRICED))}
    with running_gateway(publisher, FixedConfig(Configuration(streams=streams))) as running:
        yield running


@contextmanager
def locked_gateway(publisher: FakePublisher) -> Iterator[RunningGateway]:
    config = FixedConfig(Configuration(streams={STREAM: Stream(STREAM)}, keys=_KEYS))
    with running_gateway(publisher, config, Settings()) as running:
        yield running


def stored(publisher: FakePublisher) -> list[str]:
    """Return the ids of the events in Kafka, sorted."""
    return sorted(event.id for event in publisher.stored(stream_topic(STREAM)))
