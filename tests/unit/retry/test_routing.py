"""Each undelivered event goes to its topic unchanged, under a key that finds it again."""

from dataclasses import replace

import pytest
from hypothesis import given

from observe.lag.progress import Progress
from shared.event.envelope import Envelope, MalformedRecord, open_retry_record
from shared.event.record import KafkaPartition, Origin, RecordIn, RecordOut
from shared.event.topics import retry_key
from shared.proof.receipt import ReceiptOutcome, facts_of, make_receipt
from shared.retry.decision import DeadLetter, Hop, Park, RetryLater, Waiting
from shared.retry.routing import in_sheets, route, route_malformed, route_receipt, route_state
from shared.retry.schedule import SLOW, Tier
from tests.support.suite.samples import NOW_MS, a_history, an_envelope, envelopes, receipt_of

TIER = Tier("5m", 300.0)


def read_back(record: RecordOut) -> Envelope | MalformedRecord:
    return open_retry_record(
        RecordIn(Origin(record.topic, 0, 7), NOW_MS, record.key, record.value, record.headers)
    )


@pytest.mark.parametrize("kind", [RetryLater, Park, Hop])
def test_what_waits_goes_to_its_tier(kind: type[RetryLater | Park | Hop]) -> None:
    waiting: Waiting = kind(TIER, a_history(attempt_count=2))
    record = route(waiting, an_envelope(5), "orders/shop", now_ms=NOW_MS)
    # Events that were not tried now may be many, and wait beside those that were.
    assert record.topic == "hifi.retry.5m" + ("" if kind is RetryLater else ".parked")
    assert record.key == retry_key("orders/shop")
    assert dict(record.headers)["attempt"] == b"2"


def test_what_waits_for_the_lane_of_slow_destinations_is_no_crowd_of_parked_ones() -> None:
    record = route(Hop(SLOW, a_history()), an_envelope(5), "orders/shop", now_ms=NOW_MS)
    assert record.topic == "hifi.retry.slow"


def test_what_is_given_up_goes_to_the_dead_letters() -> None:
    dead = DeadLetter("status_400", a_history(attempt_count=1))
    record = route(dead, an_envelope(5), "orders/shop", now_ms=NOW_MS + 5)
    assert (record.topic, record.key) == ("hifi.dead", b"orders/shop")
    headers = dict(record.headers)
    assert headers["reason"] == b"status_400"
    assert headers["dead-at-ms"] == b"%d" % (NOW_MS + 5)


@given(envelopes)
def test_no_way_changes_an_event_or_forgets_a_fact(envelope: Envelope) -> None:
    destination_id, history = envelope.travel
    for decision in (RetryLater(TIER, history), Park(TIER, history), Hop(TIER, history)):
        assert read_back(route(decision, envelope, destination_id, now_ms=NOW_MS)) == envelope
    dead = DeadLetter("status_400", history)
    assert read_back(route(dead, envelope, destination_id, now_ms=NOW_MS)) == envelope


@pytest.mark.parametrize("key", [None, b"orders/shop:3"])
def test_what_cannot_be_opened_is_kept_as_it_is(key: bytes | None) -> None:
    record = RecordIn(Origin("hifi.retry.30s", 1, 9), NOW_MS, key, b"\xff\x00", (("x", b"y"),))
    opened = open_retry_record(record)
    assert isinstance(opened, MalformedRecord)
    dead = route_malformed(opened, now_ms=NOW_MS)
    assert (dead.topic, dead.key, dead.value) == ("hifi.dead", key, b"\xff\x00")
    assert dead.headers[0] == ("x", b"y")
    assert dict(dead.headers)["reason"] == b"malformed_retry_record"


def test_a_receipt_goes_to_the_receipts_and_proves_what_it_says() -> None:
    receipt = make_receipt(
        facts_of([an_envelope(4), replace(an_envelope(5), event_time_ms=0)]),
        destination_id="orders/shop",
        outcome=ReceiptOutcome.DELIVERED,
        reason="status_200",
        batch_id="msg_1",
        attempt=1,
        started_at_ms=NOW_MS,
        ended_at_ms=NOW_MS,
    )
    record = route_receipt(receipt)
    assert (record.topic, record.key, record.headers) == ("hifi.receipts", b"orders/shop", ())
    progress = Progress("orders/shop")
    progress.take(receipt_of(record.value), now_ms=0)
    assert progress.balance({KafkaPartition("hifi.stream.orders", 0): (4, 6)}).delivered == 2


def test_the_receipts_of_a_destination_share_records_and_nothing_else_does() -> None:
    state = route_state("orders/shop", b"{}")
    dead = RecordOut("hifi.dead", b"orders/shop", b"an event")
    told = [
        RecordOut("hifi.receipts", key, line)
        for key, line in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"))
    ]
    assert in_sheets([told[0], state, told[1], dead, dead, told[2]]) == [
        *(state, dead, dead),
        RecordOut("hifi.receipts", b"a", b"1\n3"),
        RecordOut("hifi.receipts", b"b", b"2"),
    ]


def test_what_is_known_of_a_destination_goes_to_the_state_topic_under_its_name() -> None:
    record = route_state("orders/shop", b"{}")
    assert (record.topic, record.key, record.value) == ("hifi.state", b"orders/shop", b"{}")
