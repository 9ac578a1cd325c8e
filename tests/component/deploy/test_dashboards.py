"""Dashboards show figures in every Prometheus, of the chosen sites, and of every metric."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from deploy.alerts.rules import ALERTS
from deploy.dashboards.boards import boards
from shared import metric_names as m
from tests.support.deploy.board_queries import as_by_grafana, board_queries
from tests.support.observe.prometheus_programs import promtool

SITE = 'namespace=~"$namespace",job=~"$job"'
NAMED = {
    metric.name + suffix: metric
    for metric in m.CATALOGUE
    for suffix in ("", *(("_bucket", "_sum", "_count") if metric.buckets else ()))
}
# The metrics that are on no board and in no rule, with the reason.
NOT_SHOWN = {
    m.GATEWAY_SPANS: "only those who set up a collector look at it",
    m.DELIVERY_LANE_STALLED_SECONDS: "the time since progress is on a board, and rises earlier",
    m.DELIVERY_FLOW_STATE: "the verdict is on a board, and tells the cause as well",
    m.RETRIER_LANE_STALLED_SECONDS: "the time since progress is on a board, and rises earlier",
    m.PIPELINES_EVENTS_READ: "a board has the same events by outcome",
    m.PIPELINES_KEPT: "a board has the memory that they take",
    m.PIPELINES_EXECUTORS_LOST: "the runbook of HifiPipelineEndsExecutors compares it",
    m.PIPELINES_STUCK_TASKS: "the runbook of HifiPipelineEndsExecutors asks for it",
    m.PIPELINES_SPARK_UP: "0 is right while there is no pipeline",
    m.OBSERVE_MEAN_LAG_SECONDS: "a board stacks its stages, which add up to it",
    m.OBSERVE_AUDIT_RUN_SECONDS: "a board has how far the audit is behind, which matters",
}


def test_every_query_is_promql(tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{number}", "expr": as_by_grafana(query.expr)}
        for number, query in enumerate(board_queries())
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    promtool("check", "rules", str(file))


def test_boards_have_a_place_for_every_panel_and_a_title_for_each() -> None:
    assert set(boards()) == {"overview.json", "stream.json", "destination.json", "lanes.json"}
    assert len(board_queries()) > 30
    for text in boards().values():
        board = json.loads(text)
        taken: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            place = panel["gridPos"]
            assert panel["title"]
            assert place["x"] + place["w"] <= 24
            cells = {
                (place["x"] + x, place["y"] + y)
                for x in range(place["w"])
                for y in range(place["h"])
            }
            assert not cells & taken, panel["title"]
            taken |= cells


def test_each_metric_is_on_a_board_or_in_a_rule_or_there_is_a_reason() -> None:
    exprs = [query.expr for query in board_queries()] + [alert.expr for alert in ALERTS]
    shown = {NAMED[name] for expr in exprs for name in re.findall(r"\bhifi_\w+", expr)}
    assert set(m.CATALOGUE) - shown == set(NOT_SHOWN)


def test_rates_are_over_as_many_scrapes_as_they_need() -> None:
    for query in board_queries():
        windows = re.findall(r"rate\([^\[]*\[([^\]]*)\]", query.expr)
        assert set(windows) <= {"$__rate_interval"}, query


def test_each_line_is_named_by_a_label_that_it_has() -> None:
    for query in board_queries():
        kept = re.search(r"sum by \(([^)]*)\)", query.expr)
        (metric,) = {NAMED[name] for name in re.findall(r"\bhifi_\w+", query.expr)}
        has = kept[1].split(", ") if kept else (*metric.labels, "instance")
        assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= set(has), query


def test_every_query_is_limited_to_the_chosen_sites() -> None:
    for query in board_queries():
        for name in re.findall(r"\bhifi_\w+", query.expr):
            assert query.expr.count(f"{name}{{{SITE}") == query.expr.count(name), query
    for text in boards().values():
        variables = {each["name"]: each for each in json.loads(text)["templating"]["list"]}
        for label in ("namespace", "job"):
            site = variables.pop(label)
            assert (site["current"]["value"], site["allValue"]) == ("$__all", ".*")
        for name, each in variables.items():
            assert name == "source" or SITE in each["query"]["query"]


@pytest.mark.parametrize(
    ("chosen", "statuses"),
    [
        ({}, {"200": 5.0, "503": 1.0}),
        ({"job": "hifi-north"}, {"200": 3.0, "503": 1.0}),
        ({"namespace": "south"}, {"200": 1.0}),
    ],
)
def test_the_overview_has_requests_of_all_sites_or_of_the_chosen_one(
    tmp_path: Path, chosen: dict[str, str], statuses: dict[str, float]
) -> None:
    rates = {
        # A plain Prometheus may have neither label.
        'status="200"': 1,
        'status="200",job="hifi-north"': 3,
        'status="503",job="hifi-north"': 1,
        'status="200",job="hifi-south",namespace="south"': 1,
    }
    series = {f"{m.GATEWAY_REQUESTS.name}{{{labels}}}": rate for labels, rate in rates.items()}
    expr = shown_by("overview.json", "Requests, by status")
    samples = {f'{{status="{status}"}}': rate for status, rate in statuses.items()}
    check(tmp_path, as_by_grafana(expr, **chosen), series, samples)


def test_boards_have_deliveries_by_outcome(tmp_path: Path) -> None:
    rates = {("a/one", "ok"): 3, ("a/two", "ok"): 1, ("a/two", "recoverable"): 2}
    series = {
        f'{m.DELIVERY_ATTEMPTS.name}{{destination="{who}",outcome="{outcome}"}}': rate
        for (who, outcome), rate in rates.items()
    }
    overview = shown_by("overview.json", "Deliveries, by outcome")
    one = shown_by("destination.json", "Deliveries, by outcome")
    samples = {'{outcome="ok"}': 4.0, '{outcome="recoverable"}': 2.0}
    check(tmp_path, as_by_grafana(overview), series, samples)
    check(tmp_path, as_by_grafana(one, destination="a/one"), series, {'{outcome="ok"}': 3.0})


def test_each_pipeline_has_its_own_mean_job_time(tmp_path: Path) -> None:
    name = m.PIPELINES_MICRO_BATCH_SECONDS.name
    series = {
        f'{name}_{part}{{pipeline="{pipeline}"}}': rate
        for pipeline, total, count in (("fast", 1, 2), ("slow", 9, 3))
        for part, rate in (("sum", total), ("count", count))
    }
    expr = shown_by("lanes.json", "Pipelines: mean job time")
    samples = {'{pipeline="fast"}': 0.5, '{pipeline="slow"}': 3.0}
    check(tmp_path, as_by_grafana(expr), series, samples)


def shown_by(board: str, panel: str) -> str:
    (expr,) = (q.expr for q in board_queries() if (q.board, q.panel) == (board, panel))
    return expr


def check(folder: Path, expr: str, rates: dict[str, int], samples: dict[str, float]) -> None:
    """Check a query's answer about counters that grow at these rates."""
    case: dict[str, Any] = {
        "interval": "15s",
        "input_series": [
            {"series": series, "values": f"0+{15 * rate}x20"} for series, rate in rates.items()
        ],
        "promql_expr_test": [
            {
                "expr": expr,
                "eval_time": "5m",
                "exp_samples": [{"labels": of, "value": value} for of, value in samples.items()],
            }
        ],
    }
    file = folder / "case.yaml"
    file.write_text(json.dumps({"tests": [case]}))
    promtool("test", "rules", str(file))
