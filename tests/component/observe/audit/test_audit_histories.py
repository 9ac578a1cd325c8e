"""The audit's arithmetic over the histories of audit_seeds.py, without Kafka and Spark."""

import msgspec
import pytest

from observe.audit.books import AuditBooks
from observe.audit.evidence import Claim, Evidence
from observe.audit.findings import AuditFinding, World
from observe.audit.ledger import Ledger
from observe.audit.minutes import DEAD, PASSED, WRITTEN, Rules
from shared.event.record import KafkaPartition
from shared.event.topics import ACKED, RECEIPTS, stream_topic
from shared.event.topics import DEAD as DEAD_LETTERS
from shared.proof.acked import WILD, audited_minute
from tests.support.observe.audit_seeds import PARTITIONS, Seed, make_seed

BASE_MS = 1_700_000_000_000
AT_ONCE = Rules(check_after_ms=0, overdue_ms=600_000)


def evidence_of(seed: Seed) -> Evidence:
    found = Evidence()
    for at, row in enumerate(seed.rows):
        if row.topic == ACKED:
            found.take_ledger(row.value, partition=0, offset=at)
        elif row.topic == RECEIPTS:
            found.take_sheet(row.value)
        elif row.topic == DEAD_LETTERS:
            found.take_record(DEAD, row.headers)
        else:
            found.take_record(WRITTEN, row.headers)
            found.take_record(PASSED, row.headers)
    return msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Evidence)


def judged(seed: Seed) -> list[AuditFinding]:
    """Judge a seed as a run does, and read events that no ledger names from the log."""
    topic = stream_topic(seed.stream)
    by_place = {(e.origin.partition, e.origin.offset): e for e in seed.events}
    log = {
        KafkaPartition(topic, number): (
            seed.cut.get(number, 0),
            sum(p == number for p, _ in by_place),
        )
        for number in range(PARTITIONS)
    }
    books = AuditBooks()
    books.take(evidence_of(seed))
    for (_, number), low, high in list(books.unclaimed(log, back_max=100_000, begins={})):
        for offset in range(low, high):
            event = by_place[number, offset]
            minute = audited_minute(event.event_time_ms, event.accepted_at_ms)
            claim = Claim(
                topic, number, minute, offset, offset + 1, event.accepted_at_ms, (-1, 0, 0)
            )
            books.ledgers.setdefault(topic, Ledger()).enter(claim, is_from_log=True)
    destinations = {topic: [seed.destination]}
    positions = {seed.destination: seed.positions}
    world = World(destinations, positions, log, BASE_MS + 3_600_000)
    return books.judge(world, AT_ONCE, {})


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("number", range(1_000, 1_025))
def test_every_deleted_event_is_found_in_its_minute_and_at_its_node(
    number: int,
    is_clean: bool,  # noqa: FBT001 - a table
) -> None:
    seed = make_seed(number, base_ms=BASE_MS, is_clean=is_clean)
    names = {(e.origin.partition, e.origin.offset): e.event_id for e in seed.events}
    findings = judged(seed)
    found: dict[int, set[str]] = {}
    stages = set()
    for finding in findings:
        minute = WILD if finding.books.minute_ms is None else finding.books.minute_ms
        for loss in (loss for span in finding.losses for loss in span.events()):
            found.setdefault(minute, set()).add(names[loss.partition, loss.offset])
            stages.add(loss.stage)
    assert found == seed.missing_by_minute()
    assert stages == ({seed.stage} if seed.victims else set())
    assert sum(finding.books.acked for finding in findings) == len(seed.events)
