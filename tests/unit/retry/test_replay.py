"""A replay in its records: its progress, its next step, and when it counts as another replay."""

import msgspec
import pytest

from shared.event.envelope import event_headers
from shared.event.record import Origin, RecordIn
from shared.event.topics import RECEIPTS, retry_topic, stream_topic
from shared.retry.replay import (
    Replay,
    ReplayOrder,
    ReplayProgress,
    Replays,
    order_row,
    progress_row,
    queued_rows,
    with_replay,
)
from shared.retry.schedule import RetrySchedule
from tests.support.suite.samples import an_envelope

ORDER = ReplayOrder(
    id="spring",
    stream="orders",
    destination="shop",
    tenant="default",
    spans={0: (10, 20), 1: (5, 5), 2: (0, 100)},
    created_at_ms=7,
)
PLACE = ("orders", "spring")


def test_it_is_what_its_records_say_in_any_order() -> None:
    progress = ReplayProgress(at={0: 15}, sent=3)
    known: Replays = {}
    for key, value in (progress_row(ORDER, progress), order_row(ORDER)):
        known = with_replay(known, key, value)
    assert known == {PLACE: Replay(ORDER, progress)}
    assert (ORDER.destination_id, ORDER.count) == ("orders/shop", 110)
    assert ORDER.writer == "hifi-replay-orders/spring"
    gone = with_replay(
        with_replay(known, order_row(ORDER)[0], None), b"progress:orders/spring", None
    )
    assert gone == {PLACE: Replay()}
    with pytest.raises(ValueError, match="not a record of a replay"):
        with_replay({}, b"else:orders/spring", b"{}")


def test_the_kafka_partition_that_is_least_far_goes_on_until_all_are_read() -> None:
    progress = ReplayProgress()
    read: list[tuple[int, int, int]] = []
    while (span := Replay(ORDER, progress).next_span(40)) is not None:
        read.append(span)
        progress = ReplayProgress(at={**progress.at, span[0]: span[2]})
    assert read == [(0, 10, 20), (2, 0, 40), (2, 40, 80), (2, 80, 100)]
    assert Replay(ORDER, progress).read_count == ORDER.count
    assert Replay(ORDER, ReplayProgress(at={0: 15})).next_span(5) == (2, 0, 5)
    nothing = Replay()
    assert (nothing.next_span(5), nothing.read_count, nothing.position) == (None, 0, {})


def test_one_that_runs_is_cancelled_and_one_that_is_over_stays_as_it_is() -> None:
    cancelled = msgspec.structs.replace(ORDER, cancelled_at_ms=9)
    assert Replay(ORDER).state == "running"
    assert Replay(cancelled).state == "cancelled"
    assert Replay(cancelled, ReplayProgress(state="done")).state == "done"


def test_it_takes_what_was_asked_for_and_is_another_one_if_that_differs() -> None:
    event = an_envelope(3)
    assert event.key is not None
    assert ORDER.takes(event)
    for key, event_id, takes in (
        (event.key.decode(), None, True),
        ("other", None, False),
        (None, event.event_id, True),
        (event.key.decode(), "other", False),
    ):
        order = msgspec.structs.replace(ORDER, key=key, event=event_id)
        assert order.takes(event) is takes
        assert not order.is_same_as(ORDER)
    assert msgspec.structs.replace(ORDER, spans={}, created_at_ms=8).is_same_as(ORDER)


def test_events_of_it_are_queued_in_the_first_tier_with_one_sheet_of_receipts() -> None:
    facts = event_headers(event_id="e", event_time_ms=1, accepted_at_ms=2)
    topic = stream_topic("orders")
    records = [RecordIn(Origin(topic, 0, at), 3, b"k", b"{}", facts) for at in (4, 5)]
    schedule = RetrySchedule()
    first, second, sheet = queued_rows(ORDER, records, schedule=schedule, now_ms=9)
    tier = retry_topic(schedule.tiers[0].name, is_parked=True)
    assert (first.topic, second.topic, sheet.topic) == (tier, tier, RECEIPTS)
    assert ("replay-id", b"spring") in first.headers
    assert sheet.value.count(b'"waiting"') == 2
    assert queued_rows(ORDER, [], schedule=schedule, now_ms=9) == []
