"""Makes streams with a known history: written to a real Kafka, with chosen events deleted.

A history is what gateway, delivery and retrier would have written: the log, the ledger, receipts,
retry records, dead letters, positions; with duplicates, restarts, retries and late events among
them. To delete an event at a stage, the record that the stage would have written is left out.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from shared.event.envelope import Envelope, History, event_headers
from shared.event.record import KafkaPartition, Origin, Position, RecordOut
from shared.event.topics import ACKED, stream_topic
from shared.proof.acked import AckedRow, AckedSlice, audited_minute, runs_of
from shared.proof.overview import Stage
from shared.proof.receipt import Receipt, ReceiptOutcome, facts_of, make_receipt
from shared.retry.decision import DeadLetter, RetryLater
from shared.retry.routing import route, route_receipt
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka.clients import running
from shared.runtime.kafka.lane_positions import LaneGroups

PARTITIONS = 2
STAGES = (Stage.QUEUE, Stage.DELIVERY, Stage.RETRY_TIER, Stage.RETRIER, Stage.DEAD_LETTERS)
_TIERS = {tier.name: tier for tier in RetrySchedule().tiers}
_NOTE = "status_503"
# In every third stream a gateway was killed, which lost a sixth of its ledger.
_KILLED_PART, _LOST_ROWS_PART = 0.33, 0.16


@dataclass
class Seed:
    """One stream's history, and the findings that an audit must have."""

    number: int
    stream: str
    base_ms: int
    # Where events are deleted, or None for a clean stream.
    stage: Stage | None
    events: list[Envelope] = field(default_factory=list)
    victims: set[str] = field(default_factory=set)
    # The records to write besides the log: (topic, key, value, headers).
    rows: list[RecordOut] = field(default_factory=list)
    positions: dict[KafkaPartition, int] = field(default_factory=dict)
    # The offsets up to which the log is deleted, by Kafka partition.
    cut: dict[int, int] = field(default_factory=dict)

    @property
    def destination(self) -> str:
        return f"{self.stream}/to"

    def missing_by_minute(self) -> dict[int, set[str]]:
        found: dict[int, set[str]] = {}
        for event in self.events:
            if event.event_id in self.victims:
                minute = audited_minute(event.event_time_ms, event.accepted_at_ms)
                found.setdefault(minute, set()).add(event.event_id)
        return found


def make_seed(number: int, *, base_ms: int, is_clean: bool) -> Seed:
    """Make a history that depends only on the number."""
    dice = random.Random(number * 2 + is_clean)
    name = f"{'clean' if is_clean else 'loss'}-{number}-{base_ms}"
    seed = Seed(number, name, base_ms, None if is_clean else dice.choice(STAGES))
    count = dice.randint(250, 600)
    for at in range(count):
        accepted_at_ms = base_ms + at * dice.choice((0, 40, 90))
        # Most are fresh, some are seconds or minutes late, and some three days.
        late_ms = dice.choice((0, 0, 0, 500, 30_000, 150_000, 3 * 86_400_000))
        partition = at % PARTITIONS
        seed.events.append(
            Envelope(
                origin=Origin(stream_topic(name), partition, at // PARTITIONS),
                value=b"{}",
                key=None,
                stream=name,
                event_id=f"{name}-{at}",
                event_time_ms=accepted_at_ms - late_ms,
                accepted_at_ms=accepted_at_ms,
            )
        )
    if not is_clean:
        _choose_victims(seed, dice)
    _write_ledger(seed, dice)
    _write_outcomes(seed, dice)
    return seed


def _choose_victims(seed: Seed, dice: random.Random) -> None:
    wanted = dice.randint(0, 200)
    if seed.stage is Stage.QUEUE:
        # Kafka deletes unread events from the beginning of a log.
        for partition in range(PARTITIONS):
            ours = [e for e in seed.events if e.origin.partition == partition]
            part = min(len(ours), wanted // PARTITIONS + (wanted % PARTITIONS > partition))
            seed.victims |= {event.event_id for event in ours[:part]}
            seed.cut[partition] = part
    else:
        victims = dice.sample(seed.events, wanted)
        seed.victims = {event.event_id for event in victims}


def _write_ledger(seed: Seed, dice: random.Random) -> None:
    """Write rows of up to 40 events; some streams lack a few, as the gateway was killed."""
    was_killed = seed.stage is not Stage.QUEUE and dice.random() < _KILLED_PART
    for partition in range(PARTITIONS):
        ours = [e for e in seed.events if e.origin.partition == partition]
        at = 0
        while at < len(ours):
            part = ours[at : at + dice.randint(1, 40)]
            at += len(part)
            if was_killed and dice.random() < _LOST_ROWS_PART:
                continue
            minutes = [audited_minute(e.event_time_ms, e.accepted_at_ms) for e in part]
            row = AckedRow(
                topic=part[0].origin.topic,
                partition=partition,
                slices=(
                    AckedSlice(part[0].origin.offset, runs_of(minutes), part[-1].accepted_at_ms),
                ),
                ids=tuple(event.event_id for event in part),
            )
            seed.rows.append(RecordOut(ACKED, seed.stream.encode(), row.to_bytes()))


def _write_outcomes(seed: Seed, dice: random.Random) -> None:
    """Write each batch's end: delivered, retried first, or given up; some are repeated."""
    for partition in range(PARTITIONS):
        ours = [e for e in seed.events if e.origin.partition == partition]
        seed.positions[KafkaPartition(stream_topic(seed.stream), partition)] = len(ours)
        at = 0
        while at < len(ours):
            part = ours[at : at + dice.randint(1, 60)]
            at += len(part)
            fate = (
                {Stage.RETRY_TIER: 1, Stage.RETRIER: 1, Stage.DEAD_LETTERS: 2}.get(
                    seed.stage, dice.randint(0, 2)
                )
                if seed.stage is not None and any(e.event_id in seed.victims for e in part)
                else (dice.randint(0, 2))
            )
            for _ in range(1 + (dice.random() < 0.2)):
                # Written twice: the batch was sent, cut off before its position was written, and
                # sent again.
                _write_fate(seed, part, fate)


def _write_fate(seed: Seed, part: Sequence[Envelope], fate: int) -> None:
    gone = [event for event in part if event.event_id in seed.victims]
    there = [event for event in part if event.event_id not in seed.victims]
    at_delivery = there if seed.stage in {Stage.QUEUE, Stage.DELIVERY} else part
    match fate:
        case 0:
            _receipt(seed, at_delivery, ReceiptOutcome.DELIVERED)
        case 1:
            _receipt(seed, at_delivery, ReceiptOutcome.WAITING)
            written = there if seed.stage is Stage.RETRY_TIER else at_delivery
            for event in written:
                decision = RetryLater(_TIERS["30s"], _history())
                seed.rows.append(route(decision, event, seed.destination, now_ms=seed.base_ms))
            out = there if gone else written
            _receipt(seed, out, ReceiptOutcome.DELIVERED)
        case _:
            _receipt(seed, at_delivery, ReceiptOutcome.DEAD)
            for event in there if seed.stage is Stage.DEAD_LETTERS else at_delivery:
                dead = DeadLetter("status_400", _history())
                seed.rows.append(route(dead, event, seed.destination, now_ms=seed.base_ms))


def _history() -> History:
    return History(1, 0, 0, 10**13, 0, cause=_NOTE)


def _receipt(seed: Seed, events: Sequence[Envelope], outcome: ReceiptOutcome) -> None:
    if not events:
        return
    receipt: Receipt = make_receipt(
        facts_of(events),
        destination_id=seed.destination,
        outcome=outcome,
        reason=_NOTE,
        batch_id="msg",
        attempt=1,
        started_at_ms=seed.base_ms,
        ended_at_ms=seed.base_ms,
    )
    seed.rows.append(route_receipt(receipt))


async def write_seeds(bootstrap_servers: str, seeds: Sequence[Seed]) -> None:
    """Write the histories into Kafka; the streams' topics exist."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, linger_ms=20)
    async with running(producer, bootstrap_servers):
        for seed in seeds:
            for event in seed.events:
                headers = event_headers(
                    event_id=event.event_id,
                    event_time_ms=event.event_time_ms,
                    accepted_at_ms=event.accepted_at_ms,
                )
                await producer.send(
                    event.origin.topic,
                    value=event.value,
                    partition=event.origin.partition,
                    headers=list(headers),
                )
            for row in seed.rows:
                await producer.send(row.topic, row.value, row.key, headers=list(row.headers))
        await producer.flush()
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        cuts = {
            TopicPartition(stream_topic(seed.stream), partition): RecordsToDelete(before_offset=to)
            for seed in seeds
            for partition, to in seed.cut.items()
            if to
        }
        if cuts:
            await admin.delete_records(cuts)
    finally:
        await admin.close()


async def tell_positions(bootstrap_servers: str, seeds: Sequence[Seed], retrier: Position) -> None:
    """Report that lanes have passed everything, and the retrier, too."""
    async with LaneGroups(bootstrap_servers) as groups:
        for seed in seeds:
            await groups.commit(seed.destination, seed.positions)
        if retrier:
            await groups.commit("retrier", retrier)
