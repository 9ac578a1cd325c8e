"""Dead letters are grouped by reason and answer, and the groups follow the books."""

import time

from hypothesis import given
from hypothesis import strategies as st

from observe.lag.progress import Progress
from shared.event.record import KafkaPartition
from shared.event.times import DAY_MS
from shared.proof.last_answer import DEAD_STEP_MS, FailedTry
from shared.proof.receipt import Receipt, ReceiptOutcome
from tests.support.suite import samples

DEAD, WAITING = ReceiptOutcome.DEAD, ReceiptOutcome.WAITING
WHERE = KafkaPartition("hifi.stream.orders", 0)


def dies(
    first: int,
    end: int,
    text: str = "",
    *,
    reason: str = "status_400",
    cause: str = "",
    at_ms: int = 1_000,
    redrives: int = 0,
) -> Receipt:
    failed = FailedTry(at_ms, cause or reason, 5, 400, text)
    return samples.a_receipt(
        DEAD,
        (first, end),
        reason=reason,
        ended_at_ms=at_ms,
        redrive_count=redrives,
        failed_tries=(failed,) if text else (),
    )


def told(*receipts: Receipt) -> dict[tuple[str, str], int]:
    return {(of.reason, of.answer): of.count for of in progress_of(*receipts).dead_groups()}


def progress_of(*receipts: Receipt) -> Progress:
    progress = Progress("orders/shop")
    for receipt in receipts:
        progress.take(receipt, now_ms=2_000)
    return progress


def test_what_died_is_grouped_by_reason_and_answer() -> None:
    assert told(
        dies(0, 3, "no user 17"),
        dies(3, 4, "no user 18"),
        dies(4, 6, "no order 9"),
        dies(6, 7, "busy", reason="retries_exhausted", cause="status_503"),
        dies(7, 9, reason="endpoint_disabled"),
    ) == {
        ("status_400", "no user #"): 4,
        ("status_400", "no order #"): 2,
        ("retries_exhausted", "503 busy"): 1,
        ("endpoint_disabled", ""): 2,
    }


def test_an_answer_of_which_a_receipt_had_less_room_is_the_same() -> None:
    cut = "no su\u2026"
    assert told(dies(0, 1, "no such user"), dies(1, 2, cut), dies(2, 3, "no su")) == {
        ("status_400", "no such user"): 2,
        ("status_400", "no su"): 1,
    }


def test_what_another_event_of_the_batch_was_answered_is_not_its_answer() -> None:
    assert told(dies(0, 1, "one of them is bad", cause="status_207")) == {("status_400", ""): 1}


def test_what_is_sent_again_is_in_no_group_and_what_dies_again_is() -> None:
    progress = progress_of(dies(0, 10, "bad"))
    again = samples.a_receipt(WAITING, (0, 4), reason="redriven", redrive_count=1)
    progress.take(again, now_ms=3_000)
    (group,) = progress.dead_groups()
    assert group.count == 6
    # The groups are built once, until something changes.
    assert progress.dead_groups() is progress.dead_groups()
    progress.take(dies(0, 1, "worse", redrives=1), now_ms=4_000)
    assert [(of.answer, of.count) for of in progress.dead_groups()] == [("bad", 6), ("worse", 1)]
    rest = samples.a_receipt(WAITING, (4, 10), reason="redriven", redrive_count=1)
    progress.take(rest, now_ms=5_000)
    assert [(of.answer, of.count) for of in progress.dead_groups()] == [("worse", 1)]


def test_a_group_tells_when_and_how_often() -> None:
    late_ms = 30 * DAY_MS + 17
    early = [dies(nth, nth + 1, "bad", at_ms=nth * DEAD_STEP_MS) for nth in range(1, 60)]
    (group,) = progress_of(*early, dies(70, 75, "bad", at_ms=late_ms)).dead_groups()
    assert (group.first_ms, group.last_ms, group.count) == (DEAD_STEP_MS, late_ms, 64)
    # The chart shows a week at most: older steps are left out.
    assert len(group.given_up) == 28
    assert group.given_up[late_ms - 17] == 5


def test_a_destination_that_answers_anything_has_few_groups_and_takes_little_time() -> None:
    words = ["".join(chr(97 + int(digit)) for digit in str(nth)) for nth in range(3_000)]
    begun_s = time.process_time()
    progress = progress_of(*(dies(nth, nth + 1, f"bad {word}") for nth, word in enumerate(words)))
    groups = progress.dead_groups()
    assert time.process_time() - begun_s < 5.0
    assert len(groups) == 21
    assert groups[-1].reason == groups[-1].answer == ""
    assert sum(group.count for group in groups) == 3_000
    # Once some dead letters are gone, there is room for others.
    sent = samples.a_receipt(WAITING, (0, 10), reason="redriven", redrive_count=1)
    progress.take(sent, now_ms=3_000)
    assert len(progress.dead_groups()) == 11
    progress.take(dies(3_000, 3_001, "something else"), now_ms=4_000)
    assert "something else" in {group.answer for group in progress.dead_groups()}


drawn = st.lists(
    st.tuples(
        st.sampled_from(ReceiptOutcome),
        st.integers(0, 20),
        st.integers(1, 9),
        st.integers(0, 2),
        st.sampled_from(["bad", "worse", ""]),
    ),
    max_size=25,
)


@given(drawn)
def test_groups_add_up_to_the_dead_of_the_books(
    steps: list[tuple[ReceiptOutcome, int, int, int, str]],
) -> None:
    progress = Progress("orders/shop")
    for outcome, first, count, redrives, text in steps:
        receipt = dies(first, first + count, text, redrives=redrives)
        if outcome is not DEAD:
            span = first, first + count
            receipt = samples.a_receipt(outcome, span, redrive_count=redrives)
        progress.take(receipt, now_ms=2_000)
        books = progress.balance({WHERE: (0, 30)})
        assert sum(group.count for group in progress.dead_groups()) == books.dead
