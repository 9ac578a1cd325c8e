"""Tells a gateway's probes whether requests should be sent here."""

from gateway.callers import ConfigSource
from gateway.publish.copies_watch import CopiesWatch
from gateway.publish.publisher import Publisher
from gateway.publish.spool import Spool
from shared.metric_names import GATEWAY_CONFIG_AGE_SECONDS, GATEWAY_UP
from shared.runtime.health import Health
from shared.runtime.metrics import Metrics


def tell_health(
    health: Health,
    *,
    metrics: Metrics,
    publisher: Publisher,
    config: ConfigSource,
    spool: Spool | None = None,
    copies: CopiesWatch | None = None,
) -> None:
    """Ready is a gateway whose events Kafka stores, or one that may keep them itself meanwhile.

    Old configuration, or too few copies of a stream, is no reason to stop taking events: it would
    take every gateway out at once. The probe says it nevertheless, for people, and the metric does,
    for alerts.
    """

    def can_spool() -> bool:
        return spool is not None and spool.has_room

    def only_spools() -> str | None:
        problem = publisher.problem
        return problem and f"only for respond-async, on this disk: {problem}"

    health.needs(lambda: None if can_spool() else publisher.problem)
    health.worries(only_spools)
    health.worries(lambda: config.problem)
    if copies is not None:
        health.worries(lambda: copies.worry)
    metrics.gauge(GATEWAY_UP).set_function(lambda: float(health.problem is None))
    metrics.gauge(GATEWAY_CONFIG_AGE_SECONDS).set_function(lambda: config.age_s)
