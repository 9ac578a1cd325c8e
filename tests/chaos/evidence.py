"""Reads what a recount needs out of Kafka: logs, tiers, dead letters, receipts, positions.

Positions are read before the records that they speak of: what a lane has passed has its outcome in
Kafka by then, so what is in neither is lost.
"""

import asyncio
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from aiokafka import ConsumerRecord
from typer.testing import CliRunner

from deploy.cli.commands import app
from observe.audit.signing import PUBLIC
from observe.lag.live_books import open_books
from shared.config.configuration import Configuration
from shared.event.envelope import ACCEPTED_AT, DESTINATION, EVENT_ID, EVENT_TIME
from shared.event.record import KafkaPartition
from shared.event.topics import (
    ACKED,
    DEAD,
    RECEIPTS,
    REDRIVEN,
    RETRIER,
    RETRIER_SLOW,
    STATEMENTS,
    retry_topic,
    stream_topic,
    tier_topics,
)
from shared.proof.acked import AckedRow, audited_minute
from shared.proof.merkle import merkle_root
from shared.proof.receipt import Receipt, ReceiptOutcome, receipts_of
from shared.proof.statement import SignedStatement, Statement
from shared.retry.decision import FILTERED
from shared.retry.schedule import SLOW, RetrySchedule
from shared.runtime.kafka.lane_positions import LaneGroups
from shared.runtime.kafka.reader import open_reader
from tests.chaos.recount import Claim, Owed, StoredId, unsigned
from tests.support.kafka_log import read_all

# What each of the retrier's lanes reads.
_WAITING = {
    RETRIER: [topic for tier in RetrySchedule().tiers for topic in tier_topics(tier.name)],
    RETRIER_SLOW: [retry_topic(SLOW.name)],
}
_COMPLETE, _UNTRUSTED = 0, 4

# Ids by the destination that they are for.
_Ids = dict[str, set[str]]


@dataclass(frozen=True)
class Evidence:
    log: Mapping[str, Mapping[tuple[int, int], str]]
    waiting: _Ids
    dead: _Ids
    pending: _Ids
    claims: Sequence[Claim]


def read_evidence(kafka: str, streams: Iterable[str], owed: Iterable[Owed]) -> Evidence:
    return asyncio.run(_read(kafka, sorted(set(streams)), [one.id for one in owed]))


async def _read(kafka: str, streams: Sequence[str], destination_ids: Sequence[str]) -> Evidence:
    async with LaneGroups(kafka) as groups:
        retriers = {one: await groups.position(one) or {} for one in _WAITING}
        lanes = {one: await groups.position(one) or {} for one in destination_ids}
    waiting: _Ids = defaultdict(set)
    for retrier, topics in _WAITING.items():
        for topic in topics:
            for record in await read_all(kafka, topic):
                where = KafkaPartition(topic, record.partition)
                if record.offset >= retriers[retrier].get(where, 0):
                    _note(waiting, record)
    again = {(record.key or b"").decode() for record in await read_all(kafka, REDRIVEN)}
    dead: _Ids = defaultdict(set)
    for record in await read_all(kafka, DEAD):
        # What was sent again must be somewhere else by now.
        if f"{record.partition}:{record.offset}" not in again:
            _note(dead, record)
    logs = {
        stream: {
            (record.partition, record.offset): _header(record, EVENT_ID)
            for record in await read_all(kafka, stream_topic(stream))
        }
        for stream in streams
    }
    pending: _Ids = defaultdict(set)
    for destination_id, position in lanes.items():
        stream = destination_id.partition("/")[0]
        reached = {partition: offset for (_, partition), offset in position.items()}
        for (partition, offset), event_id in logs.get(stream, {}).items():
            if offset >= reached.get(partition, 0):
                pending[destination_id].add(event_id)
    claims = [
        _claim(receipt)
        for record in await read_all(kafka, RECEIPTS)
        for receipt in receipts_of(record.value)
        if receipt is not None
        and receipt.outcome is ReceiptOutcome.DELIVERED
        and receipt.reason != FILTERED
    ]
    return Evidence(logs, waiting, dead, pending, claims)


def _claim(receipt: Receipt) -> Claim:
    covered = tuple((one.partition, one.first, one.end) for one in receipt.covered)
    return Claim(receipt.destination_id, covered)


def _note(ids: _Ids, record: ConsumerRecord) -> None:
    ids[_header(record, DESTINATION)].add(_header(record, EVENT_ID))


def _header(record: ConsumerRecord, name: str) -> str:
    text: str = dict(record.headers).get(name, b"").decode()
    return text


def unsettled(kafka: str, owed: Iterable[Owed]) -> list[str]:
    """The lanes that have not come to the end of what they read, the retrier among them."""
    return asyncio.run(_unsettled(kafka, list(owed)))


async def _unsettled(kafka: str, owed: Sequence[Owed]) -> list[str]:
    behind = []
    async with LaneGroups(kafka) as groups, open_reader(kafka) as reader:
        for lane, topics in [
            *((one.id, [stream_topic(one.stream)]) for one in owed),
            *_WAITING.items(),
        ]:
            position = await groups.position(lane) or {}
            spans = await reader.spans(topics)
            left = sum(
                max(0, end - max(first, position.get(where, 0)))
                for where, (first, end) in spans.items()
            )
            if left:
                behind.append(f"{lane} has {left} to go")
    return behind


def wrong_books(kafka: str, owed: Sequence[Owed]) -> list[str]:
    """What is wrong with the product's own books once all has settled."""

    async def look() -> list[str]:
        wrong = []
        async with open_books(kafka, Configuration) as books:
            await books.refresh(sorted({one.stream for one in owed}), [one.id for one in owed])
            for one in owed:
                balance = books.balance(one.id)
                if balance.unaccounted or balance.pending or balance.waiting:
                    wrong.append(f"{one.id}: {balance}")
        return wrong

    return asyncio.run(look())


def wrong_statements(
    kafka: str,
    folder: Path,
    *,
    sent: Mapping[str, Iterable[str]],
    least: Mapping[str, int],
) -> list[str]:
    """What `hifi verify` has against the statements of each stream, or a loss that they tell of.

    `least`: about how many events those of a stream must be, together.
    """
    statements = asyncio.run(_statements(kafka))
    stated: Counter[str] = Counter()
    for (stream, _), signed in statements.items():
        stated[stream] += signed.statement.acked
    wrong = [
        f"{stream}: {stated[stream]} of {count} events are stated"
        for stream, count in least.items()
        if stated[stream] < count
    ]
    for (stream, minute_ms), signed in statements.items():
        for name, counts in signed.statement.destinations.items():
            if counts.lost:
                wrong.append(f"{stream}, minute {minute_ms}: {name} lost {dict(counts.lost)}")
        said = _verify(kafka, folder, signed.statement, sent.get(stream, ()))
        if said:
            wrong.append(f"{stream}, minute {minute_ms}: {said}")
    return wrong


def _verify(kafka: str, folder: Path, said: Statement, ids: Iterable[str]) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
        listed.write("\n".join(ids))
        listed.flush()
        argv = ["verify", "--stream", said.stream, f"--minute={said.minute_ms}"]
        argv += ["--ids", listed.name]
        key = folder / "observe" / PUBLIC
        done = CliRunner().invoke(app, [*argv, "--kafka", kafka, "--public-key", str(key)])
    if done.exit_code == _COMPLETE:
        return ""
    why = asyncio.run(_unsigned(kafka, said)) if done.exit_code == _UNTRUSTED else ""
    return f"{done.output.strip()} {done.exception!r} {why}"


async def _unsigned(kafka: str, said: Statement) -> str:
    """What a statement was made of, and of what not, as far as can be told."""
    ledger = [
        StoredId(event_id, row.partition, offset, record.timestamp)
        for record in await read_all(kafka, ACKED)
        if (row := AckedRow.from_bytes(record.value)).topic == stream_topic(said.stream)
        for minute, offset, event_id in row.named()
        if minute == said.minute_ms
    ]
    log = [
        StoredId(_header(record, EVENT_ID), record.partition, record.offset, record.timestamp)
        for record in await read_all(kafka, stream_topic(said.stream))
        if _minute(record) == said.minute_ms
    ]

    def is_signed(ids: AbstractSet[str]) -> bool:
        return len(ids) == said.id_count and merkle_root(ids).hex() == said.root

    return (
        f"revision {said.revision} of {said.acked} events with {said.id_count} ids, issued at"
        f" {said.issued_at_ms}: {unsigned(is_signed, ledger=ledger, log=log)}"
    )


def _minute(record: ConsumerRecord) -> int:
    return audited_minute(int(_header(record, EVENT_TIME)), int(_header(record, ACCEPTED_AT)))


async def _statements(kafka: str) -> dict[tuple[str, int], SignedStatement]:
    """The newest of each stream and minute."""
    newest = {}
    for record in await read_all(kafka, STATEMENTS):
        signed = SignedStatement.from_json(record.value)
        newest[signed.statement.stream, signed.statement.minute_ms] = signed
    return newest
