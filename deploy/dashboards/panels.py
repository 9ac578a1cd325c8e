"""Turns panels, with titles, queries and units, into the JSON that Grafana loads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from shared.metric_names import CATALOGUE, Metric

# The width of Grafana's grid.
WIDTH = 24
# A data source that the person who imports the dashboard chooses.
_SOURCE = {"type": "prometheus", "uid": "${source}"}
# Limits a query to the sites that the reader chooses, if several share a Prometheus. The names of
# the labels are those of Prometheus and of Kubernetes.
SITE_LABELS = ("namespace", "job")
SITE = ",".join(f'{label}=~"${label}"' for label in SITE_LABELS)
# Each process has one of these.
_UPS = "|".join(metric.name for metric in CATALOGUE if metric.name.endswith("_up"))
_ANY_PROCESS = f'{{__name__=~"{_UPS}"}}'
# Written for Grafana 10 and later (schema 39).
_SCHEMA = 39

Kind = Literal["timeseries", "stat", "piechart", "table"]

_OPTIONS: dict[str, dict[str, Any]] = {
    "piechart": {"pieType": "donut", "legend": {"displayMode": "table", "values": ["percent"]}},
    "timeseries": {"legend": {"displayMode": "list"}, "tooltip": {"mode": "multi", "sort": "desc"}},
    "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "background"},
    "table": {},
}


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel; each of its `queries` is a legend and a PromQL expression."""

    title: str
    kind: Kind
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    width: int = 12
    height: int = 8
    is_stacked: bool = False
    # The values from which it is orange, and red.
    warns_at: float | None = None
    alarms_at: float | None = None
    says: str = ""


def dashboard(
    uid: str, title: str, panels: Sequence[Panel], variables: Mapping[str, Metric]
) -> dict[str, Any]:
    """Return a dashboard; each variable takes its values from its metric's label of that name."""
    sites = [_variable(label, _ANY_PROCESS, all_value=".*") for label in SITE_LABELS]
    others = [_variable(name, f"{metric.name}{{{SITE}}}") for name, metric in variables.items()]
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "uid": uid,
        "title": title,
        "tags": ["hifi"],
        "schemaVersion": _SCHEMA,
        "editable": False,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "utc",
        "templating": {"list": [source, *sites, *others]},
        "links": [
            {
                "title": "Hifi",
                "type": "dashboards",
                "tags": ["hifi"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "panels": _placed(panels),
    }


def _placed(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """Place the panels row by row, from left to right."""
    placed = []
    x = y = row_height = 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > WIDTH:
            x, y, row_height = 0, y + row_height, 0
        place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
        placed.append({"id": number, "gridPos": place, **_panel(panel)})
        x += panel.width
        row_height = max(row_height, panel.height)
    return placed


def _panel(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.warns_at is not None:
        steps.append({"color": "orange", "value": panel.warns_at})
    if panel.alarms_at is not None:
        steps.append({"color": "red", "value": panel.alarms_at})
    custom = (
        {"fillOpacity": 60, "stacking": {"mode": "normal"}, "lineWidth": 0}
        if panel.is_stacked
        else {"fillOpacity": 8}
    )
    is_now = panel.kind != "timeseries"
    return {
        "title": panel.title,
        "description": panel.says,
        "type": panel.kind,
        "datasource": _SOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "expr": expr,
                "legendFormat": legend,
                "datasource": _SOURCE,
                "instant": is_now,
                "format": "table" if panel.kind == "table" else "time_series",
            }
            for number, (legend, expr) in enumerate(panel.queries)
        ],
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "custom": custom if panel.kind == "timeseries" else {},
                "color": {"mode": "thresholds" if len(steps) > 1 else "palette-classic"},
                "thresholds": {"mode": "absolute", "steps": steps},
            },
            "overrides": [],
        },
        "options": _OPTIONS[panel.kind],
    }


def _variable(name: str, series: str, *, all_value: str | None = None) -> dict[str, Any]:
    """Return a variable; `all_value` is the pattern for all, else those of all found values."""
    query = f"label_values({series}, {name})"
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": "values"},
        "refresh": 2,
        "includeAll": True,
        "allValue": all_value,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }
