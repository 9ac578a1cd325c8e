"""Asks Kafka for ends and positions for the audit, and publishes what it has found."""

import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
import structlog

from shared.event.record import KafkaPartition, Position, RecordIn
from shared.event.topics import AUDIT, MINUTES, STATEMENTS
from shared.proof.overview import MinuteBooks
from shared.proof.statement import SignedStatement
from shared.runtime.kafka.clients import KafkaProducer, new_producer, running
from shared.runtime.kafka.lane_positions import LaneGroups
from shared.runtime.kafka.reader import KafkaReader, open_reader

log = structlog.get_logger()

# Under the 1 MB that a record may have; a memory is seldom larger.
_PART_BYTES = 500_000
# The newest may have been cut off by the death of its writer; then it is the one before it.
_SNAPSHOTS_TRIED = 3
_PART, _PARTS, _SNAPSHOT = "part", "parts", "snapshot"


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

    async def save_memory(self, saved: bytes) -> None:
        """Write it in parts, one after the other, and wait until Kafka has them."""
        parts = [saved[at : at + _PART_BYTES] for at in range(0, max(len(saved), 1), _PART_BYTES)]
        snapshot = uuid.uuid4().bytes
        reports = [
            await self._producer.send(
                AUDIT,
                key=b"%d" % number,
                value=part,
                headers=[
                    (_PART, b"%d" % number),
                    (_PARTS, b"%d" % len(parts)),
                    (_SNAPSHOT, snapshot),
                ],
            )
            for number, part in enumerate(parts)
        ]
        for report in reports:
            await report

    async def saved_memory(self) -> bytes | None:
        return await saved_memory(self._reader)

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


async def saved_memory(reader: KafkaReader) -> bytes | None:
    """What was saved last and is there as a whole; None if nothing is.

    Parts stand side by side, and the newest of each stays: so it is found from the end.
    """
    where = KafkaPartition(AUDIT, 0)
    start, end = (await reader.spans([AUDIT])).get(where, (0, 0))
    for _ in range(_SNAPSHOTS_TRIED):
        newest = await _records(reader, where, max(start, end - 1), end)
        if not newest:
            break
        number, count, snapshot = _place(newest[0])
        begin = max(start, end - 1 - number)
        parts = await _records(reader, where, begin, end)
        if [_place(part) for part in parts] == [(at, count, snapshot) for at in range(count)]:
            return b"".join(part.value for part in parts)
        end = begin
    return None


async def _records(
    reader: KafkaReader, where: KafkaPartition, begin: int, end: int
) -> list[RecordIn]:
    return [one async for one in reader.range({where: (begin, end)}).records()]


def _place(record: RecordIn) -> tuple[int, int, bytes]:
    """Which part it is, of how many, of which snapshot."""
    told = dict(record.headers)
    return int(told[_PART]), int(told[_PARTS]), told[_SNAPSHOT]


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
