"""Events that Kafka no longer has are not lost for a reader of an archive."""

from dataclasses import replace

from observe.audit.books import AuditBooks
from observe.audit.evidence import Claim, Evidence
from observe.audit.findings import World
from observe.audit.minutes import Rules
from shared.event.record import KafkaPartition
from shared.proof.overview import Stage

TOPIC, TO = "hifi.stream.orders", "orders/pipeline:p"
WHERE = KafkaPartition(TOPIC, 0)
M0 = 1_699_999_980_000
HERE = World({TOPIC: [TO]}, {TO: {WHERE: 2}}, {WHERE: (6, 8)}, M0 * 2)


def judged(world: World) -> tuple[dict[Stage, int], int]:
    """Return lost events by stage, and queued ones, of eight events without an outcome."""
    books = AuditBooks()
    books.take(Evidence(claims=[Claim(TOPIC, 0, M0, 0, 8, M0, (0, 0, 0))]))
    (finding,) = books.judge(world, Rules(check_after_ms=0, overdue_ms=60_000), {})
    counts: dict[Stage, int] = {}
    for span in finding.losses:
        counts[span.stage] = counts.get(span.stage, 0) + len(list(span.events()))
    return counts, finding.books.queued


def test_it_is_pending_from_where_its_reader_is() -> None:
    assert judged(HERE) == ({Stage.QUEUE: 6}, 2)
    reading = replace(HERE, archived=frozenset({TO}))
    assert judged(reading) == ({Stage.QUEUE: 2}, 6), "it has passed two without a report"
    # A reader without any position reads what the log has.
    assert judged(replace(reading, positions={})) == ({Stage.QUEUE: 6}, 2)
