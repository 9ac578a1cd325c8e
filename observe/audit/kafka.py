"""Reads ends and positions from Kafka for the audit, and publishes its findings."""

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
from shared.runtime.kafka.lane_positions import LaneGroups
from shared.runtime.kafka.lookup.restores import read_restores
from shared.runtime.kafka.only_writer import Write, only_writer
from shared.runtime.kafka.reader import KafkaReader, open_reader

log = structlog.get_logger()

# Less than the 1 MB that a record may have; a memory is seldom larger.
_PART_BYTES = 500_000
# The newest snapshot may be incomplete if its writer died: then the one before it is used.
_SNAPSHOTS_TRIED = 3
_PART, _PARTS, _SNAPSHOT = "part", "parts", "snapshot"
# The audit's writer is named after the topic of its memory.
_WRITER = AUDIT
# Records of one transaction, few enough to be written well within its 10 s.
_TOGETHER_MAX = 1_000
_PARTS_TOGETHER_MAX = 20
# The newest record is followed by its commit marker and perhaps markers of aborted transactions.
_LAST_OFFSETS = 8


@dataclass(frozen=True, slots=True)
class AuditKafka:
    """Kafka as the audit needs it. Created by `audit_kafka`."""

    _reader: KafkaReader
    _write: Write
    _groups: LaneGroups

    async def position(self, lane: str) -> Position:
        """Return a lane's own position; empty while it is unknown."""
        return await self._groups.position(lane) or {}

    async def spans(self, topics: Iterable[str]) -> dict[KafkaPartition, tuple[int, int]]:
        """Return the first offset and the end of every Kafka partition of the existing topics.

        Ends cover only committed records, as do Spark's reads up to them.
        """
        return await self._reader.spans(topics)

    async def statements(self, begin: int) -> AsyncIterator[tuple[int, SignedStatement]]:
        """Yield the statements from an offset on."""
        spans = await self._reader.spans([STATEMENTS])
        ranges = {where: (max(begin, start), end) for where, (start, end) in spans.items()}
        async for record in self._reader.range(ranges).records():
            try:
                yield record.origin.offset, SignedStatement.from_json(record.value)
            except msgspec.DecodeError as error:
                log.warning("statement.unreadable", offset=record.origin.offset, error=repr(error))

    async def publish_statements(self, statements: Sequence[SignedStatement]) -> None:
        """Write the statements in order, and wait until Kafka has them."""
        await self._publish(
            STATEMENTS,
            [
                (f"{signed.statement.stream}:{signed.statement.minute_ms}", signed.to_json())
                for signed in statements
            ],
        )

    async def save_memory(self, saved: bytes) -> None:
        """Write the memory in parts, one after the other, and wait until Kafka has them."""
        parts = [saved[at : at + _PART_BYTES] for at in range(0, max(len(saved), 1), _PART_BYTES)]
        count, snapshot = b"%d" % len(parts), uuid.uuid4().bytes
        for first in range(0, len(parts), _PARTS_TOGETHER_MAX):
            numbers = range(first, min(first + _PARTS_TOGETHER_MAX, len(parts)))
            await self._write(
                (
                    AUDIT,
                    b"%d" % number,
                    parts[number],
                    ((_PART, b"%d" % number), (_PARTS, count), (_SNAPSHOT, snapshot)),
                )
                for number in numbers
            )

    async def restored(self) -> dict[KafkaPartition, int]:
        """Return, from restores' reports, the offsets from which they may have put events back."""
        restores = await read_restores(self._reader)
        return restores.begins() if restores else {}

    async def saved_memory(self) -> bytes | None:
        return await saved_memory(self._reader)

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


async def saved_memory(reader: KafkaReader) -> bytes | None:
    """Return the newest complete memory; None if there is none.

    Its parts are consecutive records, and Kafka keeps the newest record of each part, so the search
    begins at the end.
    """
    where = KafkaPartition(AUDIT, 0)
    start, end = (await reader.spans([AUDIT])).get(where, (0, 0))
    for _ in range(_SNAPSHOTS_TRIED):
        newest = await _last(reader, where, start, end)
        if newest is None:
            break
        number, count, snapshot = _place(newest)
        markers = number // _PARTS_TOGETHER_MAX
        begin = max(start, newest.origin.offset - number - markers)
        records = await _records(reader, where, begin, newest.origin.offset + 1)
        parts = [record for record in records if _place(record)[2] == snapshot]
        if [_place(part) for part in parts] == [(at, count, snapshot) for at in range(count)]:
            return b"".join(part.value for part in parts)
        end = parts[0].origin.offset
    return None


async def _last(
    reader: KafkaReader, where: KafkaPartition, start: int, end: int
) -> RecordIn | None:
    """Return the last record before an offset."""
    while start < end:
        begin = max(start, end - _LAST_OFFSETS)
        if records := await _records(reader, where, begin, end):
            return records[-1]
        end = begin
    return None


async def _records(
    reader: KafkaReader, where: KafkaPartition, begin: int, end: int
) -> list[RecordIn]:
    return [one async for one in reader.range({where: (begin, end)}).records()]


def _place(record: RecordIn) -> tuple[int, int, bytes]:
    """Return the number of the part, the count of parts, and the snapshot's id."""
    headers = dict(record.headers)
    return int(headers[_PART]), int(headers[_PARTS]), headers[_SNAPSHOT]


@asynccontextmanager
async def audit_kafka(bootstrap_servers: str) -> AsyncIterator[AuditKafka]:
    """Provide a reader, a writer and the lanes' groups for the length of the block.

    Once the block has begun, no earlier writer can write anything, not even one that was frozen and
    returns. So everything that the chain continues from can be read within the block.
    """
    async with (
        only_writer(bootstrap_servers, _WRITER) as write,
        open_reader(bootstrap_servers) as reader,
        LaneGroups(bootstrap_servers) as groups,
    ):
        yield AuditKafka(reader, write, groups)
