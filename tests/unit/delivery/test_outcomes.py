"""The rows of unsent events: each event has its receipt, and no receipt is too large."""

from dataclasses import replace

from delivery.batches import TriedEvent
from delivery.opening import OpenedRows
from delivery.outcomes import outcomes_of_unsent
from shared.event.envelope import MalformedRecord
from shared.event.record import Origin, RecordIn
from shared.event.topics import DEAD, RECEIPTS, retry_topic
from shared.proof.intervals import Offsets
from shared.proof.receipt import ReceiptOutcome
from shared.retry.decision import DESTINATION_GONE, FILTERED, DeadLetter, Hop, Success
from shared.retry.schedule import Tier
from tests.support.suite.samples import NOW_MS, a_history, an_envelope, receipt_of

TO = "orders/shop"


def test_scattered_events_share_receipts_that_kafka_takes() -> None:
    topic = "hifi.stream." + "n" * 237
    history = a_history(attempt_count=1)
    opened = OpenedRows(first=None)
    for offset in range(0, 5_000, 2):
        envelope = replace(
            an_envelope(offset), origin=Origin(topic, 0, 10**15 + offset), history=history
        )
        opened.keep(TO, TriedEvent(envelope, history), DeadLetter(DESTINATION_GONE, history))
    rows = outcomes_of_unsent(opened, at_ms=NOW_MS, read_at=None)
    assert sum(row.topic == DEAD for row in rows) == 2_500
    lines = [row.value for row in rows if row.topic == RECEIPTS]
    receipts = [receipt_of(line) for line in lines]
    assert [receipt.event_count for receipt in receipts] == [1_000, 1_000, 500]
    assert {receipt.outcome for receipt in receipts} == {ReceiptOutcome.DEAD}
    covered = Offsets.of((part.first, part.end) for each in receipts for part in each.covered)
    assert len(covered) == 2_500
    assert max(map(len, lines)) < 500_000


def test_what_is_not_sent_is_kept_where_its_decision_says() -> None:
    history = a_history(attempt_count=1)
    opened = OpenedRows(first=None)
    opened.malformed.append(MalformedRecord(RecordIn(Origin("t", 0, 0), 0, None, b"", ()), "odd"))
    opened.keep(TO, TriedEvent(an_envelope(0), history), Success(FILTERED))
    waiting = replace(an_envelope(1), history=history)
    opened.keep(TO, TriedEvent(waiting, history), Hop(Tier("5m", 300.0), history))
    rows = outcomes_of_unsent(opened, at_ms=NOW_MS, read_at=None)
    assert [row.topic for row in rows] == [DEAD, retry_topic("5m", is_parked=True), RECEIPTS]
    # An event that only changes its tier already has a receipt that says so.
    receipt = receipt_of(rows[-1].value)
    assert (receipt.event_count, receipt.reason) == (1, FILTERED)
