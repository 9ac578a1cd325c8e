"""Decides how the books are read from Kafka: receipts and lanes' positions, laid over the log."""

import contextlib
from collections.abc import AsyncIterator

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from shared.event.topics import RECEIPTS, RETRIER, stream_topic
from shared.proof.balance import Balance, Coverage
from shared.proof.receipt import Receipt, lines_of
from shared.runtime.kafka.client_start import started
from shared.runtime.kafka.lane_positions import LaneGroups
from shared.runtime.kafka.records import partitions_of, spans_of

log = structlog.get_logger()

_POLL_MS = 200


class Books:
    """What is proven of each destination so far. Made by `open_books`."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        receipts: list[TopicPartition],
        groups: LaneGroups,
        only: str | None,
    ) -> None:
        self._consumer = consumer
        self._receipts = receipts
        self._groups = groups
        self._only = only
        self._coverage: dict[str, Coverage] = {}

    async def catch_up(self) -> None:
        """Read every receipt that is there now."""
        ends = await self._consumer.end_offsets(self._receipts)
        while True:
            batches = await self._consumer.getmany(*self._receipts, timeout_ms=_POLL_MS)
            for records in batches.values():
                for record in records:
                    for line in lines_of(record.value or b""):
                        await self._enter(line)
            positions = [await self._consumer.position(where) for where in self._receipts]
            if all(at >= ends[w] for at, w in zip(positions, self._receipts, strict=True)):
                return

    async def balance(self, stream: str, destination_id: str) -> Balance:
        """The books of one destination as of now. Ends first: what comes later is not missing."""
        topic = stream_topic(stream)
        spans = await spans_of(self._consumer, [topic])
        await self.catch_up()
        coverage = self._coverage.setdefault(destination_id, Coverage(destination_id))
        await self._ask_lanes(coverage)
        return coverage.balance(spans)

    async def _enter(self, line: bytes) -> None:
        try:
            receipt = Receipt.from_json(line)
        except (ValueError, TypeError, KeyError) as error:
            log.warning("receipt.unreadable", error=str(error))
            return
        if self._only not in {None, receipt.destination_id}:
            return
        coverage = self._coverage.get(receipt.destination_id)
        if coverage is None:
            coverage = self._coverage[receipt.destination_id] = Coverage(receipt.destination_id)
            # Before a month of its receipts: each that counts at once need not be kept.
            await self._ask_lanes(coverage)
        coverage.take(receipt)

    async def _ask_lanes(self, coverage: Coverage) -> None:
        """How far the destination's lane and the retrier are."""
        # Before the first lane has ever spoken, Kafka has no place for positions.
        with contextlib.suppress(KafkaError):
            position = await self._groups.position(coverage.destination_id)
            coverage.reached({**position, **await self._groups.position(RETRIER)})


@contextlib.asynccontextmanager
async def open_books(bootstrap_servers: str, *, only: str | None = None) -> AsyncIterator[Books]:
    """The books, with a consumer that belongs to no group.

    Whoever keeps them open names the one destination that is asked about: of others, what is not
    confirmed would pile up.
    """
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        # A re-drive writes in transactions: what was taken back must not be in the books.
        isolation_level="read_committed",
    )
    async with started(consumer), LaneGroups(bootstrap_servers) as groups:
        receipts = await partitions_of(consumer, RECEIPTS)
        consumer.assign(receipts)
        await consumer.seek_to_beginning(*receipts)
        yield Books(consumer, receipts, groups, only)
