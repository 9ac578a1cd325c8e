"""Old names are found and replaced in any text, and the list of them is that of the changelog."""

import re

import pytest

from deploy.alerts.rules import ALERTS as ALERT_RULES
from deploy.cli.migrating import names
from deploy.cli.migrating.old_names import OldName, old_names, rewritten
from shared.metric_names import CATALOGUE, RENAMED
from tests.tidy import sources

OLD = "HIFI_OBSERVE_SETTLE_S"
NEW = "HIFI_OBSERVE_CHECK_AFTER_S"
# What the last column of the changelog's table says about names that stand for nothing else.
KINDS = {
    "settings": names.SETTINGS,
    "metrics": RENAMED,
    "metrics, dashboards": RENAMED,
    "alert, runbook": names.ALERTS,
    "log of pipelines": names.LOG_LINES,
}


@pytest.mark.parametrize(
    "text",
    [
        "{}=90\n",
        "export {}=90\r\n",
        'Environment="{}=90"\n',
        "    environment:\n      {}: '90'\n",
        "      - name: {}\n        value: '90'",
        "# {} is 90 s here\n",
    ],
)
def test_a_setting_is_renamed_wherever_it_is(text: str) -> None:
    (found,) = old_names(text.format(OLD))
    assert (found.name, found.new_name, found.is_set_twice) == (OLD, NEW, False)
    assert rewritten(text.format(OLD)) == text.format(NEW)


def test_each_line_is_named() -> None:
    text = f"A=1\n{OLD}=2\nhifi_observe_node_seconds hifi_observe_blind_minutes\n"
    assert [(each.line, each.name) for each in old_names(text)] == [
        (2, OLD),
        (3, "hifi_observe_node_seconds"),
        (3, "hifi_observe_blind_minutes"),
    ]


def test_longer_names_are_others() -> None:
    text = f"MY_{OLD}=1\n{OLD}_MAX=1\nmy_hifi_observe_node_seconds\n"
    assert list(old_names(text)) == []
    assert rewritten(text) == text


def test_a_name_that_is_set_twice_is_left_to_a_person() -> None:
    text = f"{OLD}=90\n{NEW}=120\nHIFI_RETRIER_SLOTS=4\n"
    assert list(old_names(text)) == [
        OldName(1, OLD, is_set_twice=True),
        OldName(3, "HIFI_RETRIER_SLOTS", is_set_twice=False),
    ]
    assert rewritten(text) == f"{OLD}=90\n{NEW}=120\nHIFI_RETRIER_TASK_PLACES=4\n"


def test_the_list_is_that_of_the_changelog() -> None:
    listed: dict[str, str] = {}
    for line in (sources.ROOT / "CHANGELOG.md").read_text().splitlines():
        old, new, where = ([*map(str.strip, line.split("|")[1:4]), "", "", ""])[:3]
        if where in KINDS:
            pairs = zip(*(re.findall(r"`([^`]+)`", cell) for cell in (old, new)), strict=True)
            rows = dict(pairs)
            assert rows.items() <= KINDS[where].items(), line
            listed |= rows
    assert listed == names.ALL


def test_every_new_name_exists() -> None:
    for setting in names.SETTINGS.values():
        _, service, field = setting.lower().split("_", 2)
        settings = (sources.ROOT / service / "settings.py").read_text()
        assert re.search(rf"^    {field}: ", settings, re.MULTILINE), setting
    assert set(RENAMED.values()) <= {metric.name for metric in CATALOGUE}
    assert set(names.ALERTS.values()) <= {alert.name for alert in ALERT_RULES}
    assert not names.ALL.keys() & names.ALL.values()
