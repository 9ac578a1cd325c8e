"""Days of traffic add up and have the requested shape; bad traces are reported."""

import random

import pytest

from shared.scale.scale_error import ScaleError
from shared.scale.traffic import DAY_S, SHAPES, curve_of, noisy, rates_in, rates_of


def test_fractions_of_events_add_up() -> None:
    curve = curve_of([0.4] * 5)
    assert list(curve) == [0, 0, 0, 1, 1, 2]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_day_without_its_spikes_has_the_mean_that_was_asked_for(shape: str) -> None:
    rates = list(rates_of(shape, mean=1_000.0))
    assert len(rates) == DAY_S
    usual = sorted(rates)[: DAY_S // 2]
    assert min(rates) >= 499
    assert sum(usual) / len(usual) <= 1_000
    if shape in {"steady", "diurnal"}:
        assert sum(rates) / DAY_S == pytest.approx(1_000, rel=1e-6)
    else:
        assert max(rates) > 4_000


def test_a_flash_crowd_rises_within_a_minute_and_halves_every_quarter_of_an_hour() -> None:
    rates = [
        rate / usual
        for rate, usual in zip(
            rates_of("flash-crowd", mean=100), rates_of("diurnal", mean=100), strict=True
        )
    ]
    at_s = 19 * 3_600
    assert rates[at_s - 1] == rates[at_s] == 1
    assert rates[at_s + 30] == pytest.approx(4.5)
    assert rates[at_s + 60] == 8
    assert rates[at_s + 960] == pytest.approx(4.5)


def test_noise_is_as_large_as_was_asked_and_never_below_nothing() -> None:
    dice = random.Random(7)
    rates = list(noisy([1_000.0] * 10_000, 0.03, lambda: dice.gauss(0, 1)))
    mean = sum(rates) / len(rates)
    deviation = (sum((rate - mean) ** 2 for rate in rates) / len(rates)) ** 0.5
    assert mean == pytest.approx(1_000, rel=0.002)
    assert deviation == pytest.approx(30, rel=0.05)
    assert list(noisy([1.0], 0.5, lambda: -9.0)) == [0.0]


def test_a_trace_holds_each_rate_until_the_next_row() -> None:
    assert rates_in("time,rate\n100,5\n102,7\n\n103,1\n") == [5, 5, 7, 1]
    assert rates_in("2026-11-23T00:00:00Z,1\n2026-11-23T00:00:02Z,3\n") == [1, 1, 3, 3]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("time,rate\n", "at least two rows"),
        ("0,1\n0,2\n", "goes back in time"),
        ("0,1\n1,x\n", "Row 2 of the trace is '1,x'"),
        ("0,1\n1,2,3\n", "Row 2 of the trace is '1,2,3'"),
        ("0,1\n1,-2\n", "Row 2 of the trace has the rate -2"),
        ("0,1\n1,nan\n", "has the rate nan"),
        ("1700000000000,1\n1700000600000,2\n", "in milliseconds?"),
    ],
)
def test_what_is_wrong_with_a_trace_is_said_with_its_row(text: str, says: str) -> None:
    with pytest.raises(ScaleError) as told:
        rates_in(text)
    assert says in str(told.value)
