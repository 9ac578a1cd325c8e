"""Reads what is written of a stream's minutes: the statements, and the ids of their events.

The ids come from the gateway's ledger and, where that is silent, from the log itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise

from shared.event.derived import restore_of
from shared.event.envelope import open_stream_record
from shared.event.times import minute_of
from shared.event.topics import ACKED, STATEMENTS, stream_topic
from shared.proof.acked import EARLY_MS_MAX, AckedRow, audited_minute
from shared.proof.merkle import merkle_root
from shared.proof.statement import SignedStatement
from shared.runtime.kafka.reader import KafkaReader, open_reader
from shared.runtime.setup_error import NotFoundError, UsageError


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
            at_ms = int(text)
        else:
            parsed = datetime.fromisoformat(text)
            aware = parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
            at_ms = round(aware.timestamp() * 1000)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is no minute: write it as 2026-11-21T19:05Z, or in epoch milliseconds."
        ) from error
    return minute_of(at_ms)


async def minute_ids(kafka: str, stream: str, minute_ms: int) -> MinuteIds:
    """All that is known of one minute; a UsageError if nothing is."""
    async with open_reader(kafka) as log:
        chain = await statements_of(log, stream)
        about = [signed for signed in chain if signed.statement.minute_ms == minute_ms]
        if not about:
            raise NotFoundError(
                f"There is no statement about that minute of {stream}: nothing was acknowledged in"
                " it, or it is not checked yet. That takes about three minutes after"
                " its last event, and longer where a destination stands still: the console says so."
            )
        ids = await _ids(log, stream, minute_ms)
        known = MinuteIds(about[-1], broken_link(chain), ids)
        if known.is_whole:
            return known
        return replace(known, ids=ids | await _ids_in_log(log, stream, minute_ms))


async def acked_ids(
    kafka: str, stream: str, wanted: Iterable[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """Those of the ids that the stream's log has, and those of them that a restore put back."""
    asked, found, restored = frozenset(wanted), set[str](), set[str]()
    async with open_reader(kafka) as log:
        events = await log.since([stream_topic(stream)], 0)
        async for record in events.records():
            event_id = open_stream_record(record).event_id
            if event_id in asked:
                found.add(event_id)
                if restore_of(record.headers):
                    restored.add(event_id)
    return frozenset(found), frozenset(restored)


def broken_link(chain: list[SignedStatement]) -> SignedStatement | None:
    """The first statement that does not name the one before it."""
    for before, after in pairwise(chain):
        if after.statement.previous != before.statement.digest:
            return after
    return None


async def statements_of(log: KafkaReader, stream: str) -> list[SignedStatement]:
    """All that was signed about a stream, in its order."""
    statements = await log.since([STATEMENTS], 0)
    return [
        SignedStatement.from_json(record.value)
        async for record in statements.records()
        if (record.key or b"").startswith(f"{stream}:".encode())
    ]


async def _ids(log: KafkaReader, stream: str, minute_ms: int) -> frozenset[str]:
    ids: set[str] = set()
    ledger = await log.since([ACKED], minute_ms - EARLY_MS_MAX)
    async for record in ledger.records():
        if record.key == stream.encode():
            row = AckedRow.from_bytes(record.value)
            if row.topic == stream_topic(stream):
                ids.update(event_id for minute, _, event_id in row.named() if minute == minute_ms)
    return frozenset(ids)


async def _ids_in_log(log: KafkaReader, stream: str, minute_ms: int) -> frozenset[str]:
    ids: set[str] = set()
    events = await log.since([stream_topic(stream)], minute_ms - EARLY_MS_MAX)
    async for record in events.records():
        event = open_stream_record(record)
        if audited_minute(event.event_time_ms, event.accepted_at_ms) == minute_ms:
            ids.add(event.event_id)
    return frozenset(ids)
