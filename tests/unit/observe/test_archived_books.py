"""Events that Kafka no longer has are not lost for a reader of an archive."""

from dataclasses import replace

from observe.audit.books import AuditBooks
from observe.audit.evidence import Claim, Evidence
from observe.audit.findings import World
from observe.audit.minutes import Rules
from shared.event.record import KafkaPartition
from shared.proof.overview import Node

TOPIC, TO = "hifi.stream.orders", "orders/pipeline:p"
WHERE = KafkaPartition(TOPIC, 0)
M0 = 1_699_999_980_000
HERE = World({TOPIC: [TO]}, {TO: {WHERE: 2}}, {WHERE: (6, 8)}, M0 * 2)


def judged(world: World) -> tuple[dict[Node, int], int]:
    """The lost events by node, and the pending ones, of eight events without an outcome."""
    books = AuditBooks()
    books.take(Evidence(claims=[Claim(TOPIC, 0, M0, 0, 8, M0, (0, 0, 0))]))
    (finding,) = books.judge(world, Rules(settle_ms=0, blind_ms=60_000), {})
    counts: dict[Node, int] = {}
    for span in finding.losses:
        counts[span.node] = counts.get(span.node, 0) + len(list(span.events()))
    return counts, finding.books.pending


def test_it_is_pending_from_where_its_reader_is() -> None:
    assert judged(HERE) == ({Node.KAFKA: 6}, 2)
    reading = replace(HERE, archived=frozenset({TO}))
    assert judged(reading) == ({Node.KAFKA: 2}, 6), "it has passed two without a word"
    # A reader that has not begun anywhere reads what the log has.
    assert judged(replace(reading, positions={})) == ({Node.KAFKA: 6}, 2)
