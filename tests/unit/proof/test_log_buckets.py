"""Quantiles from buckets are within 1 % of the truth, however the buckets were merged."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.proof.log_buckets import LogBuckets
from tests.support.suite.samples import log_buckets

WEEK_MS = 7 * 24 * 3_600_000
durations = st.lists(st.integers(0, WEEK_MS), min_size=1, max_size=200)
parts = st.sampled_from([0.01, 0.5, 0.95, 0.99, 1.0])


def true_quantile(values: list[int], part: float) -> int:
    return sorted(values)[math.ceil(part * len(values)) - 1]


@given(durations, parts)
def test_a_quantile_is_within_one_percent(values: list[int], part: float) -> None:
    truth = true_quantile(values, part)
    assert abs(log_buckets(values).quantile(part) - truth) <= 0.01 * truth


@given(durations, durations, parts)
def test_merging_is_adding_all(first: list[int], second: list[int], part: float) -> None:
    merged = log_buckets(first)
    merged.merge(log_buckets(second))
    assert merged == log_buckets(first + second)
    assert merged.quantile(part) == log_buckets(first + second).quantile(part)


@given(durations)
def test_the_mean_is_exact_and_json_keeps_all(values: list[int]) -> None:
    buckets = log_buckets(values)
    assert buckets.count == len(values)
    assert math.isclose(buckets.mean_ms, sum(values) / len(values))
    assert LogBuckets.from_list(buckets.to_list()) == buckets


@given(durations, st.integers(0, WEEK_MS))
def test_distances_of_counted_moments_are_those_of_each(moments: list[int], until: int) -> None:
    each = log_buckets(until - moment for moment in moments)
    assert LogBuckets.of_counts(Counter(moments), until_ms=until) == each


def test_nothing_is_zero_and_the_past_is_nothing() -> None:
    assert LogBuckets().quantile(0.95) == LogBuckets().mean_ms == 0.0
    assert LogBuckets.from_list([]) == LogBuckets.of_counts({}, until_ms=5) == LogBuckets()
    ahead = log_buckets([-5_000])
    assert (ahead.quantile(0.5), ahead.sum_ms) == (0.0, 0)


@pytest.mark.simulation
def test_buckets_stay_few() -> None:
    assert len(log_buckets(range(1, WEEK_MS, 997)).counts) < 1_100
