"""The audit finds exactly the deleted events, by id, minute and stage: real Kafka and Spark.

Each seed is a stream of its own; one Spark session audits them all at once.
"""

import asyncio
import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from deploy.cli.archive.put_back import nothing_yet
from deploy.local.cluster import Cluster
from observe.audit import loop, spark_job
from observe.audit.audit_run import Audit, AuditOutcome
from observe.audit.kafka import audit_kafka
from observe.audit.loop import audit_spark
from observe.audit.minutes import Rules
from observe.audit.signing import Signer
from observe.audit.spark_job import AuditReads
from shared.event.derived import RESTORED
from shared.event.envelope import event_headers
from shared.event.record import KafkaPartition
from shared.event.times import MINUTE_MS, minute_of
from shared.event.topics import (
    ACKED,
    RESTORES,
    fixed_specs,
    restore_writer,
    retry_topic,
    stream_spec,
    stream_topic,
)
from shared.proof.acked import WILD, AckedRow
from shared.proof.archived import ArchiveId
from shared.proof.merkle import merkle_root
from shared.proof.overview import MinuteState, Stage
from shared.proof.statement import SignedStatement
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka.only_writer import only_writer
from shared.runtime.kafka.reader import open_reader
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.observe import memory_files
from tests.support.observe.audit_seeds import (
    PARTITIONS,
    Seed,
    make_seed,
    tell_positions,
    write_seeds,
)
from tests.support.observe.published import proof_of

TIERS = [tier.name for tier in RetrySchedule().tiers]
RULES = Rules(check_after_ms=0, overdue_ms=600_000)
# Twenty minutes ago: every minute is over.
AGE_MS = 20 * 60_000
# A task mostly waits, and no lanes compete for the cores: there are 80 Kafka partitions.
TASKS = 8


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory, no_spark: None) -> Iterator[SparkSession]:
    del no_spark
    with pytest.MonkeyPatch.context() as patch:
        for module in (loop, spark_job):
            patch.setattr(module, "TASK_PLACES", TASKS)
        with audit_spark(tmp_path_factory.mktemp("spark"), None, heap_mb=512) as session:
            yield session


async def prepare(kafka: Cluster, seeds: Sequence[Seed]) -> None:
    specs = [stream_spec(seed.stream, partition_count=PARTITIONS) for seed in seeds]
    async with topic_admin(kafka.bootstrap_servers) as admin:
        await admin.create_missing([*fixed_specs(TIERS), *specs])
    await write_seeds(kafka.bootstrap_servers, seeds)
    async with open_reader(kafka.bootstrap_servers) as reader:
        retrier = await reader.ends([retry_topic(tier) for tier in TIERS])
    async with asyncio.timeout(60):
        while True:
            try:
                await tell_positions(kafka.bootstrap_servers, seeds, retrier)
            except Exception:  # noqa: BLE001 - Kafka makes the groups' topic at the first use
                await asyncio.sleep(0.2)
            else:
                return


async def audited(
    kafka: Cluster,
    spark: SparkSession,
    seeds: Sequence[Seed],
    folder: Path,
    *,
    also: Sequence[str] = (),
) -> tuple[AuditOutcome, list[SignedStatement]]:
    """Run twice with a restart in between, so that memory is saved and read again."""
    statements: list[SignedStatement] = []
    destinations: dict[str, list[str]] = {topic: [] for topic in also}
    destinations |= {stream_topic(seed.stream): [seed.destination] for seed in seeds}
    async with audit_kafka(kafka.bootstrap_servers) as asked:

        async def publish(made: Sequence[SignedStatement]) -> None:
            statements.extend(made)

        for _ in range(2):
            memory = memory_files.load(folder)
            audit = Audit(
                job=AuditReads(spark, kafka.bootstrap_servers),
                kafka=asked,
                memory=memory,
                signer=Signer(folder),
                publish=publish,
                rules=RULES,
                now_ms=lambda: time.time_ns() // 1_000_000,
            )
            outcome = await audit.run(destinations)
            if not _:
                first = outcome
            memory_files.save(memory, folder)
    return first, statements


def check(seed: Seed, outcome: AuditOutcome) -> None:
    """Check that exactly the deleted ids are reported, each in its minute and at its stage."""
    minutes = outcome.minutes[seed.destination]
    found = {
        (WILD if one.minute_ms is None else one.minute_ms): {m.event_id for m in one.missing}
        for one in minutes
        if one.missing
    }
    assert found == seed.missing_by_minute(), f"seed {seed.number} at {seed.stage}"
    assert sum(one.lost_count for one in minutes) == len(seed.victims)
    stages = {missing.stage for one in minutes for missing in one.missing}
    assert stages == ({seed.stage} if seed.victims else set()), f"seed {seed.number}"
    assert sum(one.acked for one in minutes) == len(seed.events)
    for one in minutes:
        expected = MinuteState.LOSS if one.missing else MinuteState.CHECKED
        assert one.state is expected, one
        assert one.acked == one.delivered + one.waiting + one.dead + one.queued + one.lost_count


def run_seeds(kafka: Cluster, spark: SparkSession, folder: Path, numbers: range) -> None:
    base_ms = time.time_ns() // 1_000_000 - AGE_MS
    seeds = [
        make_seed(number, base_ms=base_ms, is_clean=is_clean)
        for number in numbers
        for is_clean in (False, True)
    ]

    async def scenario() -> tuple[AuditOutcome, list[SignedStatement]]:
        await prepare(kafka, seeds)
        return await audited(kafka, spark, seeds, folder)

    outcome, statements = asyncio.run(scenario())
    for seed in seeds:
        check(seed, outcome)
    public_key = Signer(folder).public_key
    assert all(proof_of(one).is_signed(public_key=public_key) for one in statements)
    # Streams of earlier tests get statements, too.
    ours = {seed.stream for seed in seeds}
    first = [one.statement for one in statements if one.statement.revision == 1]
    acked = sum(one.acked for one in first if one.stream in ours)
    assert acked == sum(len(seed.events) for seed in seeds)


def test_deleted_events_are_found_and_no_others(
    kafka: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    run_seeds(kafka, spark, tmp_path, range(20))


def test_an_event_in_whose_place_the_log_has_another_is_named_and_not_delivered(
    kafka: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    base_ms = time.time_ns() // 1_000_000 - AGE_MS
    seed = make_seed(7_700, base_ms=base_ms, is_clean=True)
    at = next(nth for nth, row in enumerate(seed.rows) if row.topic == ACKED)
    told = AckedRow.from_bytes(seed.rows[at].value)
    # The gateway has acknowledged these, so those before them in its queue are stored.
    names = tuple(f"{event_id}-behind" for event_id in told.ids[:3])
    false = dataclasses.replace(told, ids=(*names, *told.ids[3:]))
    seed.rows[at] = dataclasses.replace(seed.rows[at], value=false.to_bytes())

    async def scenario() -> tuple[AuditOutcome, list[SignedStatement]]:
        await prepare(kafka, [seed])
        return await audited(kafka, spark, [seed], tmp_path)

    outcome, statements = asyncio.run(scenario())
    missing = [one for books in outcome.minutes[seed.destination] for one in books.missing]
    assert {one.event_id for one in missing} == set(names)
    assert {one.stage for one in missing} == {Stage.GATEWAY}
    lines = [
        (one.statement, one.statement.destinations["to"])
        for one in statements
        if one.statement.stream == seed.stream
    ]
    assert sum(it.lost.get("gateway", 0) for _, it in lines) == len(names)
    for statement, line in lines:
        assert statement.compared == statement.event_count
        total = line.delivered + line.waiting + line.dead + sum(line.lost.values())
        assert line.due == total == statement.event_count
    assert sum(line.delivered for _, line in lines) <= len(seed.events)


async def put_back(kafka: Cluster, stream: str, base_ms: int, count: int) -> list[list[str]]:
    """Write as a restore does, in transactions; return the ids of each of ten minutes."""
    topic, minutes = stream_topic(stream), [list[str]() for _ in range(10)]
    async with topic_admin(kafka.bootstrap_servers) as admin:
        await admin.create_missing([*fixed_specs(TIERS), stream_spec(stream, partition_count=1)])
    where = {KafkaPartition(topic, 0): 0}
    restored = nothing_yet("spring", ArchiveId("t", "s", "a"), stream, at_ms=base_ms, ends=where)
    async with only_writer(kafka.bootstrap_servers, restore_writer(stream)) as write:
        for first in range(0, count, 2_000):
            rows = []
            for nth in range(first, first + 2_000):
                minute, event_id = nth * len(minutes) // count, f"{stream}-{nth}"
                at_ms = base_ms + minute * MINUTE_MS
                facts = event_headers(event_id=event_id, event_time_ms=at_ms, accepted_at_ms=at_ms)
                rows.append((topic, None, b"{}", (*facts, (RESTORED, b"spring")), 0))
                minutes[minute].append(event_id)
            said = replace(restored, count=first + len(rows))
            await write([*rows, (RESTORES, said.key.encode(), said.to_json(), ())])
    return minutes


def test_more_than_a_history_that_was_put_back_is_stated_and_not_remembered(
    kafka: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    count, stream = 110_000, "spring"
    base_ms = minute_of(time.time_ns() // 1_000_000 - AGE_MS)

    async def scenario() -> tuple[list[list[str]], list[SignedStatement]]:
        minutes = await put_back(kafka, stream, base_ms, count)
        _, statements = await audited(kafka, spark, [], tmp_path, also=[stream_topic(stream)])
        return minutes, statements

    minutes, statements = asyncio.run(scenario())
    said = {
        (one.statement.minute_ms, one.statement.revision, one.statement.acked, one.statement.root)
        for one in statements
        if one.statement.stream == stream
    }
    assert said == {
        (base_ms + nth * MINUTE_MS, 1, count // len(minutes), merkle_root(ids).hex())
        for nth, ids in enumerate(minutes)
    }
    # Their ids alone take three times as much.
    assert len(memory_files.load(tmp_path).to_bytes()) < 500_000


@pytest.mark.long
@pytest.mark.parametrize("first", range(100, 300, 40))
def test_deleted_events_are_found_in_200_histories(
    first: int, kafka: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    run_seeds(kafka, spark, tmp_path, range(first, first + 40))
