"""A destination gets no more events per second than its owner allows, and none while closed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.flow.rate_gate import RateGate, opens_at_ms, rate_limited, spent, took
from tests.support.suite.samples import NOW_MS


def sent_in(gate: RateGate, rate: float | None, *, seconds: float, batch: int) -> int:
    """Return how many events are sent if each goes as soon as it may."""
    now_ms, end_ms, count = NOW_MS, NOW_MS + round(seconds * 1000), 0
    while True:
        now_ms = max(now_ms, opens_at_ms(gate, rate, now_ms=now_ms))
        if now_ms >= end_ms:
            return count
        gate = spent(gate, rate, event_count=batch, now_ms=now_ms)
        count += batch
        if rate is None:
            return count


@pytest.mark.parametrize("batch", [1, 10, 500])
@pytest.mark.parametrize("rate", [0.5, 10.0, 50.0])
def test_the_owners_rate_holds_with_a_tenth_of_a_seconds_worth_and_one_batch_to_begin_with(
    rate: float, batch: int
) -> None:
    count = sent_in(RateGate(), rate, seconds=100, batch=batch)
    assert count <= rate * 100.1 + 1 + batch
    assert count >= rate * 99 - batch


def test_without_a_rate_nothing_waits_and_nothing_is_counted() -> None:
    gate = RateGate()
    assert opens_at_ms(gate, None, now_ms=NOW_MS) == NOW_MS
    assert spent(gate, None, event_count=500, now_ms=NOW_MS) is gate


def test_it_is_closed_until_the_time_that_was_asked_for_and_never_before() -> None:
    gate = rate_limited(RateGate(), asked_s=30.0, now_ms=NOW_MS, roll=0.0)
    assert opens_at_ms(gate, None, now_ms=NOW_MS) == NOW_MS + 30_000
    assert opens_at_ms(gate, None, now_ms=NOW_MS + 30_000) == NOW_MS + 30_000
    spread = rate_limited(RateGate(), asked_s=30.0, now_ms=NOW_MS, roll=0.5)
    assert spread.closed_until_ms == NOW_MS + 32_500


def test_those_under_way_hear_the_same_and_it_counts_once() -> None:
    once = rate_limited(RateGate(), asked_s=5.0, now_ms=NOW_MS, roll=0.0)
    twice = rate_limited(once, asked_s=7.0, now_ms=NOW_MS + 10, roll=0.0)
    assert twice.limits_in_row == once.limits_in_row
    assert twice.closed_until_ms == NOW_MS + 7_010


def test_without_a_time_it_waits_for_longer_and_longer_until_it_is_taken() -> None:
    gate, now_ms, waits = RateGate(), NOW_MS, []
    for _ in range(8):
        gate = rate_limited(gate, asked_s=None, now_ms=now_ms, roll=0.0)
        waits.append((gate.closed_until_ms - now_ms) / 1000)
        now_ms = gate.closed_until_ms
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    gate = took(gate)
    assert (
        rate_limited(gate, asked_s=None, now_ms=now_ms, roll=0.0).closed_until_ms == now_ms + 1_000
    )


def test_a_clock_that_is_set_back_fills_no_bucket_and_empties_none() -> None:
    gate = spent(RateGate(), 10.0, event_count=25, now_ms=NOW_MS)
    early_ms = NOW_MS - 3_600_000
    assert opens_at_ms(gate, 10.0, now_ms=early_ms) == early_ms + 2_400


@given(
    st.lists(st.tuples(st.sampled_from("tok"), st.integers(0, 9_000)), max_size=60),
    st.none() | st.floats(0.1, 1e6),
)
def test_it_always_opens_again(lived: list[tuple[str, int]], rate: float | None) -> None:
    gate, now_ms = RateGate(), NOW_MS
    for what, passed_ms in lived:
        now_ms += passed_ms
        if what == "t":
            gate = rate_limited(gate, asked_s=None, now_ms=now_ms, roll=0.9)
        elif what == "o":
            gate = took(gate)
        elif opens_at_ms(gate, rate, now_ms=now_ms) == now_ms:
            gate = spent(gate, rate, event_count=100, now_ms=now_ms)
        at_ms = opens_at_ms(gate, rate, now_ms=now_ms)
        assert opens_at_ms(gate, rate, now_ms=at_ms + 2) <= at_ms + 2
