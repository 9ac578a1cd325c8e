"""The fit of the scalability law agrees with other tools', has an interval, and stays in range."""

import math
import random

import pytest

from loadtests.usl import FitError, fit, fit_between

# SPEC SDM91 on a Sun SPARCcenter 2000, from the tests of R's package usl.
SPEC_SDM91 = [
    (1, 64.9), (18, 995.9), (36, 1652.4), (72, 1853.2), (108, 1828.9), (144, 1775.0), (216, 1702.2),
]  # fmt: skip
COUNTS = (1, 3, 9, 27, 81, 243, 729, 2187)


def scattered(sigma: float, kappa: float, noise: float, seed: int) -> list[tuple[float, float]]:
    random_ = random.Random(seed)
    return [
        (n, 1000 * n / (1 + sigma * (n - 1) + kappa * n * (n - 1)) * random_.gauss(1, noise))
        for n in COUNTS
    ]


def test_the_peak_is_where_r_finds_it() -> None:
    """Issue 16, A10: the fit agrees with R's."""
    law = fit(SPEC_SDM91, by="absolute")
    peak = math.sqrt((1 - law.sigma) / law.kappa)
    assert peak == pytest.approx(96.52, abs=0.01)
    assert law.sigma == pytest.approx(0.02773, abs=1e-5)
    assert law.kappa == pytest.approx(0.0001044, abs=1e-7)


def test_what_was_put_in_is_recovered() -> None:
    """Issue 16, A10: within 10 % from 8 points with 3 % noise, for 95 of 100 seeds."""
    good = 0
    for seed in range(100):
        law = fit(scattered(0.2, 0.002, 0.03, seed))
        good += abs(law.sigma / 0.2 - 1) <= 0.1 and abs(law.kappa / 0.002 - 1) <= 0.1
    assert good >= 95


def test_points_without_noise_are_met_exactly() -> None:
    law = fit(scattered(0.05, 0.001, 0, 1))
    assert (law.rating, law.sigma, law.kappa) == pytest.approx((1000, 0.05, 0.001))


def test_what_scales_better_than_possible_is_not_negative() -> None:
    law = fit([(1, 68), (2, 152), (4, 304), (8, 518), (16, 1036)])
    assert law.sigma >= 0
    assert law.kappa >= 0


def test_the_interval_holds_what_was_put_in() -> None:
    inside = 0
    for seed in range(8):
        found = fit_between(scattered(0.2, 0.002, 0.03, seed), random.Random(seed).random)
        inside += found.sigma[0] <= 0.2 <= found.sigma[1]
        assert found.throughput[0][1] <= found.throughput[0][2]
    assert inside >= 6


def test_three_points_are_too_few() -> None:
    with pytest.raises(FitError, match="4 different numbers"):
        fit([(1, 68), (2, 152), (4, 304), (4, 310)])
