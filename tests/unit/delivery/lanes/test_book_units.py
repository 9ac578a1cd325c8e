"""Strands that are read together, and the workers that read them."""

import pytest

from delivery.lanes.marks import Mark
from delivery.lanes.turns import Turns
from delivery.lanes.units import JobKind, Span, Unit
from shared.slots import slot_of
from tests.unit.delivery.lanes.test_book import A, Driver


def test_nothing_is_read_of_what_lies_between_two_that_are_far_apart() -> None:
    """Otherwise a strand near the end would wait until the task has read the whole log."""
    driver = Driver({A: 10_000_000})
    driver.enter("far", Mark(0, 0), kind=JobKind.APART, events_max=2_500)
    driver.enter("near", Mark(9_999_990, 9_999_990), kind=JobKind.APART)
    (job,) = driver.plan()
    assert sorted(job.units, key=lambda unit: unit.begin) == [
        Unit(A, {"s/far": Span(0, 2_500)}),
        Unit(A, {"s/near": Span(9_999_990, 10_000_000)}),
    ]


@pytest.mark.parametrize(
    ("begins", "units"),
    [
        # As far apart as they may be: 100 to 2,100, and 2,200 to 4,200.
        ([0, 2_100, 4_200], [["s/0", "s/1", "s/2"]]),
        ([0, 2_101, 4_201], [["s/0"], ["s/1", "s/2"]]),
        # The one in the middle is near both others, whatever their order.
        ([4_200, 0, 2_100, 9_000], [["s/0", "s/1", "s/2"], ["s/3"]]),
    ],
)
def test_those_that_are_near_each_other_are_read_once(
    begins: list[int], units: list[list[str]]
) -> None:
    driver = Driver({A: 9_100})
    for number, begin in enumerate(begins):
        mark = Mark(begin, begin)
        driver.enter(str(number), mark, kind=JobKind.APART, events_max=100)
    (job,) = driver.plan()
    assert sorted(sorted(unit.spans) for unit in job.units) == units


def test_who_repeats_what_is_far_back_is_not_read_with_those_who_follow() -> None:
    driver = Driver({A: 9_000}, turns=Turns(worker_count=1))
    driver.enter("a", Mark(100, 200), kind=JobKind.APART)
    driver.enter("b", Mark(8_900, 8_900), kind=JobKind.FOLLOWING)
    driver.enter("c", Mark(8_800, 8_801), kind=JobKind.FOLLOWING)
    found = {job.kind: [dict(unit.spans) for unit in job.units] for job in driver.plan()}
    assert found == {
        JobKind.APART: [{"s/a": Span(100, 200, 200)}],
        JobKind.FOLLOWING: [{"s/c": Span(8_800, 8_801, 8_801), "s/b": Span(8_900, None)}],
    }


@pytest.mark.parametrize("worker_count", range(1, 9))
def test_a_process_that_holds_one_slot_uses_all_of_its_workers(worker_count: int) -> None:
    """With fifty machines, each process holds hardly more than one slot."""
    driver = Driver({A: 1})
    driver.turns = Turns(worker_count=worker_count)
    names = [str(number) for number in range(12_000) if slot_of(f"s/{number}") == 77]
    for name in names:
        driver.enter(name)
    counts = {job.worker: len(job.units[0].spans) for job in driver.plan()}
    assert set(counts) == set(range(worker_count))
    assert min(counts.values()) > len(names) / worker_count / 3
