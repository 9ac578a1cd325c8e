"""Receipts taken one by one prove the same as a plain count over all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from observe.lag.progress import (
    STEP_S,
    STEPS,
    WINDOW_MS,
    Progress,
    Rolling,
    cause_of,
    fate_of,
)
from observe.series.steps import STEP_MS, DestinationStep
from shared.event.record import KafkaPartition
from shared.event.times import DAY_MS
from shared.proof.balance import Balance
from shared.proof.last_answer import FailedTry
from shared.proof.log_buckets import LogBuckets
from shared.proof.overview import Quantiles, RecentOutcomes
from shared.proof.receipt import Receipt, ReceiptOutcome
from tests.support.suite import samples

TOPIC = "hifi.stream.orders"
WHERE = KafkaPartition(TOPIC, 0)
DELIVERED, WAITING, DEAD = (
    ReceiptOutcome.DELIVERED,
    ReceiptOutcome.WAITING,
    ReceiptOutcome.DEAD,
)
END = 30


def a_receipt(
    outcome: ReceiptOutcome, first: int, end: int, reason: str = "", redrives: int = 0
) -> Receipt:
    return samples.a_receipt(
        outcome,
        (first, end),
        reason=reason,
        started_at_ms=1_000,
        ended_at_ms=1_250,
        redrive_count=redrives,
        out_from_event=samples.log_buckets([300]).to_list(),
        out_from_accepted=samples.log_buckets([200]).to_list(),
        in_from_accepted=samples.log_buckets([50]).to_list(),
    )


def progress_of(*receipts: Receipt) -> Progress:
    progress = Progress("orders/shop")
    for receipt in receipts:
        progress.take(receipt, now_ms=2_000)
    return progress


receipts = st.lists(
    st.tuples(
        st.sampled_from(ReceiptOutcome),
        st.integers(0, END - 1),
        st.integers(1, 9),
        st.integers(0, 2),
    ).map(
        lambda drawn: a_receipt(
            drawn[0], drawn[1], min(END, drawn[1] + drawn[2]), redrives=drawn[3]
        )
    ),
    max_size=25,
)


@given(receipts, st.integers(1, 2))
def test_receipts_that_come_again_change_nothing(drawn: list[Receipt], times: int) -> None:
    progress = progress_of(*drawn * times)
    books = progress.balance({WHERE: (0, END)})
    assert books == progress_of(*drawn).balance({WHERE: (0, END)})
    assert sum(progress.waiting_by_cause().values()) == books.waiting


@given(receipts, st.integers(0, END))
def test_what_has_no_outcome_is_on_its_way_from_the_lanes_position_on(
    drawn: list[Receipt], position: int
) -> None:
    known = {o for one in drawn for o in range(one.covered[0].first, one.covered[0].end)}
    progress = progress_of(*drawn)
    progress.reached({WHERE: position})
    balance = progress.balance({WHERE: (0, END)})
    assert balance.unaccounted == sum(o not in known for o in range(position))
    assert balance.queued == sum(o not in known for o in range(position, END))


def test_another_destinations_receipt_is_a_mistake_of_ours() -> None:
    other = replace(a_receipt(DELIVERED, 0, 1), destination_id="orders/other")
    with pytest.raises(AssertionError, match="another destination"):
        progress_of(other)


def test_what_a_person_sends_again_waits_again_and_is_not_old() -> None:
    log = {WHERE: (0, 10)}
    progress = progress_of(a_receipt(DELIVERED, 0, 4), a_receipt(DEAD, 4, 6))
    assert progress.balance(log) == Balance(10, 4, 0, 2, 4, 0)
    progress.take(a_receipt(WAITING, 4, 6, "redriven", redrives=1), now_ms=2_000)
    assert progress.balance(log) == Balance(10, 4, 2, 0, 4, 0)
    assert progress.waiting_by_cause() == {"failed attempt": 2}
    assert list(progress.oldest_open(log)) == [(TOPIC, 0, 6)]
    progress.take(a_receipt(DEAD, 4, 5, redrives=1), now_ms=2_000)
    progress.take(a_receipt(DELIVERED, 5, 10, redrives=1), now_ms=2_000)
    assert progress.balance(log) == Balance(10, 9, 0, 1, 0, 0)


def test_a_lane_that_never_spoke_is_believed_to_be_at_its_last_outcome() -> None:
    balance = progress_of(a_receipt(DELIVERED, 5, 10)).balance({WHERE: (0, 12)})
    assert (balance.unaccounted, balance.queued) == (5, 2)


def test_what_is_delivered_is_kept_as_a_count() -> None:
    progress = progress_of(
        *(a_receipt(DELIVERED, n, n + 1) for n in range(0, 100, 2)),
        a_receipt(WAITING, 1, 2),
        *(a_receipt(DEAD, n, n + 1) for n in range(1, 100, 2)),
    )
    _, outcomes = progress._outcomes[WHERE]
    assert (outcomes.base, len(outcomes.dead)) == (100, 50)
    assert not len(outcomes.delivered)
    assert not len(outcomes.waiting)
    assert progress.balance({WHERE: (0, 100)}) == Balance(100, 50, 0, 50, 0, 0)


def test_a_log_that_begins_later_is_counted_from_there() -> None:
    progress = Progress("orders/shop")
    progress.begin({WHERE: (1_000, 1_000)})
    # The receipt is so old that other receipts may have been deleted.
    progress.take(a_receipt(DELIVERED, 0, 10), now_ms=14 * DAY_MS)
    progress.take(a_receipt(DELIVERED, 990, 1_010), now_ms=14 * DAY_MS)
    balance = progress.balance({WHERE: (1_000, 1_020)})
    assert (balance.acked, balance.delivered, balance.queued) == (20, 10, 10)
    assert list(progress.oldest_open({WHERE: (1_000, 1_020)})) == [(TOPIC, 0, 1_010)]
    assert list(progress.oldest_open({WHERE: (1_000, 1_010)})) == []


def test_what_kafka_deleted_before_its_lane_came_to_it_is_unaccounted() -> None:
    """A new count, as `hifi status` makes it, finds a log that begins after its lane's position."""
    log = {WHERE: (1_000, 1_020)}
    still = Progress("orders/shop")
    still.begin(log)
    still.reached({WHERE: 900, KafkaPartition("hifi.retry.30s", 0): 5})
    assert still.balance(log) == Balance(120, 0, 0, 0, 20, 100)
    # The events stay unaccounted when the lane has moved past them.
    moved = Progress("orders/shop")
    moved.begin(log)
    moved.take(a_receipt(DELIVERED, 880, 900), now_ms=0)
    moved.take(a_receipt(DELIVERED, 1_000, 1_010), now_ms=0)
    moved.reached({WHERE: 1_010})
    assert moved.balance(log) == Balance(140, 30, 0, 0, 10, 100)
    # An event that is once counted as unaccounted stays so, even if older receipts arrive.
    moved.take(replace(a_receipt(DELIVERED, 1, 2), is_retry=True), now_ms=0)
    moved.take(a_receipt(DELIVERED, 10, 20), now_ms=0)
    assert moved.balance(log) == Balance(140, 30, 0, 0, 10, 100)


def test_where_a_lane_is_may_be_known_when_much_is_settled_already() -> None:
    log = {WHERE: (1_000, 1_020)}
    late = Progress("orders/shop")
    late.begin(log)
    late.take(a_receipt(DELIVERED, 1_000, 1_005), now_ms=14 * DAY_MS)
    late.take(a_receipt(DEAD, 1_005, 1_010), now_ms=14 * DAY_MS)
    late.reached({WHERE: 900})
    assert late.balance(log) == Balance(120, 5, 0, 5, 10, 100)


def test_one_that_has_not_begun_owes_nothing_that_was_deleted_before() -> None:
    log = {WHERE: (1_000, 1_020)}
    new = Progress("orders/shop")
    new.begin(log)
    new.reached({WHERE: 0})
    assert new.balance(log) == Balance(20, 0, 0, 0, 20, 0)


def test_one_that_starts_late_owes_nothing_of_before_it_began() -> None:
    log = {WHERE: (0, 100)}
    late = Progress("orders/shop", starts_late=True)
    late.begin(log)
    assert late.balance(log) == Balance(), "the lane has not begun"
    late.reached({WHERE: 90})
    assert late.balance(log) == Balance(10, 0, 0, 0, 10, 0)
    # If a lane is older than the count, its first receipt shows where it began.
    late.take(a_receipt(DELIVERED, 60, 90), now_ms=0)
    assert late.balance(log) == Balance(40, 30, 0, 0, 10, 0)
    assert late.balance({WHERE: (0, 103)}) == Balance(43, 30, 0, 0, 13, 0)
    # Events that the lane passes without an outcome are missing, as usual.
    late.reached({WHERE: 95})
    assert late.balance(log) == Balance(40, 30, 0, 0, 5, 5)
    assert [place.offset for place in late.oldest_open(log)] == [90]


def test_what_an_archive_has_is_pending_from_where_its_reader_is() -> None:
    log = {WHERE: (1_000, 1_020)}
    reader = Progress("orders/pipeline:p", starts_late=True, reads_archives=True)
    reader.begin(log)
    assert reader.balance(log) == Balance(), "the lane has not begun"
    reader.reached({WHERE: 900})
    assert reader.balance(log) == Balance(120, 0, 0, 0, 120, 0)
    # The events are as old as the archive, but the reader's first receipt shows where it began.
    old = replace(a_receipt(DELIVERED, 900, 950), destination_id="orders/pipeline:p")
    late = Progress("orders/pipeline:p", starts_late=True, reads_archives=True)
    late.begin(log)
    late.take(replace(old, ended_at_ms=20 * DAY_MS), now_ms=20 * DAY_MS)
    late.reached({WHERE: 950})
    assert late.balance(log) == Balance(120, 50, 0, 0, 70, 0)
    # Events that the reader has passed without an outcome are missing, wherever it began.
    late.reached({WHERE: 960})
    assert late.balance(log) == Balance(120, 50, 0, 0, 60, 10)


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("status_429", "rate-limited"),
        ("rate_limited", "rate-limited"),
        ("breaker_open", "breaker open"),
        ("paused", "parked"),
        ("held", "parked"),
        ("proxy_failed", "parked"),
        ("status_503", "failed attempt"),
        ("timeout", "failed attempt"),
    ],
)
def test_each_reason_is_one_of_four_words(reason: str, word: str) -> None:
    assert cause_of(reason) == word


def test_the_newest_reason_for_waiting_counts_and_the_delivered_wait_no_more() -> None:
    progress = progress_of(
        a_receipt(WAITING, 0, 10, "status_503"),
        a_receipt(WAITING, 5, 12, "status_429"),
        a_receipt(DELIVERED, 2, 4),
    )
    assert progress.waiting_by_cause() == {"failed attempt": 3, "rate-limited": 7}
    progress.take(a_receipt(DELIVERED, 5, 12), now_ms=0)
    assert progress.waiting_by_cause() == {"failed attempt": 3}


def test_lags_of_delivery_and_retrier_are_kept_apart_and_only_delivered_ones_go_out() -> None:
    progress = progress_of(
        a_receipt(DELIVERED, 0, 1),
        a_receipt(WAITING, 1, 2),
        replace(a_receipt(DELIVERED, 1, 2), is_retry=True),
    )
    assert progress.heard_at_ms == 2_000
    for lags, taken in ((progress.delivery, 2), (progress.retrier, 1)):
        assert lags.in_from_accepted.read(now_ms=2_000).count == taken
        assert lags.process.read(now_ms=2_000).mean_ms == 250
        assert lags.out_from_accepted.read(now_ms=2_000).count == 1
        assert lags.out_from_event.read(now_ms=2_000).count == 1


def test_a_receipt_of_long_ago_counts_and_tells_nothing_of_the_last_minutes() -> None:
    progress = Progress("orders/shop")
    progress.take(a_receipt(DELIVERED, 0, 1), now_ms=1_250 + WINDOW_MS)
    assert progress.balance({WHERE: (0, 1)}) == Balance(1, 1, 0, 0, 0, 0)
    assert progress.delivery.process.read(now_ms=1_250).count == 0
    progress.take(a_receipt(DELIVERED, 0, 1), now_ms=1_249 + WINDOW_MS)
    assert progress.delivery.process.read(now_ms=1_250).count == 1


@pytest.mark.parametrize(
    ("outcome", "reason", "fate"),
    [
        (DELIVERED, "status_200", "delivered"),
        (DELIVERED, "filtered", ""),
        (DEAD, "status_401", "refused"),
        (DEAD, "asked_disable", "refused"),
        (DEAD, "policy_blocked", "refused"),
        (DEAD, "retries_exhausted", "failed"),
        (DEAD, "destination_gone", ""),
        (WAITING, "status_503", "failed"),
        (WAITING, "breaker_open", "failed"),
        (WAITING, "status_429", "rate_limited"),
        (WAITING, "token_unavailable", "failed"),
        (WAITING, "proxy_failed", "failed"),
        (WAITING, "budget_used_up", ""),
        (WAITING, "paused", ""),
    ],
)
def test_each_outcome_says_something_of_its_destination_or_nothing(
    outcome: ReceiptOutcome, reason: str, fate: str
) -> None:
    assert fate_of(a_receipt(outcome, 0, 1, reason)) == fate


def test_outcomes_of_late_are_counted_and_the_newest_by_themselves() -> None:
    progress = Progress("orders/shop")
    for at_ms, receipt in (
        (1_000, a_receipt(DEAD, 0, 4, "status_401")),
        (280_000, a_receipt(DELIVERED, 4, 7)),
        (290_000, a_receipt(WAITING, 7, 8, "paused")),
    ):
        progress.take(replace(receipt, ended_at_ms=at_ms), now_ms=at_ms)
    recent = progress.recent
    assert recent.read(now_ms=290_000) == RecentOutcomes(delivered=3, refused=4)
    assert recent.read(now_ms=290_000, span_ms=30_000) == RecentOutcomes(delivered=3)
    assert recent.read(now_ms=310_000) == RecentOutcomes(delivered=3)
    assert recent.read(now_ms=900_000).total == 0
    # Outcomes that are too old are dropped.
    assert recent.read(now_ms=290_000).total == 0


def test_the_past_falls_out_of_a_rolling_window() -> None:
    rolling = Rolling()
    for minute in range(30):
        rolling.add(100, 2, now_ms=minute * 60_000)
    now_ms = 29 * 60_000
    assert rolling.read(now_ms=now_ms).count == 2 * STEPS * STEP_S // 60
    assert Quantiles.of(rolling.read(now_ms=now_ms + STEPS * STEP_S * 1000)) is None


def test_a_step_says_what_became_of_events_and_requests_and_how_late_they_were() -> None:
    at_ms = 100 * STEP_MS
    taken = replace(a_receipt(DELIVERED, 0, 4, "status_200"), ended_at_ms=at_ms, batch_id="b-1")
    busy = replace(a_receipt(WAITING, 4, 6, "status_503"), ended_at_ms=at_ms, batch_id="b-2",
                   failed_tries=(FailedTry(at_ms, "status_503", 5, 503, ""),))  # fmt: skip
    progress = Progress("orders/shop")
    for receipt in (taken, busy):
        progress.take(receipt, now_ms=at_ms)
    step, lags = progress.ended(100)
    assert (step.delivered, step.failed, step.taken, step.broken) == (4, 2, 1, 1)
    assert lags.quantile(0.95) == pytest.approx(200, rel=0.02)
    assert progress.ended(99) == (DestinationStep(10), LogBuckets())
    # Only the last minutes are kept, whatever arrives.
    for later in range(101, 160):
        late = replace(taken, ended_at_ms=later * STEP_MS, batch_id=f"b-{later}")
        progress.take(late, now_ms=later * STEP_MS)
    assert progress.ended(100)[1] == LogBuckets()
    assert progress.ended(159)[1] != LogBuckets()
