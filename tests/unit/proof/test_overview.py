"""The overview's own arithmetic: worst verdicts, loss as a part, quantiles of nothing."""

import pytest

from shared.proof.log_buckets import LogBuckets
from shared.proof.overview import MinuteBooks, MinuteState, Quantiles, Stage, StreamVerdict, worst
from tests.support.suite.samples import log_buckets


def test_quantiles_of_nothing_are_unknown_and_of_something_are_true() -> None:
    assert Quantiles.of(LogBuckets()) is None
    found = Quantiles.of(log_buckets([100] * 98 + [1_000, 2_000]))
    assert found is not None
    assert (found.count, found.mean_ms) == (100, 128.0)
    assert found.p50_ms == pytest.approx(100, rel=0.01)
    assert found.p99_ms == pytest.approx(1_000, rel=0.01)


@pytest.mark.parametrize(
    ("acked", "lost", "part"), [(0, {}, 0.0), (200, {Stage.QUEUE: 1, Stage.RETRIER: 1}, 0.01)]
)
def test_the_lost_part_is_of_the_acknowledged_and_the_minute_has_a_key(
    acked: int, lost: dict[Stage, int], part: float
) -> None:
    books = MinuteBooks("s", "s/d", 0, MinuteState.LOSS, acked, 0, 0, 0, 0, lost)
    assert books.lost_part == part
    assert books.key == ("s/d", 0)


def test_a_known_loss_is_the_worst_and_blindness_is_worse_than_slowness() -> None:
    assert worst(()) is StreamVerdict.OK
    assert worst((StreamVerdict.SLOW, StreamVerdict.CANNOT_TELL)) is StreamVerdict.CANNOT_TELL
    assert worst(tuple(StreamVerdict)) is StreamVerdict.LOSING
