"""The books balance in whatever order and however often receipts arrive, and no loss can hide."""

from collections import Counter
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from observe.lag.progress import Progress
from shared.event.record import KafkaPartition
from shared.event.times import DAY_MS
from shared.proof.balance import Balance
from shared.proof.intervals import Offsets
from shared.proof.receipt import Receipt, ReceiptOutcome
from tests.support.suite.samples import a_receipt

TOPIC = "hifi.stream.orders"
DELIVERED, WAITING, DEAD = (
    ReceiptOutcome.DELIVERED,
    ReceiptOutcome.WAITING,
    ReceiptOutcome.DEAD,
)
# The best outcome of an event counts.
RANKS = (DELIVERED, DEAD, WAITING)


def progress_of(receipts: list[Receipt], *, first: int = 0) -> Progress:
    progress = Progress("orders/shop")
    progress.begin({KafkaPartition(TOPIC, 0): (first, first)})
    for receipt in receipts:
        progress.take(receipt, now_ms=0)
    return progress


def balance_of(
    receipts: list[Receipt], first: int, end: int, *, position: int | None = None
) -> Balance:
    progress = progress_of(receipts, first=first)
    if position is not None:
        progress.reached({KafkaPartition(TOPIC, 0): position})
    return progress.balance({KafkaPartition(TOPIC, 0): (first, end)})


# receipts -> acked, delivered, waiting, dead, queued, unaccounted; the log is [0, 10)
BOOKS: list[tuple[str, list[Receipt], Balance]] = [
    ("nothing yet", [], Balance(10, 0, 0, 0, 10, 0)),
    ("all delivered", [a_receipt(DELIVERED, (0, 10))], Balance(10, 10, 0, 0, 0, 0)),
    ("in the middle", [a_receipt(DELIVERED, (0, 6))], Balance(10, 6, 0, 0, 4, 0)),
    (
        "twice delivered is once delivered",
        [a_receipt(DELIVERED, (0, 6)), a_receipt(DELIVERED, (2, 6))],
        Balance(10, 6, 0, 0, 4, 0),
    ),
    (
        "a duplicate does not hide a loss",
        [a_receipt(DELIVERED, (0, 5), (6, 10)), a_receipt(DELIVERED, (0, 5))],
        Balance(10, 9, 0, 0, 0, 1),
    ),
    (
        "a retry that was delivered",
        [a_receipt(WAITING, (0, 10)), a_receipt(DELIVERED, (0, 4))],
        Balance(10, 4, 6, 0, 0, 0),
    ),
    (
        "a retry that was given up",
        [a_receipt(WAITING, (0, 10)), a_receipt(DEAD, (0, 4))],
        Balance(10, 0, 6, 4, 0, 0),
    ),
    (
        "a dead letter that was redriven and delivered",
        [a_receipt(DEAD, (0, 10)), a_receipt(DELIVERED, (0, 10))],
        Balance(10, 10, 0, 0, 0, 0),
    ),
    (
        "a dead letter that was redriven and waits",
        [a_receipt(WAITING, (0, 4), redrive_count=1), a_receipt(DEAD, (0, 10))],
        Balance(10, 0, 4, 6, 0, 0),
    ),
    (
        "a dead letter that was redriven and died again",
        [
            a_receipt(DEAD, (0, 10)),
            a_receipt(WAITING, (0, 4), redrive_count=1),
            a_receipt(DEAD, (0, 3), redrive_count=1),
        ],
        Balance(10, 0, 1, 9, 0, 0),
    ),
    (
        "what was delivered before somebody re-drove it is delivered",
        [a_receipt(DELIVERED, (0, 10)), a_receipt(WAITING, (0, 10), redrive_count=2)],
        Balance(10, 10, 0, 0, 0, 0),
    ),
    (
        "a hole before the last outcome is no backlog",
        [a_receipt(DELIVERED, (0, 3)), a_receipt(WAITING, (5, 7))],
        Balance(10, 3, 2, 0, 3, 2),
    ),
    (
        "receipts from beyond the log count nothing",
        [a_receipt(DELIVERED, (8, 99))],
        Balance(10, 2, 0, 0, 0, 8),
    ),
]


@pytest.mark.parametrize(("receipts", "balance"), [b[1:] for b in BOOKS], ids=[b[0] for b in BOOKS])
def test_books_are_the_table(receipts: list[Receipt], balance: Balance) -> None:
    assert balance_of(receipts, 0, 10) == balance


@pytest.mark.parametrize(
    ("receipts", "position", "balance"),
    [
        # Events that the lane has passed without an outcome are lost, even after the last outcome.
        ([a_receipt(DELIVERED, (0, 5))], 8, Balance(10, 5, 0, 0, 2, 3)),
        # Events that the lane has not reached are not lost, even before an outcome.
        ([a_receipt(DELIVERED, (0, 5), (6, 10))], 3, Balance(10, 9, 0, 0, 1, 0)),
    ],
)
def test_the_lanes_position_tells_what_is_lost_from_what_is_to_come(
    receipts: list[Receipt], position: int, balance: Balance
) -> None:
    assert balance_of(receipts, 0, 10, position=position) == balance


def test_what_retention_had_deleted_before_anybody_looked_counts_from_the_first_receipt() -> None:
    receipts = [a_receipt(DELIVERED, (1, 8))]
    assert balance_of(receipts, 5, 10) == Balance(9, 7, 0, 0, 2, 0)
    assert balance_of(receipts, 8, 10) == Balance(9, 7, 0, 0, 2, 0)
    assert balance_of(receipts, 10, 10) == Balance(9, 7, 0, 0, 0, 2)


def test_what_retention_deletes_before_it_has_an_outcome_is_lost() -> None:
    progress = progress_of([a_receipt(DELIVERED, (0, 3), (4, 5))])
    progress.reached({KafkaPartition(TOPIC, 0): 3})
    assert progress.balance({KafkaPartition(TOPIC, 0): (0, 10)}) == Balance(10, 4, 0, 0, 6, 0)
    assert progress.balance({KafkaPartition(TOPIC, 0): (7, 10)}) == Balance(10, 4, 0, 0, 3, 3)


def test_kafka_partitions_are_balanced_on_their_own() -> None:
    progress = progress_of([a_receipt(DELIVERED, (0, 10), partition=1)])
    found = progress.balance({KafkaPartition(TOPIC, 0): (0, 10), KafkaPartition(TOPIC, 1): (0, 5)})
    assert found == Balance(15, 5, 0, 0, 10, 0)


# A receipt in the model: outcome, Kafka partition, interval of offsets, redrives.
Entry: TypeAlias = tuple[ReceiptOutcome, int, int, int, int]
entries = st.lists(
    st.tuples(
        st.sampled_from(ReceiptOutcome),
        st.integers(0, 1),
        st.integers(0, 30),
        st.integers(0, 30),
        st.integers(0, 2),
    ),
    max_size=12,
)
logs = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: (min(pair), max(pair)))


def best_of(taken: list[Entry], partition: int, offset: int) -> ReceiptOutcome | None:
    """Return the outcome that counts among all that were reported for one event."""
    said = [
        (entry[0], entry[4])
        for entry in taken
        if entry[1] == partition and entry[2] <= offset < entry[3]
    ]
    if any(outcome is DELIVERED for outcome, _ in said):
        return DELIVERED
    latest = max((redrives for _, redrives in said), default=0)
    return min((o for o, redrives in said if redrives == latest), key=RANKS.index, default=None)


def begins_at(first: int, position: int) -> int:
    """Return the first offset of a lane's debt; it may be one that the log no longer holds."""
    return min(first, position or first)


def brute_force(
    taken: list[Entry], log: dict[int, tuple[int, int]], position: dict[int, int]
) -> Counter[str]:
    """Count every offset on its own, without intervals."""
    sums: Counter[str] = Counter()
    for partition, (first, end) in log.items():
        # A lane without a reported position is taken to be at its last outcome.
        last = max((e[3] for e in taken if e[1] == partition and e[2] < e[3]), default=0)
        at = position.get(partition, 0) if position else last
        for offset in range(begins_at(first, position.get(partition, 0)), end):
            outcome = best_of(taken, partition, offset)
            if outcome is not None:
                sums[outcome.value] += 1
            else:
                sums["queued" if offset >= max(at, first) else "unaccounted"] += 1
    return sums


@given(
    entries.flatmap(lambda drawn: st.permutations(drawn + drawn[:5])),
    logs,
    logs,
    st.dictionaries(st.integers(0, 1), st.integers(0, 30)),
)
def test_the_books_agree_with_counting_every_offset(
    taken: list[Entry],
    log_0: tuple[int, int],
    log_1: tuple[int, int],
    position: dict[int, int],
) -> None:
    log = {KafkaPartition(TOPIC, 0): log_0, KafkaPartition(TOPIC, 1): log_1}
    progress = Progress("orders/shop")
    progress.begin(log)
    progress.balance(log)
    progress.reached({KafkaPartition(TOPIC, partition): at for partition, at in position.items()})
    for outcome, partition, first, end, redrives in taken:
        # Balance first, so that each receipt changes books that were already given.
        progress.balance(log)
        receipt = a_receipt(outcome, (first, end), partition=partition, redrive_count=redrives)
        # These events are so old that the books do not begin with them.
        progress.take(receipt, now_ms=14 * DAY_MS)
    found = progress.balance(log)
    expected = brute_force(taken, {0: log_0, 1: log_1}, position)
    assert found == Balance(
        acked=sum(
            max(0, end - begins_at(first, position.get(partition, 0)))
            for partition, (first, end) in enumerate((log_0, log_1))
        ),
        delivered=expected["delivered"],
        waiting=expected["waiting"],
        dead=expected["dead"],
        queued=expected["queued"],
        unaccounted=expected["unaccounted"],
    )
    parts = found.delivered + found.waiting + found.dead + found.queued + found.unaccounted
    assert found.acked == parts


def test_outcomes_however_scattered_are_counted_without_a_walk_over_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tenant may scatter outcomes at will, and one loop serves everybody's pages."""
    receipts = [a_receipt((DELIVERED, WAITING, DEAD)[at % 3], (at, at + 1)) for at in range(3_000)]
    progress = progress_of(receipts)
    progress.reached({KafkaPartition(TOPIC, 0): 3_000})
    adds = 0
    add = Offsets.add

    def counted(offsets: Offsets, start: int, end: int) -> None:
        nonlocal adds
        adds += 1
        add(offsets, start, end)

    monkeypatch.setattr(Offsets, "add", counted)
    found = progress.balance({KafkaPartition(TOPIC, 0): (0, 3_010)})
    assert found == Balance(3_010, 1_000, 1_000, 1_000, 10, 0)
    assert adds < 10
