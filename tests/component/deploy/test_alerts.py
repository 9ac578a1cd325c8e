"""The alert rules: promtool's own unit tests, and a real Prometheus that loads and fires them."""

import json
import subprocess
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from deploy.alerts.rules import ALERTS
from deploy.dashboards.boards import slowest_by_node
from deploy.local.ports import pick_free
from observe.metrics import ObserveMetrics
from shared import metric_names
from shared.metric_names import OBSERVE_NODE_SECONDS
from tests.support.console_fixtures import overview
from tests.support.prometheus_programs import RULES, ask, program, prometheus
from tests.support.stack_fixtures import fetch, wait_until

DESTINATIONS = {"orders/billing", "orders/lake", "players/stats"}
BILLING = 'destination="orders/billing"'


@dataclass(frozen=True)
class Case:
    """Series that make one alert fire, series that must not, and what the alert then says."""

    alert: str
    fires: dict[str, str]
    quiet: dict[str, str]
    at: str
    summary: str
    labels: dict[str, str]
    # Where the description says it, too.
    value: str = ""


DESTINATION = {"destination": "orders/billing"}


def verdict_is(word: str, cause: str) -> str:
    return f'hifi_observe_verdict{{{BILLING},verdict="{word}",cause="{cause}"}}'


OLDEST = f"hifi_observe_oldest_age_seconds{{{BILLING}}}"
LAG = f'hifi_observe_lag_seconds{{{BILLING},node="end to end",since="accepted",quantile="0.95"}}'
LAG_LABELS = {**DESTINATION, "node": "end to end", "since": "accepted", "quantile": "0.95"}
CASES = [
    Case(
        "HifiLossOverOnePercent",
        {f"hifi_observe_lost_ratio{{{BILLING}}}": "0 0.02x10"},
        {f"hifi_observe_lost_ratio{{{BILLING}}}": "0.01x10"},
        "1m",
        "orders/billing has lost 2% of a minute",
        DESTINATION,
    ),
    Case(
        "HifiLoss",
        {
            f'hifi_observe_lost_events{{{BILLING},node="kafka"}}': "0 2x10",
            f'hifi_observe_lost_events{{{BILLING},node="delivery"}}': "0 1x10",
        },
        {f'hifi_observe_lost_events{{{BILLING},node="kafka"}}': "0x10"},
        "1m",
        "orders/billing has lost 3 events",
        DESTINATION,
    ),
    Case(
        "HifiUnaccounted",
        {f"hifi_observe_unaccounted_events{{{BILLING}}}": "7x20"},
        {f"hifi_observe_unaccounted_events{{{BILLING}}}": "7 7 0x20"},
        "4m",
        "7 events of orders/billing have no outcome",
        DESTINATION,
    ),
    Case(
        "HifiCannotTell",
        {f"hifi_observe_blind_minutes{{{BILLING}}}": "1x60"},
        {f"hifi_observe_blind_minutes{{{BILLING}}}": "1x10 0x60"},
        "12m",
        "It cannot be told whether orders/billing is complete",
        DESTINATION,
        "1",
    ),
    Case(
        "HifiCannotTell",
        # A week of minutes, and Hifi is started anew in between.
        {f"hifi_observe_blind_minutes{{{BILLING}}}": "10068x20 _ _ 10069x60"},
        {f"hifi_observe_blind_minutes{{{BILLING}}}": "10068x10 0x60"},
        "25m",
        "It cannot be told whether orders/billing is complete",
        DESTINATION,
        "10069",
    ),
    Case(
        "HifiUnreadableRecords",
        {"hifi_observe_unreadable_count": "0 3x10"},
        {"hifi_observe_unreadable_count": "0x10"},
        "1m",
        "3 records prove nothing: the audit could not read them",
        {},
    ),
    Case(
        "HifiAuditBehind",
        {"hifi_observe_audit_behind_seconds": "700x40", "hifi_observe_up": "1x40"},
        {"hifi_observe_audit_behind_seconds": "60x40", "hifi_observe_up": "1x40"},
        "8m",
        "Nobody looks for losses now",
        {},
    ),
    Case(
        "HifiAuditBehind",
        {"hifi_gateway_up": "1x40"},
        {"hifi_observe_up": "1x40"},
        "8m",
        "Nobody looks for losses now",
        {},
    ),
    Case(
        "HifiLagBurn",
        {LAG: "1x60 45x60"},
        # A quarter of a minute in an hour is within the budget.
        {LAG: "1x90 45 45 1x40"},
        "50m",
        "orders/billing is late for too much of the time",
        LAG_LABELS,
    ),
    Case(
        "HifiLagBurn",
        {LAG: "1x30 45x8"},
        # As late, but within the first minutes of all: the hour says nothing yet.
        {LAG: "_x30 45x8"},
        "19m",
        "orders/billing is late for too much of the time",
        LAG_LABELS,
    ),
    Case(
        "HifiStreamStopped",
        {f"hifi_observe_silent_seconds{{{BILLING}}}": "0+30x30"},
        {
            f"hifi_observe_silent_seconds{{{BILLING}}}": "0 30 60 90 0x30",
            # A part of it was down when it was paused.
            f"hifi_delivery_lane_up{{{BILLING}}}": "1 0 stale",
        },
        "8m",
        "orders/billing makes no progress",
        DESTINATION,
    ),
    Case(
        "HifiStreamStopped",
        {f"hifi_delivery_lane_up{{{BILLING}}}": "0x30"},
        {f"hifi_delivery_lane_up{{{BILLING}}}": "1 0 0 1x30"},
        "4m",
        "orders/billing makes no progress",
        DESTINATION,
    ),
    Case(
        "HifiRetrierStopped",
        {
            'hifi_retrier_lane_up{lane="retrier"}': "1x40",
            'hifi_retrier_lane_up{lane="retrier-slow"}': "0x40",
        },
        {'hifi_retrier_lane_up{lane="retrier"}': "1x40"},
        "8m",
        "The retrier is down: waiting events wait on",
        {},
    ),
    Case(
        "HifiRetentionRisk",
        {f"hifi_observe_oldest_age_seconds{{{BILLING}}}": "400000x10"},
        {f"hifi_observe_oldest_age_seconds{{{BILLING}}}": "300000x10"},
        "1m",
        "Events of orders/billing are 4d 15h 6m 40s old",
        DESTINATION,
    ),
    *(
        Case(
            alert,
            # Its cause may change meanwhile.
            {
                verdict_is(word, "status_503"): "1x20 _x20",
                verdict_is(word, "read_timeout"): "_x20 1x40",
                OLDEST: "45x60",
            },
            {verdict_is("OK", ""): "1x60", OLDEST: "45x60"},
            "25m",
            f"orders/billing is {word}: read_timeout",
            {**DESTINATION, "verdict": word},
        )
        for alert, word in (
            ("HifiDestinationFailing", "FAILING"),
            ("HifiDestinationRejecting", "REJECTING"),
            ("HifiDestinationThrottled", "THROTTLED"),
            ("HifiDestinationSlow", "SLOW"),
            ("HifiDestinationHeld", "HELD"),
            ("HifiDestinationHeld", "DISABLED"),
        )
    ),
    Case(
        "HifiDestinationSlow",
        # Its 95 % are late, whatever waits.
        {verdict_is("SLOW", "slow_answers"): "1x60", OLDEST: "3x60", LAG: "31x60"},
        # It answers slowly and keeps up.
        {verdict_is("SLOW", "slow_answers"): "1x60", OLDEST: "3x60", LAG: "3x60"},
        "25m",
        "orders/billing is SLOW: slow_answers",
        {**DESTINATION, "verdict": "SLOW"},
    ),
    *(
        Case(
            "HifiDestinationInTrouble",
            # From the first time on that Prometheus sees it.
            {verdict_is("OK", ""): "1x1 _x9", verdict_is(word, "status_503"): "_x2 1x9"},
            {verdict_is("PAUSED", "paused"): "1x10"},
            "1m",
            f"orders/billing is {word}: status_503",
            {**DESTINATION, "verdict": word},
        )
        for word in ("SLOW", "THROTTLED", "FAILING", "REJECTING", "HELD", "DISABLED", "STALLED")
    ),
    Case(
        "HifiInternalFault",
        {f'hifi_delivery_events_parked_total{{{BILLING},cause="internal"}}': "0x2 3x20"},
        {f'hifi_delivery_events_parked_total{{{BILLING},cause="breaker_open"}}': "0+3x20"},
        "5m",
        "Events of orders/billing wait for a fault of ours",
        DESTINATION,
    ),
    Case(
        "HifiDestinationWillBeDisabled",
        {f"hifi_delivery_failing_ratio{{{BILLING}}}": "0.68+0.01x10"},
        {f"hifi_delivery_failing_ratio{{{BILLING}}}": "1x10"},
        "2m",
        "orders/billing will be disabled: 72% of the time until then have passed",
        DESTINATION,
    ),
    Case(
        "HifiUnknownDestination",
        {f"hifi_observe_unknown_waiting_events{{{BILLING}}}": "7x60"},
        # An upgrade that takes its time.
        {f"hifi_observe_unknown_waiting_events{{{BILLING}}}": "7x20 _x40"},
        "20m",
        "7 events wait for orders/billing, of which nobody here knows",
        DESTINATION,
    ),
    Case(
        "HifiDeadLetterGrowth",
        {f"hifi_observe_dead_events{{{BILLING}}}": "100+10x60"},
        {f"hifi_observe_dead_events{{{BILLING}}}": "100+1x60"},
        "20m",
        "orders/billing has 300 more dead letters in 15 minutes",
        DESTINATION,
    ),
    Case(
        "HifiGatewayDown",
        {"hifi_gateway_up": "0x10"},
        {"hifi_gateway_up": "1 0 1x10"},
        "3m",
        "No gateway takes events",
        {},
    ),
    Case(
        "HifiAckErrorBurn",
        {
            'hifi_gateway_events_total{stream="orders",result="accepted"}': "0+970x200",
            'hifi_gateway_events_total{stream="orders",result="unknown"}': "0+30x200",
        },
        # One of a few events in a quiet hour.
        {
            'hifi_gateway_events_total{stream="orders",result="accepted"}': "0+1x200",
            'hifi_gateway_events_total{stream="orders",result="unknown"}': "0 1x199",
        },
        "61m",
        "The gateway cannot say yes to too many events",
        {},
    ),
    Case(
        "HifiUnderMinIsr",
        {"hifi_observe_under_min_isr_topics": "2x10"},
        {"hifi_observe_under_min_isr_topics": "2 0x10"},
        "3m",
        "2 topics have too few replicas in sync",
        {},
    ),
    Case(
        "HifiShortOfCopies",
        {"hifi_gateway_short_of_copies_topics": "1x20"},
        {"hifi_gateway_short_of_copies_topics": "1x3 0x20"},
        "9m",
        "1 streams are kept in too few copies",
        {},
    ),
    Case(
        "HifiClockSkew",
        {'hifi_observe_clock_skew_seconds{clock="gateway"}': "-4x40"},
        {'hifi_observe_clock_skew_seconds{clock="gateway"}': "0.9x40"},
        "8m",
        "The clock of gateway is 4s off the broker's",
        {"clock": "gateway"},
    ),
]


def test_every_alert_has_a_case() -> None:
    assert {case.alert for case in CASES} == {alert.name for alert in ALERTS}


def test_stacked_lag_is_the_mean_of_the_slowest_destination(tmp_path: Path) -> None:
    name = OBSERVE_NODE_SECONDS.name
    values = {
        ("a/one", "kafka"): "1",
        ("a/one", "delivery"): "5",
        # The slowest has not the most of every node.
        ("a/two", "kafka"): "8",
        ("a/two", "delivery"): "2",
    }
    case = {
        "interval": "30s",
        "input_series": [
            {"series": f'{name}{{destination="{who}",node="{node}"}}', "values": value}
            for (who, node), value in values.items()
        ],
        "promql_expr_test": [
            {
                "expr": slowest_by_node(),
                "eval_time": "0s",
                "exp_samples": [
                    {"labels": '{node="delivery"}', "value": 2},
                    {"labels": '{node="kafka"}', "value": 8},
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


def promtool(*arguments: str) -> None:
    ended = subprocess.run(
        [program("promtool"), *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


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
        shares = f"sum by (destination) ({OBSERVE_NODE_SECONDS.name})"
        whole = f'{metric_names.OBSERVE_MEAN_LAG_SECONDS.name}{{since="accepted"}}'
        query = urllib.parse.quote(f"abs({shares} - on (destination) {whole}) < 0.000001")
        found = ask(url, f"query?query={query}")["result"]
        assert {one["metric"]["destination"] for one in found} == DESTINATIONS
        assert all(rule["health"] in {"ok", "unknown"}
                   for group in ask(url, "rules")["groups"] for rule in group["rules"])  # fmt: skip
