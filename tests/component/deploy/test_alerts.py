"""The alert rules: promtool's own unit tests, and a real Prometheus that loads and fires them."""

import json
import urllib.parse
from pathlib import Path

from deploy.alerts.rules import ALERTS
from deploy.dashboards.boards import slowest_by_stage
from deploy.local.ports import pick_free
from observe.metrics import ObserveMetrics
from shared import metric_names
from shared.metric_names import OBSERVE_STAGE_SECONDS
from tests.support.console.console_fixtures import overview
from tests.support.deploy.board_queries import as_by_grafana
from tests.support.deploy.stack_fixtures import fetch, wait_until
from tests.support.observe.alert_cases import CASES
from tests.support.observe.prometheus_programs import RULES, ask, prometheus, promtool

DESTINATIONS = {"orders/billing", "orders/lake", "players/stats"}


def test_every_alert_has_a_case() -> None:
    assert {case.alert for case in CASES} == {alert.name for alert in ALERTS}


def test_stacked_lag_is_the_mean_of_the_slowest_destination(tmp_path: Path) -> None:
    name = OBSERVE_STAGE_SECONDS.name
    values = {
        ("a/one", "queue"): "1",
        ("a/one", "delivery"): "5",
        # The slowest destination is not the slowest at every stage.
        ("a/two", "queue"): "8",
        ("a/two", "delivery"): "2",
    }
    case = {
        "interval": "30s",
        "input_series": [
            {"series": f'{name}{{destination="{who}",stage="{stage}"}}', "values": value}
            for (who, stage), value in values.items()
        ],
        "promql_expr_test": [
            {
                "expr": as_by_grafana(slowest_by_stage()),
                "eval_time": "0s",
                "exp_samples": [
                    {"labels": '{stage="delivery"}', "value": 2},
                    {"labels": '{stage="queue"}', "value": 8},
                ],
            }
        ],
    }
    file = tmp_path / "case.yaml"
    file.write_text(json.dumps({"tests": [case]}))
    promtool("test", "rules", str(file))


def test_promtool_agrees_with_every_case(tmp_path: Path) -> None:
    alerts = {alert.name: alert for alert in ALERTS}
    tests = []
    for case in CASES:
        alert = alerts[case.alert]
        expected = {
            "exp_labels": {"severity": alert.severity, **case.labels},
            "exp_annotations": {
                "summary": case.summary,
                "description": alert.description.replace("{{ $value }}", case.value),
                "runbook": alert.runbook,
                "runbook_url": alert.runbook_url,
            },
        }
        for series, found in ((case.fires, [expected]), (case.quiet, [])):
            tests.append(
                {
                    "name": case.alert,
                    "interval": "30s",
                    "input_series": [{"series": s, "values": v} for s, v in series.items()],
                    "alert_rule_test": [
                        {"eval_time": case.at, "alertname": case.alert, "exp_alerts": found}
                    ],
                }
            )
    file = tmp_path / "cases.yaml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "tests": tests}))
    promtool("check", "rules", str(RULES))
    promtool("test", "rules", str(file))


def test_a_real_prometheus_loads_the_rules_scrapes_us_and_fires(tmp_path: Path) -> None:
    metrics = ObserveMetrics()
    port, own = pick_free(2)
    metrics.serve(host="127.0.0.1", port=port)
    metrics.show(overview(unaccounted=3))
    with prometheus(tmp_path, own=own, scraped=port, asks_s=1, judges_s=1) as url:
        wait_until(lambda: "ready" in fetch(f"{url}/-/ready").lower(), what="Prometheus is ready")
        loaded = ask(url, "rules")["groups"]
        names = {rule["name"] for group in loaded for rule in group["rules"]}
        assert names == {alert.name for alert in ALERTS}

        def firing() -> set[str]:
            alerts = ask(url, "alerts")["alerts"]
            return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}

        wait_until(lambda: "HifiLoss" in firing(), what=lambda: f"it fires; only {firing()} does")
        query = urllib.parse.quote(f"{metric_names.OBSERVE_LOST_EVENTS.name} > 0")
        found = ask(url, f"query?query={query}")["result"]
        assert [one["value"][1] for one in found] == ["3"]
        shares = f"sum by (destination) ({OBSERVE_STAGE_SECONDS.name})"
        whole = f'{metric_names.OBSERVE_MEAN_LAG_SECONDS.name}{{since="accepted"}}'
        query = urllib.parse.quote(f"abs({shares} - on (destination) {whole}) < 0.000001")
        found = ask(url, f"query?query={query}")["result"]
        assert {one["metric"]["destination"] for one in found} == DESTINATIONS
        assert all(rule["health"] in {"ok", "unknown"}
                   for group in ask(url, "rules")["groups"] for rule in group["rules"])  # fmt: skip
