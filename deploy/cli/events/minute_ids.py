"""Reads what is written of a stream's minutes: the statements, and the ids of their events.

The ids come from the gateway's ledger and, where that is silent, from the log itself.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from shared.event.envelope import open_stream_record
from shared.event.record import RecordIn
from shared.event.times import minute_of
from shared.event.topics import ACKED, STATEMENTS, stream_topic
from shared.proof.acked import EARLY_MS_MAX, AckedRow, audited_minute
from shared.proof.merkle import merkle_root
from shared.proof.statement import SignedStatement
from shared.runtime.kafka.log_reader import LogReader, open_log
from shared.runtime.setup_error import SetupError


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
    return minute_of(found)


async def minute_ids(kafka: str, stream: str, minute_ms: int) -> MinuteIds:
    """All that is known of one minute; a SetupError if nothing is."""
    async with open_log(kafka) as log:
        chain = await _chain(log, stream)
        about = [one for one in chain if one.statement.minute_ms == minute_ms]
        if not about:
            raise SetupError(
                f"There is no statement about that minute of {stream}: nothing was acknowledged in"
                " it, or it has not settled yet, which is about three minutes after its last event."
            )
        ids = await _ids(log, stream, minute_ms)
        found = MinuteIds(about[-1], broken_link(chain), ids)
        if not found.is_whole:
            more = await _ids_in_log(log, stream, minute_ms)
            found = MinuteIds(about[-1], found.broken_at, ids | more)
        return found


async def acked_ids(kafka: str, stream: str, wanted: Iterable[str]) -> frozenset[str]:
    """Those of the ids that the stream's log has."""
    asked = frozenset(wanted)
    found: set[str] = set()

    def take(record: RecordIn) -> None:
        event_id = open_stream_record(record).event_id
        if event_id in asked:
            found.add(event_id)

    async with open_log(kafka) as log:
        await _read(log, stream_topic(stream), take, from_ms=0)
    return frozenset(found)


def broken_link(chain: list[SignedStatement]) -> SignedStatement | None:
    """The first statement that does not name the one before it."""
    for before, after in pairwise(chain):
        if after.statement.previous != before.statement.digest:
            return after
    return None


async def _chain(log: LogReader, stream: str) -> list[SignedStatement]:
    found: list[SignedStatement] = []
    prefix = f"{stream}:".encode()

    def take(record: RecordIn) -> None:
        if (record.key or b"").startswith(prefix):
            found.append(SignedStatement.from_json(record.value))

    await _read(log, STATEMENTS, take, from_ms=0)
    return found


async def _ids(log: LogReader, stream: str, minute_ms: int) -> frozenset[str]:
    found: set[str] = set()
    topic = stream_topic(stream)

    def take(record: RecordIn) -> None:
        if record.key != stream.encode():
            return
        row = AckedRow.from_bytes(record.value)
        if row.topic == topic:
            found.update(event_id for minute, _, event_id in row.named() if minute == minute_ms)

    await _read(log, ACKED, take, from_ms=minute_ms - EARLY_MS_MAX)
    return frozenset(found)


async def _ids_in_log(log: LogReader, stream: str, minute_ms: int) -> frozenset[str]:
    found: set[str] = set()

    def take(record: RecordIn) -> None:
        event = open_stream_record(record)
        if audited_minute(event.event_time_ms, event.accepted_at_ms) == minute_ms:
            found.add(event.event_id)

    await _read(log, stream_topic(stream), take, from_ms=minute_ms - EARLY_MS_MAX)
    return frozenset(found)


async def _read(
    log: LogReader, topic: str, take: Callable[[RecordIn], None], *, from_ms: int
) -> None:
    """Every record that a topic has now, from a moment on, however long it takes."""
    await log.read_since([topic], from_ms, take, until_s=math.inf)
