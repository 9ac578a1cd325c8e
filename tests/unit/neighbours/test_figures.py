"""A neighbour is judged by the promised rule, and by nothing easier."""

import pytest

from tests.support.neighbours.figures import Round, Window, quantile, table, verdicts


def rounds_of(*pairs: tuple[float, float], probe: str = "post", samples: int = 100) -> list[Round]:
    return [
        Round(Window({probe: [before] * samples}), Window({probe: [during] * samples}))
        for before, during in pairs
    ]


def test_the_nearest_rank_is_a_sample() -> None:
    hundred = list(range(1, 101))
    assert quantile(hundred, 0.99) == 99
    assert quantile([*hundred, 500], 0.99) == 100
    assert quantile([7], 0.99) == 7


@pytest.mark.parametrize(
    ("before", "during", "is_kept"),
    [(10, 30, True), (10, 31, False), (100, 150, True), (100, 151, False)],
)
def test_half_more_or_twenty_milliseconds_are_allowed(
    before: float, during: float, *, is_kept: bool
) -> None:
    (verdict,) = verdicts("x", rounds_of((before, during)))
    assert verdict.is_kept == is_kept


def test_the_median_of_the_rounds_counts() -> None:
    (kept,) = verdicts("x", rounds_of((10, 10), (10, 9_000), (10, 30)))
    assert kept.is_kept
    assert (kept.before_ms, kept.during_ms, kept.most_ms) == (10, 30, 9_000)
    (lost,) = verdicts("x", rounds_of((10, 10), (10, 50), (10, 50)))
    assert not lost.is_kept


def test_a_pipeline_may_be_late_by_an_executors_end_and_nobody_else_may() -> None:
    (late,) = verdicts("x", rounds_of((50, 15_000), probe="pipeline"), has_ended_executors=True)
    assert late.is_kept
    (later,) = verdicts("x", rounds_of((50, 15_001), probe="pipeline"), has_ended_executors=True)
    assert not later.is_kept
    (post,) = verdicts("x", rounds_of((50, 500)), has_ended_executors=True)
    assert not post.is_kept
    (whole,) = verdicts("x", rounds_of((50, 500), probe="pipeline"))
    assert not whole.is_kept


def test_too_few_samples_prove_nothing() -> None:
    (few,) = verdicts("x", rounds_of((10, 10), samples=99))
    assert not few.is_kept
    assert few.to_json()["samples_min"] == 99
    assert "99 samples" in table([few])


def test_few_samples_of_several_rounds_count_together() -> None:
    (together,) = verdicts("x", rounds_of((10, 10), (10, 90), (10, 10), samples=34))
    assert together.samples == 102
    assert together.during_ms == 90
    assert not together.is_kept


def test_the_table_names_each_once_and_says_what_is_too_much() -> None:
    lines = [
        *verdicts("bodies", rounds_of((10, 11))),
        *verdicts("bodies", rounds_of((1_000, 2_000), probe="page")),
    ]
    head, first, second = table(lines).splitlines()
    assert head.split()[:2] == ["what", "the"]
    assert first.split() == ["bodies", "post", "10", "ms", "11", "ms", "11", "ms"]
    assert second.split() == ["page", "1,000", "ms", "2,000", "ms", "2,000", "ms", "TOO", "MUCH"]
