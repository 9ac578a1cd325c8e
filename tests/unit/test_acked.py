"""A row of the ledger names every acknowledged event once, in its minute, with its id."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shared.acked import (
    EARLY_MS_MAX,
    LATE_MS_MAX,
    WILD,
    AckedRow,
    Slice,
    audited_minute,
    runs_of,
)
from shared.log_buckets import LogBuckets

MINUTE = 1_699_999_980_000
ROW = AckedRow(
    topic="hifi.stream.orders",
    partition=3,
    slices=(
        Slice(10, ((2, MINUTE), (1, MINUTE + 60_000)), MINUTE + 5),
        Slice(40, ((1, WILD),), MINUTE + 9),
    ),
    ids=("a", "b", "é", "d"),
    value_bytes=2_000,
    ingest=LogBuckets.of([5, 7, 9, 11]),
    process=LogBuckets.of([3, 3, 3, 4]),
)


def test_a_row_says_which_offsets_are_of_which_minute() -> None:
    assert list(ROW.claims()) == [
        (MINUTE, 10, 12),
        (MINUTE + 60_000, 12, 13),
        (WILD, 40, 41),
    ]
    assert list(ROW.named()) == [
        (MINUTE, 10, "a"),
        (MINUTE, 11, "b"),
        (MINUTE + 60_000, 12, "é"),
        (WILD, 40, "d"),
    ]
    assert ROW.count == 4


def test_a_row_is_the_same_after_its_bytes_and_its_ids_can_be_left_out() -> None:
    assert AckedRow.from_bytes(ROW.to_bytes()) == ROW
    bare = AckedRow.from_bytes(ROW.to_bytes(), with_ids=False)
    assert (bare.ids, bare.slices) == ((), ROW.slices)


@given(st.lists(st.integers(0, 3).map(lambda n: n * 60_000), max_size=30))
def test_runs_unfold_to_what_they_came_from(minutes: list[int]) -> None:
    runs = runs_of(minutes)
    assert [minute for count, minute in runs for _ in range(count)] == minutes
    assert all(here != there for (_, here), (_, there) in pairwise(runs))


def test_a_wild_event_time_belongs_to_no_minute() -> None:
    at = MINUTE + 30_000
    assert audited_minute(at, at) == MINUTE
    assert audited_minute(at - LATE_MS_MAX, at) == MINUTE - LATE_MS_MAX
    assert audited_minute(at - LATE_MS_MAX - 1, at) == WILD
    assert audited_minute(at + EARLY_MS_MAX, at) == MINUTE + EARLY_MS_MAX
    assert audited_minute(at + EARLY_MS_MAX + 1, at) == WILD
