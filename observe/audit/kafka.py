"""Asks Kafka for ends and positions for the audit, and publishes what it has found."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
import structlog

from shared.event.record import KafkaPartition, Position
from shared.event.topics import MINUTES, STATEMENTS
from shared.proof.overview import MinuteBooks
from shared.proof.statement import SignedStatement
from shared.runtime.kafka.lane_positions import LaneGroups
from shared.runtime.kafka.only_writer import Write, only_writer
from shared.runtime.kafka.reader import KafkaReader, open_reader

log = structlog.get_logger()

_WRITER = "hifi.audit"
# One transaction: as much as is written well within its 10 s.
_TOGETHER_MAX = 1_000


@dataclass(frozen=True, slots=True)
class AuditKafka:
    """Made by `audit_kafka`."""

    _reader: KafkaReader
    _write: Write
    _groups: LaneGroups

    async def position(self, lane: str) -> Position:
        """How far a lane says it is; nothing while nobody can tell."""
        return await self._groups.position(lane) or {}

    async def spans(self, topics: Iterable[str]) -> dict[KafkaPartition, tuple[int, int]]:
        """The first offset and the end of every Kafka partition of those topics that exist.

        Ends are those of what is certain, as what Spark reads up to them is.
        """
        return await self._reader.spans(topics)

    async def statements(self, begin: int) -> AsyncIterator[tuple[int, SignedStatement]]:
        """Those from an offset on; all of them if nothing is known of any."""
        spans = await self._reader.spans([STATEMENTS])
        ranges = {where: (max(begin, start), end) for where, (start, end) in spans.items()}
        async for record in self._reader.range(ranges).records():
            try:
                yield record.origin.offset, SignedStatement.from_json(record.value)
            except msgspec.DecodeError as error:
                log.warning("statement.unreadable", offset=record.origin.offset, error=repr(error))

    async def publish_statements(self, statements: Sequence[SignedStatement]) -> None:
        """Write them in their order, and wait until Kafka has them."""
        await self._publish(
            STATEMENTS,
            [
                (f"{signed.statement.stream}:{signed.statement.minute_ms}", signed.to_json())
                for signed in statements
            ],
        )

    async def publish_minutes(self, minutes: Sequence[MinuteBooks]) -> None:
        await self._publish(
            MINUTES,
            [
                (f"{books.destination_id}:{books.minute_ms}", msgspec.json.encode(books))
                for books in minutes
            ],
        )

    async def _publish(self, topic: str, records: Sequence[tuple[str, bytes]]) -> None:
        for first in range(0, len(records), _TOGETHER_MAX):
            together = records[first : first + _TOGETHER_MAX]
            await self._write((topic, key.encode(), value, ()) for key, value in together)


@asynccontextmanager
async def audit_kafka(bootstrap_servers: str) -> AsyncIterator[AuditKafka]:
    """A reader, a writer, and the lanes' groups, for as long as the block lasts.

    From then on nobody who began before can write anything more, be it frozen and come back: what
    is read after this is all that the chain goes on from.
    """
    async with (
        only_writer(bootstrap_servers, _WRITER) as write,
        open_reader(bootstrap_servers) as reader,
        LaneGroups(bootstrap_servers) as groups,
    ):
        yield AuditKafka(reader, write, groups)
