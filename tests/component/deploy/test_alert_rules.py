"""Alert rules as text: they match the metrics and the runbooks."""

import importlib
import re
import sys

from deploy.alerts.rules import ALERTS
from observe.settings import ObserveSettings
from shared.metric_names import CATALOGUE
from shared.retry.schedule import RetrySchedule
from tests.tidy import sources

RULES = sources.ROOT / "deploy" / "alerts" / "hifi.yaml"


def test_rules_name_only_metrics_and_labels_that_there_are() -> None:
    suffixes = ("", "_bucket", "_sum", "_count")
    known = {metric.name + suffix: metric for metric in CATALOGUE for suffix in suffixes}
    for alert in ALERTS:
        names = re.findall(r"\bhifi_\w+", alert.expr)
        assert names, alert.name
        assert [name for name in names if name not in known] == []
        for name, matchers in re.findall(r"\b(hifi_\w+)\{([^}]*)\}", alert.expr):
            labels = re.findall(r"(\w+)[=!]", matchers)
            assert set(labels) <= set(known[name].labels), (alert.name, name)
        assert alert.expr.count("(") == alert.expr.count(")")
        assert alert.expr.count("[") == alert.expr.count("]")


def test_each_alert_has_a_runbook_and_each_runbook_an_alert() -> None:
    pages = {path.stem for path in (sources.ROOT / "docs" / "runbooks").glob("Hifi*.md")}
    assert pages == {alert.name for alert in ALERTS}
    for alert in ALERTS:
        page = (sources.ROOT / alert.runbook).read_text()
        assert page.startswith(f"# {alert.name}\n")
        for part in ("## Meaning", "## Look", "## Fix"):
            assert part in page, (alert.name, part)


def test_the_link_of_an_alert_leads_to_its_runbook_in_the_repository() -> None:
    module = (sources.ROOT / "clients" / "go" / "go.mod").read_text().split()[1]
    repository = module.removesuffix("/clients/go")
    for alert in ALERTS:
        page = alert.runbook_url.removeprefix(f"https://{repository}/blob/main/")
        assert (sources.ROOT / page).is_file(), alert.runbook_url


def test_texts_name_only_labels_that_their_alert_has() -> None:
    for alert in ALERTS:
        for label in re.findall(r"\$labels\.(\w+)", alert.summary + alert.description):
            assert (
                re.search(rf"by \([^)]*\b{label}\b", alert.expr)
                or label in alert.expr
                or (alert.name == "HifiLagBurn" and label == "destination")
            ), (alert.name, label)


def test_alerts_call_late_what_the_first_screen_calls_slow() -> None:
    exprs = {alert.name: alert.expr for alert in ALERTS}
    settings = ObserveSettings()
    assert f"_age_seconds > {settings.slow_after_s:g} or" in exprs["HifiDestinationSlow"]
    assert f"> {settings.overdue_after_s:g} or" in exprs["HifiAuditBehind"]


def test_alerts_say_how_long_events_are_tried_as_the_schedule_has_it() -> None:
    tried = f"{RetrySchedule().deadline_s / 3600:g} h"
    said = {
        alert.name: re.findall(r"\d+ h\b", alert.description)
        for alert in ALERTS
        if "dead letters" in alert.description
    }
    assert {name for name, hours in said.items() if hours} == {
        "HifiInternalFault",
        "HifiUnknownDestination",
    }
    assert [name for name, hours in said.items() if set(hours) - {tried}] == []


def test_pyyaml_reads_the_file_as_it_was_meant() -> None:
    yaml = importlib.import_module("yaml")
    groups = yaml.safe_load(RULES.read_text())["groups"]
    read = {rule["alert"]: rule for group in groups for rule in group["rules"]}
    assert list(read) == [alert.name for alert in ALERTS]
    for alert in ALERTS:
        rule = read[alert.name]
        assert rule["expr"] == alert.expr
        assert rule["annotations"]["summary"] == alert.summary
        assert rule["annotations"]["runbook_url"] == alert.runbook_url
        assert rule["labels"] == {"severity": alert.severity}
    assert sys.version_info >= (3, 11)
