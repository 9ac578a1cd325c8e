"""A process counts as grown when it is a tenth larger than in its first five minutes."""

import os

import pytest

from loadtests.soak.memory import ProcessMemory, Scale


@pytest.mark.parametrize(
    ("first_mb", "later_mb", "has_grown"), [(100, 109, False), (100, 111, True), (100, 40, False)]
)
def test_what_counts_is_the_most_before_and_after_five_minutes(
    first_mb: float, later_mb: float, *, has_grown: bool
) -> None:
    one = ProcessMemory("gateway", 7, [(60, 20), (300, first_mb), (361, later_mb), (500, 30)])
    told = one.told
    assert (told["first_mb"], told["later_mb"], told["lived_s"]) == (first_mb, later_mb, 440)
    assert told["growth"] == pytest.approx(later_mb / first_mb - 1)
    assert told["has_grown"] is has_grown


def test_of_what_was_killed_early_nothing_is_said() -> None:
    told = ProcessMemory("gateway", 7, [(60, 20), (350, 900)]).told
    assert (told["later_mb"], told["growth"], told["has_grown"]) == (None, None, False)


def test_processes_are_weighed_by_the_kernels_word() -> None:
    now_s = iter([1.0, 6.0])
    scale = Scale(lambda: {"tests": [os.getpid(), 2**22 + 1]}, lambda: next(now_s))
    scale.weigh()
    scale.weigh()
    (one,) = scale.weighed.values()
    assert one.pid == os.getpid()
    assert [at_s for at_s, _ in one.points] == [1, 6]
    # An interpreter with pytest takes more than 10 MB, and less than a GB.
    assert all(10 < mb < 1_000 for _, mb in one.points)
