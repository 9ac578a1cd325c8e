"""Follows the state topic: how each destination is being sent to, for the pages that show it."""

import asyncio
from collections.abc import Mapping

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from observe.console.scene import Flow
from shared.flow_record import FlowRecord, open_flow_record
from shared.topics import STATE

log = structlog.get_logger()

_POLL_MS = 1_000
_PAUSE_S = 3.0
_PARTITION = TopicPartition(STATE, 0)


class FlowFeed:
    """The newest state of each destination, kept up to date while `follow` runs."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._newest: dict[str, FlowRecord] = {}

    @property
    def flows(self) -> Mapping[str, Flow]:
        return {key: flow_of(record) for key, record in self._newest.items()}

    async def follow(self) -> None:
        """Read on until cancelled, whatever happens to Kafka."""
        while True:
            try:
                await self._follow()
            except (KafkaError, OSError) as error:
                log.warning("flow_feed.failed", error=repr(error))
                await asyncio.sleep(_PAUSE_S)

    def _take(self, key: str, record: FlowRecord | None) -> None:
        """Delivery and the retrier both write: the later word counts."""
        before = self._newest.get(key)
        if record is None:
            self._newest.pop(key, None)
        elif before is None or before.updated_at_ms <= record.updated_at_ms:
            self._newest[key] = record

    async def _follow(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap_servers,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            consumer.assign([_PARTITION])
            await consumer.seek_to_beginning(_PARTITION)
            while True:
                batches = await consumer.getmany(_PARTITION, timeout_ms=_POLL_MS)
                for record in batches.get(_PARTITION, []):
                    key = (record.key or b"").decode(errors="replace")
                    self._take(key, open_flow_record(record.value))
        finally:
            await consumer.stop()


def flow_of(record: FlowRecord) -> Flow:
    """What a state record says to people."""
    return Flow(
        record.state.value,
        record.flow.concurrency.limit,
        since_ms=record.since_ms or None,
        reopens_at_ms=record.until_ms or None,
        failing_since_ms=record.flow.failing_since_ms or None,
    )
