"""The gateway reports rights that it lacks in Kafka to its operator, and not to senders."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import ClusterAuthorizationFailedError, TopicAuthorizationFailedError
from structlog.testing import capture_logs

from gateway.intake.events import Event
from gateway.publish import batch_producer
from gateway.publish.batch_producer import BatchProducer
from gateway.publish.publisher import KafkaPublisher
from gateway.publish.report import Fate, Report
from shared.runtime.setup_error import KafkaRefusedError
from tests.support.kafka.scripted_brokers import ScriptedClient


class RefusedClient(ScriptedClient):
    """Refuses every write."""

    async def wait_for_topic(self, topic: str) -> set[int]:
        raise TopicAuthorizationFailedError(topic)

    async def send(self, *_: object) -> SimpleNamespace:
        return SimpleNamespace(error_code=ClusterAuthorizationFailedError.errno)


def refused(*_: Any, **__: Any) -> RefusedClient:
    return RefusedClient()


def publisher_of() -> KafkaPublisher:
    return KafkaPublisher("nowhere", ack_deadline_s=5, queue_deadline_s=0.1, batch_bytes_max=10_000)


def test_a_sender_is_told_that_it_is_not_stored_and_nothing_of_kafka(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_producer, "new_client", refused)

    async def send() -> Report:
        gateway = publisher_of()
        gateway._producer = BatchProducer("nowhere", timeout_ms=1, give_up_s=1)
        event = Event.of(id="e", key=None, value=b"{}", headers=())
        (report,) = await gateway.publish("hifi.stream.theirs", [event])
        return report

    with capture_logs() as logged:
        report = asyncio.run(send())
    assert report.fate is Fate.NOT_STORED
    assert "nowhere" not in str(report.reason)
    (line,) = logged
    assert line["error"] == (
        "Kafka at nowhere does not let callers without a name use the topic hifi.stream.theirs:"
        " grant it the rights that docs/kafka.md lists for this service."
    )


def test_a_gateway_that_may_write_nowhere_says_so_and_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_producer, "new_client", refused)
    with pytest.raises(KafkaRefusedError, match=r"Kafka at nowhere .* write to any topic: grant"):
        asyncio.run(publisher_of().start(deadline_s=60))
