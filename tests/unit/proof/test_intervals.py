"""Sets of offsets behave like Python's own sets, and stay merged."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shared.proof.intervals import Offsets

bounds = st.integers(0, 60)
intervals = st.lists(st.tuples(bounds, bounds), max_size=15)


def plain(given_intervals: list[tuple[int, int]]) -> set[int]:
    return {offset for start, end in given_intervals for offset in range(start, end)}


def members(offsets: Offsets) -> set[int]:
    return {offset for offset in range(-1, 62) if offset in offsets}


@given(intervals)
def test_the_union_of_intervals_is_the_union_of_sets(drawn: list[tuple[int, int]]) -> None:
    offsets = Offsets.of(drawn)
    assert members(offsets) == plain(drawn)
    assert len(offsets) == len(plain(drawn))
    assert offsets.end == max(plain(drawn), default=-1) + 1


@given(intervals)
def test_intervals_are_sorted_never_empty_and_never_touch(drawn: list[tuple[int, int]]) -> None:
    kept = list(Offsets.of(drawn))
    assert all(start < end for start, end in kept)
    assert all(end < next_start for (_, end), (next_start, _) in pairwise(kept))


@given(st.lists(st.tuples(bounds, bounds), max_size=15).flatmap(lambda x: st.permutations(x + x)))
def test_neither_order_nor_repetition_matters(drawn: list[tuple[int, int]]) -> None:
    assert Offsets.of(drawn) == Offsets.of(sorted(set(drawn)))


@given(intervals, intervals)
def test_minus_and_union_are_those_of_sets(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    a, b = Offsets.of(one), Offsets.of(other)
    assert members(a.minus(b)) == plain(one) - plain(other)
    assert a.union(b) == Offsets.of([*one, *other])
    assert a == Offsets.of(one), "an operand was changed"


@given(intervals, bounds, bounds)
def test_within_is_the_intersection_with_an_interval(
    drawn: list[tuple[int, int]], start: int, end: int
) -> None:
    found = list(Offsets.of(drawn).within(start, end))
    assert plain(found) == plain(drawn) & set(range(start, end))
    assert all(low < high for low, high in found)
    assert Offsets.of(drawn).cut(start, end) == Offsets.of(found)


def test_the_largest_offsets_that_kafka_has_are_exact() -> None:
    last = 2**63 - 1
    offsets = Offsets.of([(0, 1), (last - 2, last)])
    assert len(offsets) == 3
    assert last - 1 in offsets
    assert last not in offsets
    assert len(Offsets.of([(0, last)]).minus(offsets)) == last - 3


def test_an_empty_set_has_nothing() -> None:
    assert list(Offsets()) == []
    assert not Offsets()
    assert Offsets().end == 0
    assert 0 not in Offsets()
