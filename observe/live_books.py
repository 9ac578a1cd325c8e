"""Reads the books from Kafka: receipts and lanes' positions, laid over the log."""

import contextlib
from collections.abc import AsyncIterator

import structlog

from shared.event.topics import RECEIPTS, RETRIER, stream_topic
from shared.proof.balance import Balance, Coverage
from shared.proof.receipt import Receipt, lines_of
from shared.runtime.kafka.lane_positions import LaneGroups
from shared.runtime.kafka.reader import Follow, KafkaReader, open_reader

log = structlog.get_logger()

_POLL_S = 0.2


class Books:
    """What is proven of each destination so far. Made by `open_books`."""

    def __init__(
        self, reader: KafkaReader, receipts: Follow, groups: LaneGroups, only: str | None
    ) -> None:
        self._reader = reader
        self._receipts = receipts
        self._groups = groups
        self._only = only
        self._coverage: dict[str, Coverage] = {}

    async def catch_up(self) -> None:
        """Read every receipt that is there now."""
        ends = await self._reader.ends([RECEIPTS])
        while not await self._receipts.has_reached(ends):
            for record in await self._receipts.read(wait_s=_POLL_S):
                for line in lines_of(record.value):
                    await self._enter(line)

    async def balance(self, stream: str, destination_id: str) -> Balance:
        """The books of one destination as of now. Ends first: what comes later is not missing."""
        spans = await self._reader.spans([stream_topic(stream)])
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
        position = await self._groups.position(coverage.destination_id)
        retrier = await self._groups.position(RETRIER)
        if position is not None and retrier is not None:
            coverage.reached({**position, **retrier})


@contextlib.asynccontextmanager
async def open_books(bootstrap_servers: str, *, only: str | None = None) -> AsyncIterator[Books]:
    """The books as of now, whenever they are asked.

    Whoever keeps them open names the one destination that is asked about: of others, what is not
    confirmed would pile up.
    """
    async with open_reader(bootstrap_servers) as reader, LaneGroups(bootstrap_servers) as groups:
        receipts = reader.follow(await reader.starts([RECEIPTS]))
        yield Books(reader, receipts, groups, only)
