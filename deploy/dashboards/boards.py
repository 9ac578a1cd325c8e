"""The Grafana dashboards: overview, stream, destination, Spark lanes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from deploy.alerts.rules import LOST_RATIO_MAX, RETENTION_S_MAX
from deploy.dashboards.panels import Panel, dashboard
from shared import metric_names as m
from shared.runtime.defaults import SLOW_AFTER_S

_ALL = '{destination=~"$destination"}'
_STREAM = '{stream=~"$stream"}'
_ACK_BUCKETS = m.GATEWAY_ACK_SECONDS.name + "_bucket"
_QUANTILE = "histogram_quantile(0.99, sum by (le, stream) ({}))"
_OF_STREAM = '{destination=~"($stream)/.*"}'


def boards() -> Mapping[str, str]:
    """Return every dashboard: file name and JSON."""
    # The title, the panels, and the labels to filter by, each with a metric that has it.
    parts: dict[str, tuple[str, Sequence[Panel], Mapping[str, m.Metric]]] = {
        "overview": ("Hifi overview", _OVERVIEW, {}),
        "stream": ("Hifi stream", _STREAM_PANELS, {"stream": m.OBSERVE_EVENTS_PER_SECOND}),
        "destination": ("Hifi destination", _DESTINATION, {"destination": m.OBSERVE_VERDICT}),
        "lanes": ("Hifi Spark lanes", _LANES, {"destination": m.DELIVERY_LANE_UP}),
    }
    drawn = {name: dashboard(f"hifi-{name}", *of_board) for name, of_board in parts.items()}
    return {f"{name}.json": json.dumps(board, indent=1) + "\n" for name, board in drawn.items()}


def slowest_by_stage(labels: str = "") -> str:
    """Return the query for the stages' times at the slowest destination only, so they add up."""
    shares = m.OBSERVE_STAGE_SECONDS.name + labels
    slowest = f"topk(1, sum by (destination) ({shares}))"
    return f"sum by (stage) ({shares} and on (destination) {slowest})"


def _lag(which: str, *, quantile: str) -> str:
    labels = f'{which}stage=~"end to end",since="accepted",quantile="{quantile}"'
    return f"{m.OBSERVE_LAG_SECONDS.name}{{{labels}}}"


def _rate(metric: m.Metric, labels: str = "") -> str:
    return f"rate({metric.name}{labels}[1m])"


def _mean(metric: m.Metric, labels: str = "") -> str:
    name = metric.name
    return (
        f"sum by (destination) (rate({name}_sum{labels}[1m]))"
        f" / sum by (destination) (rate({name}_count{labels}[1m]))"
    )


def _graph(title: str, legend: str, query: str, **looks: Any) -> Panel:
    """Return a panel with one query over time."""
    return Panel(title, "timeseries", ((legend, query),), **looks)


def _figure(title: str, query: str, *, width: int = 4, height: int = 4, **looks: Any) -> Panel:
    """Return a panel with one current number."""
    return Panel(title, "stat", (("", query),), width=width, height=height, **looks)


_OVERVIEW = (
    _figure(
        "Unaccounted", f"sum({m.OBSERVE_UNACCOUNTED_EVENTS.name})", alarms_at=1,
        says="Events that a lane has passed but that have no outcome.",
    ),
    _figure("Lost in the last hour", f"sum({m.OBSERVE_LOST_EVENTS.name})", alarms_at=1),
    _figure(
        "Cannot tell", f"sum({m.OBSERVE_OVERDUE_MINUTES.name})", warns_at=1,
        says="Minutes that should be checked but are not.",
    ),
    _figure(
        "Slowest p95", f"max({_lag('', quantile='0.95')})", unit="s", warns_at=SLOW_AFTER_S / 2,
        alarms_at=SLOW_AFTER_S,
    ),
    _figure("Dead letters", f"sum({m.OBSERVE_DEAD_EVENTS.name})", warns_at=1),
    _figure(
        "Audit behind", f"max({m.OBSERVE_AUDIT_BEHIND_SECONDS.name})", unit="s", warns_at=120,
        alarms_at=600,
    ),
    _graph(
        "Lag, stacked by stage", "{{stage}}", slowest_by_stage(), unit="s", width=16,
        is_stacked=True,
        says="Mean time from acceptance to delivery of the slowest destination at each moment.",
    ),
    Panel(
        "Where time goes", "piechart", (("{{stage}}", slowest_by_stage()),), unit="s", width=8,
        says="For the slowest destination now.",
    ),
    _graph(
        "Worst minute's loss", "{{destination}}", m.OBSERVE_LOST_RATIO.name, unit="percentunit",
        warns_at=1e-9, alarms_at=LOST_RATIO_MAX,
    ),
    _graph(
        "Lost, by stage", "{{stage}}", f"sum by (stage) ({m.OBSERVE_LOST_EVENTS.name})",
        is_stacked=True,
    ),
    _graph(
        "Acknowledged per second", "{{stream}}", m.OBSERVE_EVENTS_PER_SECOND.name, unit="cps",
        is_stacked=True,
    ),
    _graph(
        "Answers to callers", "{{result}}", f"sum by (result) ({_rate(m.GATEWAY_EVENTS)})",
        unit="cps",
    ),
    Panel("Verdicts", "table", (("", f"{m.OBSERVE_VERDICT.name} == 1"),), width=24),
)  # fmt: skip

_STREAM_PANELS = (
    _graph(
        "Acknowledged per second", "{{stream}}", m.OBSERVE_EVENTS_PER_SECOND.name + _STREAM,
        unit="cps",
    ),
    _graph(
        "Age of events at acceptance", "p{{quantile}}",
        m.OBSERVE_INGEST_SECONDS.name + _STREAM, unit="s",
    ),
    _graph(
        "Gateway: time to Kafka's report, p99", "{{stream}}",
        _QUANTILE.format(f"rate({_ACK_BUCKETS}{_STREAM}[1m])"), unit="s",
    ),
    _graph("Bytes in", "{{stream}}", _rate(m.GATEWAY_BODY_BYTES, _STREAM), unit="Bps"),
    Panel(
        "Hot spots", "timeseries",
        (
            ("fullest partition, times its share {{stream}}",
             m.OBSERVE_FULLEST_PARTITION_RATIO.name + _STREAM),
            ("share of the top key {{stream}}", m.OBSERVE_TOP_KEY_RATIO.name + _STREAM),
        ),
        warns_at=2,
    ),
    _graph("Backlog", "{{destination}}", m.OBSERVE_BACKLOG_EVENTS.name + _OF_STREAM),
    _graph(
        "Worst minute's loss", "{{destination}}", m.OBSERVE_LOST_RATIO.name + _OF_STREAM,
        unit="percentunit", warns_at=1e-9, alarms_at=LOST_RATIO_MAX,
    ),
)  # fmt: skip

_DESTINATION = (
    Panel(
        "Lag since accepted", "timeseries",
        (
            ("p50 {{destination}}", _lag('destination=~"$destination",', quantile="0.5")),
            ("p95 {{destination}}", _lag('destination=~"$destination",', quantile="0.95")),
            ("p99 {{destination}}", _lag('destination=~"$destination",', quantile="0.99")),
        ),
        unit="s",
    ),
    _graph(
        "Lag, stacked by stage", "{{stage}}", slowest_by_stage(_ALL), unit="s", is_stacked=True,
        says="For the slowest destination at each moment.",
    ),
    _graph(
        "Oldest event", "{{destination}}", m.OBSERVE_OLDEST_AGE_SECONDS.name + _ALL, unit="s",
        warns_at=RETENTION_S_MAX / 2, alarms_at=RETENTION_S_MAX,
    ),
    _graph(
        "Backlog in bytes", "{{destination}}", m.OBSERVE_BACKLOG_BYTES.name + _ALL, unit="bytes",
    ),
    _graph(
        "Waiting, by cause", "{{cause}}", f"sum by (cause) ({m.OBSERVE_WAITING_EVENTS.name}{_ALL})",
        is_stacked=True,
    ),
    _graph("Dead letters", "{{destination}}", m.OBSERVE_DEAD_EVENTS.name + _ALL),
    _graph(
        "Lost, by stage", "{{stage}}", f"sum by (stage) ({m.OBSERVE_LOST_EVENTS.name}{_ALL})",
        is_stacked=True,
    ),
    _graph(
        "Time since the lane's last report", "{{destination}}",
        m.OBSERVE_SILENT_SECONDS.name + _ALL, unit="s", warns_at=4, alarms_at=120,
    ),
)  # fmt: skip

_LANES = (
    _figure("Lanes up", f"sum({m.DELIVERY_LANE_UP.name}{_ALL})", width=6, height=5),
    _figure(
        "Restarts in an hour", f"sum(increase({m.DELIVERY_LANE_RESTARTS.name}{_ALL}[1h]))", width=6,
        height=5, warns_at=1, alarms_at=5,
    ),
    _figure("Retrier up", f"min({m.RETRIER_LANE_UP.name})", width=6, height=5),
    _figure(
        "Retrier restarts in an hour", f"sum(increase({m.RETRIER_LANE_RESTARTS.name}[1h]))",
        width=6, height=5, warns_at=1, alarms_at=5,
    ),
    _graph(
        "Mean micro-batch time", "{{destination}}", _mean(m.DELIVERY_MICRO_BATCH_SECONDS, _ALL),
        unit="s",
    ),
    _graph(
        "Events read per second", "{{destination}}", _rate(m.DELIVERY_EVENTS_READ, _ALL),
        unit="cps",
    ),
    _graph(
        "Time since progress", "{{destination}}", m.DELIVERY_PROGRESS_AGE_SECONDS.name + _ALL,
        unit="s",
    ),
    _graph(
        "Retrier: events released per second", "released",
        f"sum({_rate(m.RETRIER_EVENTS_RELEASED)})", unit="cps",
    ),
    _graph(
        "Retrier: time since progress", "{{lane}}", m.RETRIER_PROGRESS_AGE_SECONDS.name, unit="s",
    ),
    _figure("Pipelines up", f"sum({m.PIPELINES_LANE_UP.name})", width=6, height=5),
    _figure(
        "Pipelines down or refused", f"sum({m.PIPELINES_LANE_UP.name} == bool 0)", width=6,
        height=5, warns_at=1,
    ),
    _figure(
        "Dead letters of pipelines in an hour",
        f'sum(increase({m.PIPELINES_EVENTS.name}{{outcome="dead"}}[1h]))', width=6, height=5,
        warns_at=1,
    ),
    _figure(
        "Too late for windows in an hour",
        f'sum(increase({m.PIPELINES_EVENTS.name}{{outcome="late"}}[1h]))', width=6, height=5,
        warns_at=1,
    ),
    _graph(
        "Pipelines: events per second, by outcome", "{{pipeline}} {{outcome}}",
        _rate(m.PIPELINES_EVENTS), unit="cps",
    ),
    _graph(
        "Pipelines: mean job time", "{{pipeline}}", _mean(m.PIPELINES_MICRO_BATCH_SECONDS),
        unit="s",
    ),
    _graph(
        "Pipelines: time since progress", "{{pipeline}}", m.PIPELINES_PROGRESS_AGE_SECONDS.name,
        unit="s", alarms_at=120,
    ),
    _graph(
        "Pipelines: jobs tried again, per hour", "{{pipeline}}",
        f"increase({m.PIPELINES_LANE_RESTARTS.name}[1h])",
    ),
)  # fmt: skip
