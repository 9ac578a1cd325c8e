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
from shared.runtime.kafka.clients import KafkaProducer, new_producer, running
from shared.runtime.kafka.lane_positions import LaneGroups
from shared.runtime.kafka.reader import KafkaReader, open_reader

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class AuditKafka:
    """Made by `audit_kafka`."""

    _reader: KafkaReader
    _producer: KafkaProducer
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
        for signed in statements:
            key = f"{signed.statement.stream}:{signed.statement.minute_ms}".encode()
            await self._producer.send_and_wait(STATEMENTS, key=key, value=signed.to_json())

    async def publish_minutes(self, minutes: Sequence[MinuteBooks]) -> None:
        reports = [
            await self._producer.send(
                MINUTES,
                key=f"{books.destination_id}:{books.minute_ms}".encode(),
                value=msgspec.json.encode(books),
            )
            for books in minutes
        ]
        for report in reports:
            await report


@asynccontextmanager
async def audit_kafka(bootstrap_servers: str) -> AsyncIterator[AuditKafka]:
    """A reader, a producer, and the lanes' groups, for as long as the block lasts."""
    # As large as the stream topics' records may be: a thousand missing ids fit.
    producer = new_producer(bootstrap_servers, enable_idempotence=True)
    async with (
        open_reader(bootstrap_servers) as reader,
        running(producer, bootstrap_servers),
        LaneGroups(bootstrap_servers) as groups,
    ):
        yield AuditKafka(reader, producer, groups)
