"""Writes the alert rules as the YAML that Prometheus loads."""

import json

from deploy.alerts.alert import Alert
from deploy.alerts.rules import GROUPS, INTERVALS_S

_HEAD = "# Written by docs/generate.py from deploy/alerts/rules.py: change that, then run it.\n"


def rule_file() -> str:
    """Return the whole file; texts are JSON strings, which are valid YAML whatever they contain."""
    lines = [_HEAD + "groups:"]
    for name, alerts in GROUPS.items():
        lines += [f"  - name: {name}"]
        lines += [f"    interval: {INTERVALS_S[name]}s"] if name in INTERVALS_S else []
        lines += ["    rules:"]
        for alert in alerts:
            lines += _rule(alert)
    return "\n".join(lines) + "\n"


def _rule(alert: Alert) -> list[str]:
    return [
        f"      - alert: {alert.name}",
        "        expr: |-",
        f"          {alert.expr}",
        f"        for: {alert.for_}",
        "        labels:",
        f"          severity: {alert.severity}",
        "        annotations:",
        f"          summary: {_text(alert.summary)}",
        f"          description: {_text(alert.description)}",
        f"          runbook: {_text(alert.runbook)}",
        f"          runbook_url: {_text(alert.runbook_url)}",
    ]


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
