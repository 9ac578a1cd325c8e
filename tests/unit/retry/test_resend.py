"""Records of an event that somebody resends after it has arrived."""

from observe.lag.progress import Progress
from shared.event.envelope import Envelope, open_retry_record
from shared.event.record import KafkaPartition, Origin, RecordIn
from shared.event.topics import RECEIPTS, retry_topic
from shared.proof.balance import Balance
from shared.proof.receipt import ReceiptOutcome
from shared.retry.resend import RESENT_REASON, resent_rows
from shared.retry.schedule import RetrySchedule
from tests.support.suite.samples import NOW_MS, a_receipt, an_envelope, receipt_of

SCHEDULE = RetrySchedule()


def test_it_begins_anew_in_the_first_tier_and_says_so_to_the_destination() -> None:
    event = an_envelope(3)
    waits, told = resent_rows(
        event,
        "orders/shop",
        schedule=SCHEDULE,
        resend_id="r-1",
        restore_id="spring",
        now_ms=NOW_MS,
    )
    assert (waits.topic, waits.value) == (retry_topic("30s", is_parked=True), event.value)
    record = RecordIn(Origin(waits.topic, 0, 0), NOW_MS, waits.key, waits.value, waits.headers)
    opened = open_retry_record(record)
    assert isinstance(opened, Envelope)
    destination, history = opened.travel
    assert (destination, opened.event_id, opened.origin) == ("orders/shop", "evt-3", event.origin)
    # The record has the labels of a replay's requests, and of a possible repeat.
    assert (history.replay_id, history.restore_id, history.is_ambiguous) == ("r-1", "spring", True)
    assert (history.attempt_count, history.redrive_count) == (0, 0)
    assert history.deadline_at_ms == NOW_MS + round(1000 * SCHEDULE.deadline_s)
    receipt = receipt_of(told.value)
    assert (receipt.outcome, receipt.reason) == (ReceiptOutcome.WAITING, RESENT_REASON)


def test_in_the_books_it_stays_delivered() -> None:
    event = an_envelope(0)
    log = {KafkaPartition(event.origin.topic, event.origin.partition): (0, 1)}
    progress = Progress("orders/shop")
    delivered = a_receipt(ReceiptOutcome.DELIVERED, (0, 1))
    rows = resent_rows(event, "orders/shop", schedule=SCHEDULE, resend_id="r", now_ms=NOW_MS)
    (told,) = (receipt_of(row.value) for row in rows if row.topic == RECEIPTS)
    progress.take(delivered, now_ms=0)
    assert progress.balance(log) == Balance(1, 1, 0, 0, 0, 0)
    progress.take(told, now_ms=0)
    assert progress.balance(log) == Balance(1, 1, 0, 0, 0, 0)
