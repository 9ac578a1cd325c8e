"""A trail keeps the records about its events, and no others of those read."""

from dataclasses import replace

from shared.event.record import Origin, RecordIn, RecordOut
from shared.event.topics import DEAD
from shared.proof.receipt import Receipt, ReceiptOutcome, facts_of, make_receipt
from shared.proof.trail import Trail
from shared.retry.decision import DeadLetter, RetryLater
from shared.retry.routing import route, route_receipt
from shared.retry.schedule import RetrySchedule
from tests.support.suite.samples import NOW_MS, a_history, an_envelope

TIER = RetrySchedule().tiers[0]
ORIGINS = [an_envelope(offset).origin for offset in (3, 4, 9)]


def a_receipt(
    *offsets: int,
    outcome: ReceiptOutcome = ReceiptOutcome.DELIVERED,
    destination_id: str = "orders/crm",
    started_at_ms: int = NOW_MS,
) -> Receipt:
    return make_receipt(
        facts_of([an_envelope(offset) for offset in offsets]),
        destination_id=destination_id,
        outcome=outcome,
        reason="",
        batch_id="b",
        attempt=1,
        started_at_ms=started_at_ms,
        ended_at_ms=started_at_ms + 10,
    )


def as_read(row: RecordOut, *, offset: int = 0) -> RecordIn:
    return RecordIn(Origin(row.topic, 1, offset), NOW_MS + 5, row.key, row.value, row.headers)


def test_receipts_of_other_events_and_what_is_none_are_passed_over() -> None:
    trail = Trail.of(ORIGINS)
    ours, theirs = a_receipt(1, 2, 3), a_receipt(5, 6)
    torn = RecordOut("x", None, b"no JSON of hifi.stream.orders")
    lines = b"\n".join([torn.value, route_receipt(ours).value, route_receipt(theirs).value])
    trail.take_sheet(as_read(replace(torn, value=lines)))
    trail.take_sheet(as_read(torn))
    trail.take_sheet(as_read(RecordOut("x", None, b"hifi.stream.others")))
    assert trail.receipts == [ours]
    assert list(trail.named(ours)) == [(("hifi.stream.orders", 0), 3, 4)]


def test_records_are_kept_without_their_bytes_when_they_are_of_these_events() -> None:
    trail = Trail.of(ORIGINS)
    ours, theirs = an_envelope(4), an_envelope(5)
    elsewhere = replace(an_envelope(4), origin=Origin("hifi.stream.orders", 7, 4))
    for envelope in (ours, theirs, elsewhere):
        later = route(RetryLater(TIER, a_history()), envelope, "orders/crm", now_ms=NOW_MS)
        trail.take_retry(as_read(later, offset=8))
        dead = route(DeadLetter("status_400", a_history()), envelope, "orders/crm", now_ms=NOW_MS)
        trail.take_dead(as_read(dead))
    lost = [pair for pair in later.headers if pair[0] != "destination"]
    trail.take_retry(as_read(replace(later, headers=tuple(lost))))
    trail.take_dead(as_read(RecordOut(DEAD, None, b"{}")))
    (waits,), (dead_one,) = trail.retries, trail.dead
    assert (waits.envelope.origin, waits.envelope.value) == (ours.origin, b"")
    assert (waits.place, waits.stored_at_ms) == (Origin("hifi.retry.30s", 1, 8), NOW_MS + 5)
    assert dead_one.headers["reason"] == b"status_400"


def test_it_is_known_when_nothing_more_is_to_come() -> None:
    trail = Trail.of(ORIGINS)
    trail.take_sheet(as_read(route_receipt(a_receipt(3, 4))))
    troubles_ms = [trail.first_trouble_ms]
    assert not trail.is_delivered_to(["orders/crm"])
    trail.take_sheet(as_read(route_receipt(a_receipt(9, outcome=ReceiptOutcome.WAITING))))
    assert not trail.is_delivered_to(["orders/crm"])
    assert [*troubles_ms, trail.first_trouble_ms] == [None, NOW_MS]
    trail.take_sheet(as_read(route_receipt(a_receipt(8, 9, 10))))
    assert trail.is_delivered_to(["orders/crm"])
    assert not trail.is_delivered_to(["orders/crm", "orders/erp"])


def test_a_destination_that_is_gone_may_still_be_told_of_to_the_end() -> None:
    trail = Trail.of(ORIGINS)
    trail.take_sheet(as_read(route_receipt(a_receipt(3, 4, destination_id="orders/gone"))))
    trail.take_sheet(as_read(route_receipt(a_receipt(5, destination_id="orders/other"))))
    trail.take_sheet(as_read(route_receipt(a_receipt(3, 4, 9))))
    assert not trail.is_delivered_to(["orders/crm"])
    trail.take_sheet(as_read(route_receipt(a_receipt(9, destination_id="orders/gone"))))
    assert trail.is_delivered_to(["orders/crm"])


def test_one_event_has_ended_when_each_destination_has_it_or_has_given_it_up() -> None:
    trail = Trail.of(ORIGINS[:1])
    trail.take_sheet(as_read(route_receipt(a_receipt(3, outcome=ReceiptOutcome.WAITING))))
    assert not trail.has_ended_at(["orders/crm"])
    trail.take_sheet(as_read(route_receipt(a_receipt(3, outcome=ReceiptOutcome.DEAD))))
    assert trail.has_ended_at(["orders/crm"])
    assert not trail.has_ended_at(["orders/crm", "orders/erp"])
    waits = a_receipt(3, outcome=ReceiptOutcome.WAITING, destination_id="orders/gone")
    trail.take_sheet(as_read(route_receipt(waits)))
    assert not trail.has_ended_at(["orders/crm"])
    # Nothing can be said about a stream without a destination.
    assert not Trail.of(ORIGINS[:1]).has_ended_at([])


def test_one_event_has_a_record_for_each_time_that_it_was_not_delivered() -> None:
    trail = Trail.of(ORIGINS[:1])
    assert trail.has_kept()
    for outcome in (ReceiptOutcome.WAITING, ReceiptOutcome.DEAD):
        trail.take_sheet(as_read(route_receipt(a_receipt(3, outcome=outcome))))
    rows = [
        as_read(route(decision, an_envelope(3), "orders/crm", now_ms=NOW_MS), offset=8)
        for decision in (RetryLater(TIER, a_history()), DeadLetter("status_400", a_history()))
    ]
    assert not trail.has_kept()
    trail.take_retry(rows[0])
    assert not trail.has_kept()
    trail.take_dead(rows[1])
    assert trail.has_kept()


def test_the_first_trouble_is_the_earliest() -> None:
    trail = Trail.of(ORIGINS)
    for started_ms in (NOW_MS + 50, NOW_MS + 20, NOW_MS + 90):
        receipt = a_receipt(3, outcome=ReceiptOutcome.DEAD, started_at_ms=started_ms)
        trail.take_sheet(as_read(route_receipt(receipt)))
    assert trail.first_trouble_ms == NOW_MS + 20
