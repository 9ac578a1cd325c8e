"""Reads what is written of a stream's minutes: the statements, and the ids of their events.

The ids come from the gateway's ledger and, where that is silent, from the log itself.
"""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.errors import KafkaError

from shared.acked import EARLY_MS_MAX, MINUTE_MS, AckedRow, audited_minute
from shared.envelope import open_stream_record
from shared.merkle import merkle_root
from shared.runtime.kafka_records import partitions_of, record_in
from shared.runtime.setup_error import SetupError
from shared.statement import SignedStatement
from shared.topics import ACKED, STATEMENTS, stream_topic

_POLL_MS = 500


@dataclass(frozen=True, slots=True)
class MinuteIds:
    """The newest statement about a minute, whether its chain holds, and the ids it is about."""

    signed: SignedStatement
    # The statement whose predecessor is not the one before it; None when all fit.
    broken_at: SignedStatement | None
    ids: frozenset[str]

    @property
    def is_whole(self) -> bool:
        """Whether the ids that were read are the very ones that were signed."""
        return merkle_root(self.ids).hex() == self.signed.statement.root


def read_minute(text: str) -> int:
    """A minute as people write it: 2026-11-21T19:05Z, or epoch milliseconds."""
    try:
        if text.lstrip("-").isdigit():
            found = int(text)
        else:
            parsed = datetime.fromisoformat(text)
            aware = parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
            found = round(aware.timestamp() * 1000)
    except ValueError as error:
        raise SetupError(
            f"{text!r} is no minute: write it as 2026-11-21T19:05Z, or in epoch milliseconds."
        ) from error
    return found - found % MINUTE_MS


async def minute_ids(kafka: str, stream: str, minute_ms: int) -> MinuteIds:
    """All that is known of one minute; a SetupError if nothing is."""
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka, enable_auto_commit=False)
    try:
        await consumer.start()
    except KafkaError as error:
        await consumer.stop()
        raise SetupError(
            f"No Kafka broker answers at {kafka} ({error}):"
            " start one with `hifi up`, or name another with --kafka HOST:PORT."
        ) from error
    try:
        chain = [
            SignedStatement.from_json(record.value or b"")
            async for record in _read(consumer, STATEMENTS, from_ms=0)
            if (record.key or b"").startswith(f"{stream}:".encode())
        ]
        about = [one for one in chain if one.statement.minute_ms == minute_ms]
        if not about:
            raise SetupError(
                f"There is no statement about that minute of {stream} (yet): a minute is stated"
                " once it has settled, about three minutes after its last event."
            )
        ids = await _ids(consumer, stream, minute_ms)
        found = MinuteIds(about[-1], broken_link(chain), ids)
        if not found.is_whole:
            more = await _ids_in_log(consumer, stream, minute_ms)
            found = MinuteIds(about[-1], found.broken_at, ids | more)
        return found
    finally:
        await consumer.stop()


async def acked_ids(kafka: str, stream: str, wanted: Iterable[str]) -> frozenset[str]:
    """Those of the ids that the stream's log has."""
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka, enable_auto_commit=False)
    await consumer.start()
    try:
        asked = frozenset(wanted)
        found: set[str] = set()
        async for record in _read(consumer, stream_topic(stream), from_ms=0):
            event_id = open_stream_record(record_in(record)).event_id
            if event_id in asked:
                found.add(event_id)
        return frozenset(found)
    finally:
        await consumer.stop()


def broken_link(chain: list[SignedStatement]) -> SignedStatement | None:
    """The first statement that does not name the one before it."""
    for before, after in pairwise(chain):
        if after.statement.previous != before.statement.digest:
            return after
    return None


async def _ids(consumer: AIOKafkaConsumer, stream: str, minute_ms: int) -> frozenset[str]:
    found: set[str] = set()
    topic = stream_topic(stream)
    async for record in _read(consumer, ACKED, from_ms=max(0, minute_ms - EARLY_MS_MAX)):
        if record.key != stream.encode():
            continue
        row = AckedRow.from_bytes(record.value or b"")
        if row.topic == topic:
            found |= {event_id for minute, _, event_id in row.named() if minute == minute_ms}
    return frozenset(found)


async def _ids_in_log(consumer: AIOKafkaConsumer, stream: str, minute_ms: int) -> frozenset[str]:
    found: set[str] = set()
    start_ms = max(0, minute_ms - EARLY_MS_MAX)
    async for record in _read(consumer, stream_topic(stream), from_ms=start_ms):
        event = open_stream_record(record_in(record))
        if audited_minute(event.event_time_ms, event.accepted_at_ms) == minute_ms:
            found.add(event.event_id)
    return frozenset(found)


async def _read(
    consumer: AIOKafkaConsumer, topic: str, *, from_ms: int
) -> AsyncIterator[ConsumerRecord]:
    """Every record that a topic has now, from a moment on."""
    where = await partitions_of(consumer, topic)
    if not where:
        return
    consumer.assign(where)
    ends = await consumer.end_offsets(where)
    starts = await consumer.offsets_for_times(dict.fromkeys(where, from_ms))
    for one in where:
        found = starts.get(one)
        consumer.seek(one, found.offset if found is not None else ends[one])
    left = {one for one in where if await consumer.position(one) < ends[one]}
    while left:
        batches = await consumer.getmany(*left, timeout_ms=_POLL_MS)
        for one, records in batches.items():
            for record in records:
                if record.offset < ends[one]:
                    yield record
        left = {one for one in left if await consumer.position(one) < ends[one]}
