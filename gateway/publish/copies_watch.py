"""Watches whether Kafka keeps as many copies of the streams as it should."""

import asyncio
from collections.abc import Callable, Collection, Mapping

import structlog

from shared.event.topic_safety import Copies, TopicState
from shared.event.topics import stream_of
from shared.metric_names import GATEWAY_SHORT_OF_COPIES_TOPICS
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.metrics import Metrics
from shared.runtime.setup_error import KafkaUnavailableError

log = structlog.get_logger()

# Only people change the number of copies, and each worker of each gateway checks it.
_STEP_S = 60.0
_NAMES_SHOWN = 3


class CopiesWatch:
    """Watches the copies in Kafka that this gateway's 2xx answers rely on."""

    def __init__(
        self, bootstrap_servers: str, topics: Callable[[], Collection[str]], copies: Copies
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._topics = topics
        self._copies = copies
        self._short: list[str] = []

    @property
    def worry(self) -> str | None:
        """A sentence about streams with too few copies; None if there are none."""
        if not self._short:
            return None
        names = ", ".join(self._short[:_NAMES_SHOWN])
        more = len(self._short) - _NAMES_SHOWN
        others = f" and {more} more" if more > 0 else ""
        wanted = f"{self._copies.replicas} copies, {self._copies.in_sync_min} of them in sync"
        return f"Kafka keeps fewer than {wanted}, of {names}{others}: see `hifi doctor`"

    def measure(self, metrics: Metrics) -> None:
        gauge = metrics.gauge(GATEWAY_SHORT_OF_COPIES_TOPICS)
        gauge.set_function(lambda: float(len(self._short)))

    async def run(self) -> None:
        """Check every minute until cancelled; other parts report it if Kafka is down."""
        while True:
            try:
                async with topic_admin(self._bootstrap_servers) as admin:
                    self.judge(await admin.states(self._topics()))
            except (KafkaUnavailableError, OSError) as error:
                log.warning("copies.unknown", error=repr(error))
            await asyncio.sleep(_STEP_S)

    def judge(self, states: Mapping[str, TopicState]) -> None:
        """Find the topics with too few copies."""
        short = sorted(
            stream_of(name) for name, at in states.items() if self._copies.falls_short(at)
        )
        if short and short != self._short:
            log.error("streams.short_of_copies", streams=short)
        self._short = short
