"""The throughput of several instances follows measurements, and ends where these end."""

import pytest

from shared.scale.scale_error import ScaleError
from shared.scale.throughput import MeasuredThroughput, Proportional, Usl


def test_instances_that_share_nothing_add_up() -> None:
    assert Proportional(500.0).of(4) == 2_000


def test_the_law_of_scalability_has_its_peak() -> None:
    # Raytracer and specsdm91 have such curves; here sqrt((1 - sigma) / kappa) = 22.2.
    law = Usl(1_000.0, sigma=0.01, kappa=0.002, measured_max=32)
    assert law.of(1) == 1_000
    assert law.of(22) > law.of(21)
    assert law.of(22) > law.of(24)


def test_a_table_is_followed_in_straight_lines_and_a_little_beyond_its_end() -> None:
    # Gateway workers, measured on 2026-11-22.
    table = MeasuredThroughput({1: 68_000, 2: 152_000, 4: 304_000, 8: 518_000})
    assert [table.of(count) for count in (0, 1, 2, 3, 4, 6, 8)] == [
        *(0, 68_000, 152_000, 228_000, 304_000, 411_000, 518_000)
    ]
    assert table.of(16) == 518_000 + 2 * (518_000 - 304_000)


def test_what_was_never_measured_is_not_known() -> None:
    with pytest.raises(ScaleError, match="17 instances are more than twice"):
        MeasuredThroughput({1: 68_000, 8: 518_000}).of(17)
    with pytest.raises(ScaleError, match="rate more of them"):
        Usl(1.0, 0, 0, measured_max=4).of(9)
