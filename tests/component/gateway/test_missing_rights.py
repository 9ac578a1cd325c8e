"""What Kafka does not let the gateway do is told to whoever runs it, and to no sender."""

import asyncio
from typing import Any

import pytest
from aiokafka.errors import ClusterAuthorizationFailedError, TopicAuthorizationFailedError
from structlog.testing import capture_logs

from gateway.intake.events import Event
from gateway.publish import publisher
from gateway.publish.producers import NumberingProducer
from gateway.publish.publisher import KafkaPublisher
from gateway.publish.report import Fate, Report
from shared.runtime.setup_error import KafkaRefusedError


class RefusedProducer:
    """May write nowhere."""

    def __init__(self) -> None:
        self._message_accumulator = self

    async def start(self) -> None:
        raise ClusterAuthorizationFailedError

    async def stop(self) -> None:
        pass

    def fail_all(self, error: Exception) -> None:
        pass

    async def partitions_for(self, topic: str) -> set[int]:
        raise TopicAuthorizationFailedError(topic)


def publisher_of() -> KafkaPublisher:
    return KafkaPublisher("nowhere", ack_deadline_s=5, queue_deadline_s=0.1, batch_bytes_max=10_000)


def test_a_sender_is_told_that_it_is_not_stored_and_nothing_of_kafka() -> None:
    async def send() -> Report:
        gateway = publisher_of()
        gateway._producers.current = NumberingProducer(RefusedProducer())
        event = Event.of(id="e", key=None, value=b"{}", headers=())
        (report,) = await gateway.publish("hifi.stream.theirs", [event])
        return report

    with capture_logs() as logged:
        report = asyncio.run(send())
    assert report.fate is Fate.NOT_STORED
    # The topic is there: what waits for it on a disk is not set aside.
    assert not report.is_topic_unknown
    assert "nowhere" not in str(report.reason)
    (line,) = logged
    assert line["error"] == (
        "Kafka at nowhere does not let callers without a name use the topic hifi.stream.theirs:"
        " grant it what docs/kafka.md lists for this service."
    )


def test_a_gateway_that_may_write_nowhere_says_so_and_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: Any, **__: Any) -> RefusedProducer:
        return RefusedProducer()

    monkeypatch.setattr(publisher, "new_producer", refused)
    with pytest.raises(KafkaRefusedError, match=r"Kafka at nowhere .* write to any topic: grant"):
        asyncio.run(publisher_of().start(deadline_s=60))
