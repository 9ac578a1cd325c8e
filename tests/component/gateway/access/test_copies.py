"""`/readyz` and a metric report streams with too few copies."""

from dataclasses import replace

import pytest

from gateway.http.probes import tell_health
from gateway.publish.copies_watch import CopiesWatch
from gateway.settings import Settings
from shared.event.topic_safety import Copies, TopicState
from shared.event.topics import stream_topic
from shared.metric_names import GATEWAY_SHORT_OF_COPIES_TOPICS
from shared.runtime.health import Health
from shared.runtime.metrics import Metrics
from shared.runtime.setup_error import SetupError
from tests.support.gateway.fake_publisher import FakePublisher
from tests.support.gateway.gateway_fixtures import FixedConfig

SAFE = TopicState(stream_topic("orders"), 4, 3, 3, {"min.insync.replicas": "2"})


def test_a_stream_that_is_kept_in_too_few_copies_worries_the_gateway() -> None:
    metrics, health = Metrics(), Health()
    watch = CopiesWatch("nowhere:1", lambda: [SAFE.name], Settings().copies)
    watch.measure(metrics)
    tell_health(
        health,
        metrics=metrics,
        publisher=FakePublisher([]),
        config=FixedConfig(),
        copies=watch,
    )
    health.start()

    def ready(*states: TopicState) -> str:
        watch.judge({state.name: state for state in states})
        is_ready, text = health.probes["/readyz"]()
        assert is_ready
        return text

    def count() -> float | None:
        return metrics.registry.get_sample_value(GATEWAY_SHORT_OF_COPIES_TOPICS.name)

    assert (ready(SAFE), count()) == ("ready\n", 0)
    # A topic that was created while brokers were away.
    said = ready(replace(SAFE, replicas_min=1, settings={}))
    assert "ready, but Kafka keeps fewer than 3 copies, 2 of them in sync, of orders" in said
    assert count() == 1
    # A topic whose writes are acknowledged too early.
    assert "of orders" in ready(replace(SAFE, settings={"min.insync.replicas": "1"}))
    many = [replace(SAFE, name=f"hifi.stream.s{n}", replicas_min=2) for n in range(5)]
    assert "of s0, s1, s2 and 2 more: see `hifi doctor`" in ready(SAFE, *many)
    assert (ready(SAFE), count()) == ("ready\n", 0)


def test_how_many_copies_there_are_is_set_and_never_guessed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Settings().copies == Copies(3, 2)
    monkeypatch.setenv("HIFI_KAFKA_REPLICAS", "1")
    with pytest.raises(SetupError, match="nothing could ever be stored"):
        _ = Settings().copies
    monkeypatch.setenv("HIFI_KAFKA_IN_SYNC_MIN", "1")
    assert Settings().copies == Copies(1, 1)
