"""The time up to which all is read: a stuck log holds it back; only the broker's clock counts."""

from pipelines.windows.frontier import MARGIN_MS, BrokerClock, Frontier
from shared.event.record import KafkaPartition

ONE, OTHER = KafkaPartition("t", 0), KafkaPartition("t", 1)


def test_the_log_that_is_behind_counts() -> None:
    frontier = Frontier()
    assert frontier.at_ms([ONE]) == 0
    frontier.read({ONE: 50_000})
    assert frontier.at_ms([ONE]) == 50_000 - MARGIN_MS
    assert frontier.at_ms([ONE, OTHER]) == 0
    frontier.read({OTHER: 20_000})
    assert frontier.at_ms([ONE, OTHER]) == 20_000 - MARGIN_MS
    frontier.read({OTHER: 10_000})
    assert frontier.at_ms([ONE, OTHER]) == 20_000 - MARGIN_MS


def test_the_brokers_time_is_what_they_said_and_what_has_passed_since() -> None:
    clock = BrokerClock()
    assert clock.now_ms(5.0) == 0
    clock.heard(1_000_000, 10.0)
    assert clock.now_ms(12.5) == 1_002_500
    # An answer that was long on its way does not put the clock back.
    clock.heard(1_001_000, 14.0)
    assert clock.now_ms(14.0) == 1_004_000
    # An earlier time that lasts for a minute does.
    clock.heard(1_050_000, 80.0)
    assert clock.now_ms(80.0) == 1_050_000
