"""Reads a recount's evidence from Kafka: logs, tiers, dead letters, receipts, positions.

Positions are read before the records that they cover. An event that a lane has passed already has
its outcome in Kafka when those are read, so without an outcome it is lost.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

import msgspec
from aiokafka import ConsumerRecord

from deploy.cli.events.proofs import Proof, broken_link
from deploy.cli.events.verify import PUBLIC
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
from shared.proof.receipt import Receipt, ReceiptOutcome, receipts_of
from shared.proof.statement import Statement
from shared.retry.decision import FILTERED
from shared.retry.schedule import SLOW, RetrySchedule
from shared.runtime.kafka.lane_positions import LaneGroups
from shared.runtime.kafka.reader import open_reader
from tests.chaos.recount import Claim, OwedDestination, StoredId, uneven_lines, unsigned
from tests.support.kafka.kafka_log import read_all

# The topics that each of the retrier's lanes reads.
_WAITING = {
    RETRIER: [topic for tier in RetrySchedule().tiers for topic in tier_topics(tier.name)],
    RETRIER_SLOW: [retry_topic(SLOW.name)],
}

_NAMED_MAX = 5
# Ids by the destination that they are for.
_Ids = dict[str, set[str]]


@dataclass(frozen=True)
class Evidence:
    log: Mapping[str, Mapping[tuple[int, int], str]]
    waiting: _Ids
    dead: _Ids
    queued: _Ids
    claims: Sequence[Claim]


def read_evidence(kafka: str, streams: Iterable[str], owed: Iterable[OwedDestination]) -> Evidence:
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
        # A dead letter that was resent must now be somewhere else.
        if f"{record.partition}:{record.offset}" not in again:
            _note(dead, record)
    logs = {
        stream: {
            (record.partition, record.offset): _header(record, EVENT_ID)
            for record in await read_all(kafka, stream_topic(stream))
        }
        for stream in streams
    }
    queued: _Ids = defaultdict(set)
    for destination_id, position in lanes.items():
        stream = destination_id.partition("/")[0]
        reached = {partition: offset for (_, partition), offset in position.items()}
        for (partition, offset), event_id in logs.get(stream, {}).items():
            if offset >= reached.get(partition, 0):
                queued[destination_id].add(event_id)
    claims = [
        _claim(receipt)
        for record in await read_all(kafka, RECEIPTS)
        for receipt in receipts_of(record.value)
        if receipt is not None
        and not _is_of_worst(receipt.destination_id)
        and receipt.outcome is ReceiptOutcome.DELIVERED
        and receipt.reason != FILTERED
    ]
    return Evidence(logs, waiting, dead, queued, claims)


def _is_of_worst(name: str) -> bool:
    """Return whether a stream, destination or pipeline belongs to a worst tenant."""
    return name.removeprefix("pipeline:").startswith("worst-")


def _claim(receipt: Receipt) -> Claim:
    covered = tuple((one.partition, one.first, one.end) for one in receipt.covered)
    return Claim(receipt.destination_id, covered)


def _note(ids: _Ids, record: ConsumerRecord) -> None:
    ids[_header(record, DESTINATION)].add(_header(record, EVENT_ID))


def _header(record: ConsumerRecord, name: str) -> str:
    text: str = dict(record.headers).get(name, b"").decode()
    return text


def owing(kafka: str, owed: Iterable[OwedDestination]) -> list[str]:
    """Return the lanes, including the retrier's, that have not reached the end of their logs."""
    return asyncio.run(_owing(kafka, list(owed)))


async def _owing(kafka: str, owed: Sequence[OwedDestination]) -> list[str]:
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


def wrong_books(kafka: str, owed: Sequence[OwedDestination]) -> list[str]:
    """Return the faults in the product's own books once all has settled."""

    async def look() -> list[str]:
        wrong = []
        async with open_books(kafka, Configuration) as books:
            await books.refresh(sorted({one.stream for one in owed}), [one.id for one in owed])
            for one in owed:
                balance = books.balance(one.id)
                if balance.unaccounted or balance.queued or balance.waiting:
                    wrong.append(f"{one.id}: {balance}")
        return wrong

    return asyncio.run(look())


def wrong_statements(
    kafka: str,
    folder: Path,
    *,
    sent: Mapping[str, AbstractSet[str]],
    least: Mapping[str, int],
    owed: Sequence[OwedDestination],
) -> list[str]:
    """Return the misfits in the statements of each stream, and the losses that they report.

    This works like `hifi verify`, but reads Kafka: all tenants, and each stream's former topics.
    The statements of a stream together must cover at least `least` events.
    """
    key = (folder / "observe" / PUBLIC).read_text().strip()
    return asyncio.run(_wrong_statements(kafka, key, sent, least, owed))


async def _wrong_statements(
    kafka: str,
    key: str,
    sent: Mapping[str, AbstractSet[str]],
    least: Mapping[str, int],
    owed: Sequence[OwedDestination],
) -> list[str]:
    chains: dict[str, list[Proof]] = defaultdict(list)
    # By Kafka's clock: the signer's may differ for a while.
    stated_ms: dict[str, int] = {}
    for record in await read_all(kafka, STATEMENTS):
        signed = Proof.from_json(record.value)
        if _is_of_worst(signed.stream):
            continue
        chains[signed.stream].append(signed)
        stated_ms[signed.digest] = record.timestamp
    # The newest statement of each minute.
    newest = {
        stream: {signed.minute_ms: signed for signed in chain} for stream, chain in chains.items()
    }
    stated = {s: sum(said.acked for said in minutes.values()) for s, minutes in newest.items()}
    wrong = [
        f"{stream}: {stated.get(stream, 0)} of {count} events are stated"
        for stream, count in least.items()
        if stated.get(stream, 0) < count
    ]
    ledger = await read_all(kafka, ACKED)
    for stream, chain in chains.items():
        if not all(signed.is_signed(public_key=key) for signed in chain):
            wrong.append(f"{stream}: a statement is not signed with that public key")
        wrong += [f"{stream}: {fault}" for signed in chain if (fault := signed.fault())]
        if broken := broken_link(chain):
            wrong.append(f"{stream}, minute {broken.minute_ms}: the chain is broken")
        log = await read_all(kafka, stream_topic(stream))
        for minute_ms, said in newest[stream].items():
            problems = [f"{line.name} lost {dict(line.lost)}" for line in said.lines if line.lost]
            stored = sum(_minute(record) == minute_ms for record in log)
            at_ms = stated_ms[said.digest]
            statement = msgspec.convert(said.said, Statement)
            problems += uneven_lines(statement, at_ms, stored=stored, owed=owed)
            problems += _verify(said, ledger, log, sent.get(stream, frozenset()))
            wrong += [f"{stream}, minute {minute_ms}: {problem}" for problem in problems]
    return wrong


def _verify(
    said: Proof,
    ledger: Sequence[ConsumerRecord],
    log: Sequence[ConsumerRecord],
    sent: AbstractSet[str],
) -> Iterator[str]:
    """Yield what a statement wrongly counted or left out; nothing if that cannot be known."""
    named = [
        StoredId(event_id, row.partition, offset, record.timestamp)
        for record in ledger
        if (row := AckedRow.from_bytes(record.value)).topic == stream_topic(said.stream)
        for minute, offset, event_id in row.named()
        if minute == said.minute_ms
    ]
    stored = [
        StoredId(_header(record, EVENT_ID), record.partition, record.offset, record.timestamp)
        for record in log
        if _minute(record) == said.minute_ms
    ]
    acked = frozenset(one.event_id for one in named)
    there = frozenset(one.event_id for one in stored)
    for ids in (there, acked, acked | there):
        if said.has_ids(ids):
            if missing := sorted(ids - sent):
                yield f"no sender has sent {missing}"
            if missing := sorted(ids - there):
                yield f"it names ids that are not in the log: {missing[:_NAMED_MAX]}"
            return
    yield (
        f"revision {said.revision} of {said.acked} events with {said.id_count} ids, issued at"
        f" {said.issued_at_ms}:"
        f" {unsigned(said.has_ids, ledger=named, log=stored)}"
    )


def _minute(record: ConsumerRecord) -> int:
    return audited_minute(int(_header(record, EVENT_TIME)), int(_header(record, ACCEPTED_AT)))
