"""When the next job may start."""

import pytest

from delivery.lanes.turns import Turns
from delivery.lanes.units import JobKind


def wait_s(strand_count: int, *, running: int = 0) -> float:
    """How long the next shared job waits, to the millisecond."""
    turns = Turns()
    turns.running[JobKind.SHARED] = running
    turns.start(JobKind.SHARED, 1, strand_count=strand_count, now_s=0.0)
    return (
        next(ms for ms in range(10_000) if turns.may_start(JobKind.SHARED, now_s=ms / 1_000))
        / 1_000
    )


@pytest.mark.parametrize(
    ("strand_count", "expected_s"), [(1, 0.032), (10, 0.05), (100, 0.23), (185, 0.4), (5_000, 0.4)]
)
def test_the_more_there_is_to_do_the_more_of_it_shares_a_job(
    strand_count: int, expected_s: float
) -> None:
    assert wait_s(strand_count) == pytest.approx(expected_s, abs=0.002)


def test_each_job_that_still_waits_makes_the_next_one_wait_longer() -> None:
    assert wait_s(1, running=4) == pytest.approx(0.232, abs=0.002)


@pytest.mark.parametrize("kind", JobKind)
def test_there_are_never_too_many_and_one_kind_holds_up_no_other(kind: JobKind) -> None:
    turns = Turns()
    count = 0
    while turns.may_start(kind, now_s=100.0 * count):
        turns.start(kind, 1, strand_count=1, now_s=100.0 * count)
        count += 1
    assert count == turns.running[kind] == (8 if kind is JobKind.ALONE else 10)
    others = set(JobKind) - {kind}
    assert all(turns.may_start(each, now_s=0.0) for each in others)
    turns.end(kind)
    assert turns.may_start(kind, now_s=100.0 * count)


def test_those_that_are_alone_need_not_wait_for_more_to_share_with() -> None:
    turns = Turns()
    for _ in range(8):
        assert turns.may_start(JobKind.ALONE, now_s=0.0)
        turns.start(JobKind.ALONE, 1, strand_count=4, now_s=0.0)
