"""Tells a gateway's probes whether the gateway should get requests."""

from gateway.callers import ConfigSource
from gateway.publish.copies_watch import CopiesWatch
from gateway.publish.publisher import Publisher
from shared.metric_names import GATEWAY_CONFIG_AGE_SECONDS, GATEWAY_UP
from shared.runtime.health import Health
from shared.runtime.metrics import Metrics


def tell_health(
    health: Health,
    *,
    metrics: Metrics,
    publisher: Publisher,
    config: ConfigSource,
    copies: CopiesWatch | None = None,
) -> None:
    """Report a gateway as ready while Kafka stores its events.

    A gateway with old configuration, or too few copies of a stream, stays ready: otherwise every
    gateway would stop getting requests at once. The probe still mentions the problem, for people,
    and a metric shows it, for alerts.
    """
    health.needs(lambda: publisher.problem)
    health.worries(lambda: config.problem)
    if copies is not None:
        health.worries(lambda: copies.worry)
    metrics.gauge(GATEWAY_UP).set_function(lambda: float(health.problem is None))
    metrics.gauge(GATEWAY_CONFIG_AGE_SECONDS).set_function(lambda: config.age_s)
