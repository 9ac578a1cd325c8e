"""Checks the basis of lag and loss: replicas in sync, and clocks that agree with the broker's."""

import asyncio
import contextlib

import structlog

from shared.event.topics import ACKED, PROBE
from shared.metric_names import OBSERVE_CLOCK_SKEW_SECONDS, OBSERVE_UNDER_MIN_ISR_TOPICS
from shared.proof.acked import AckedRow
from shared.runtime.clock import now_ms
from shared.runtime.kafka.clients import new_producer, running
from shared.runtime.kafka.reader import open_reader
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.metrics import Metrics
from shared.runtime.setup_error import KafkaUnavailableError

log = structlog.get_logger()

# Alerts wait a minute, and a check costs a handful of requests.
_STEP_S = 15.0
# A gateway gathers events for at most this time before it writes their row of the ledger.
_ROW_MS_MAX = 5_000
_OURS = "hifi."
_MIN_ISR = "min.insync.replicas"


async def watch_kafka(bootstrap_servers: str, metrics: Metrics) -> None:
    """Check at intervals until cancelled; the sampler reports an unreachable Kafka."""
    under_min = metrics.gauge(OBSERVE_UNDER_MIN_ISR_TOPICS)
    skew = metrics.gauge(OBSERVE_CLOCK_SKEW_SECONDS)
    while True:
        try:
            under_min.set(len(await topics_under_min_isr(bootstrap_servers)))
            skew.labels("observe").set(await own_skew_ms(bootstrap_servers) / 1000)
            gateways_ms = await gateway_skew_ms(bootstrap_servers)
            if gateways_ms is not None:
                skew.labels("gateway").set(gateways_ms / 1000)
        except (KafkaUnavailableError, OSError) as error:
            log.warning("kafka_health.unknown", error=repr(error))
        await asyncio.sleep(_STEP_S)


async def topics_under_min_isr(bootstrap_servers: str) -> list[str]:
    """Return our topics with a Kafka partition that lacks replicas and so takes no writes."""
    async with topic_admin(bootstrap_servers) as admin:
        names = [name for name in await admin.names() if name.startswith(_OURS)]
        states = await admin.states(names)
    return sorted(
        name
        for name, state in states.items()
        if state.in_sync_min < int(state.settings.get(_MIN_ISR, "1"))
    )


async def own_skew_ms(bootstrap_servers: str) -> float:
    """Return how far this clock is ahead of the broker's, to within half a request's time."""
    async with running(new_producer(bootstrap_servers), bootstrap_servers) as producer:
        await producer.send_and_wait(PROBE, b"warm up: the first pays for its connection")
        before_ms = now_ms()
        stored = await producer.send_and_wait(PROBE, b"what time is it?")
        after_ms = now_ms()
    # The broker read its clock at some moment between the two.
    if before_ms <= stored.timestamp <= after_ms:
        return 0.0
    return float((before_ms + after_ms) / 2 - stored.timestamp)


async def gateway_skew_ms(bootstrap_servers: str) -> float | None:
    """Return the largest skew of the gateways' clocks, by their newest rows; None without rows.

    A row is stored soon after its events were accepted: any difference beyond that is skew.
    """
    async with open_reader(bootstrap_servers) as reader:
        spans = await reader.spans([ACKED])
        newest = {
            partition: (end - 1, end) for partition, (start, end) in spans.items() if start < end
        }
        skews_ms = [
            _off_ms(record.value, record.timestamp_ms)
            async for record in reader.range(newest).records()
        ]
    return max(skews_ms, key=abs, default=None)


def _off_ms(value: bytes, stored_at_ms: int) -> float:
    with contextlib.suppress(ValueError):
        row = AckedRow.from_bytes(value, with_ids=False)
        ahead_ms = max(part.accepted_at_ms for part in row.slices) - stored_at_ms
        if ahead_ms > 0:
            return float(ahead_ms)
        if ahead_ms < -_ROW_MS_MAX:
            return float(ahead_ms + _ROW_MS_MAX)
    return 0.0
