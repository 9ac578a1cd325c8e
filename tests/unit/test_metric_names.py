"""Every metric name follows the grammar, and its labels are bounded sets."""

import re

import pytest

from shared.metric_names import CATALOGUE, Metric, table

GRAMMAR = re.compile(r"hifi_(gateway|delivery|retrier|pipelines|observe)(_[a-z]+)+")
# A label has a handful of values for each stream or destination, never one for each event.
BOUNDED = {
    *("route", "status", "stream", "result", "destination", "pipeline", "lane", "reason", "tier"),
    *("verdict", "stage", "since", "percentile", "cause", "clock", "state", "outcome", "tenant"),
}
UNITS = (
    *("_seconds", "_bytes", "_up", "_ratio", "_per_second", "_verdict", "_state"),
    *("_events", "_requests", "_topics", "_connections", "_entries", "_tasks", "_records"),
    "_checks",
)


@pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)
def test_a_metric_keeps_to_the_grammar(metric: Metric) -> None:
    assert GRAMMAR.fullmatch(metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.kind == "counter" or metric.name.endswith(UNITS)
    assert metric.meaning.endswith(".")
    assert set(metric.labels) <= BOUNDED


@pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)
def test_a_histogram_has_rising_buckets_and_nothing_else_has_any(metric: Metric) -> None:
    assert (metric.kind == "histogram") == bool(metric.buckets)
    assert list(metric.buckets) == sorted(set(metric.buckets))


def test_no_name_is_given_twice() -> None:
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)


def test_the_table_has_a_row_for_each_metric() -> None:
    head, rule, *rows = table().splitlines()
    assert (head, rule) == ("| metric | kind | labels | meaning |", "|---|---|---|---|")
    assert len(rows) == len(CATALOGUE)
    assert (
        "| `hifi_gateway_requests_total` | counter | route, status"
        " | Requests answered, by route and HTTP status. |"
    ) in rows
    assert any("| gauge | - |" in row for row in rows)
