"""The queries of our dashboards, and what Grafana sends to Prometheus for them."""

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from deploy.dashboards.boards import boards

_VALUES = {"__rate_interval": "1m", "job": ".*", "namespace": ".*"}


class BoardQuery(NamedTuple):
    board: str
    panel: str
    legend: str
    expr: str


def board_queries() -> Sequence[BoardQuery]:
    return [
        BoardQuery(name, panel["title"], target["legendFormat"], target["expr"])
        for name, text in boards().items()
        for panel in json.loads(text)["panels"]
        for target in panel["targets"]
    ]


def as_by_grafana(expr: str, **chosen: str) -> str:
    """Fill in the variables as Grafana does; those that nobody has chosen stand for all."""
    values = _VALUES | chosen
    return re.sub(r"\$(\w+)", lambda found: values.get(found[1], ".*"), expr)
