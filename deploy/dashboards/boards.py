"""The Grafana dashboards: overview, stream, destination, Spark lanes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from deploy.alerts.rules import LOST_RATIO_MAX, RETENTION_S_MAX
from deploy.dashboards.panels import SITE, Panel, dashboard
from shared import metric_names as m
from shared.runtime.defaults import SLOW_AFTER_S

_ALL = 'destination=~"$destination"'
_STREAM = 'stream=~"$stream"'
_QUANTILE = "histogram_quantile(0.99, sum by (le, stream) ({}))"
_OF_STREAM = 'destination=~"($stream)/.*"'


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
    shares = _of(m.OBSERVE_STAGE_SECONDS, labels)
    slowest = f"topk(1, sum by (destination) ({shares}))"
    return f"sum by (stage) ({shares} and on (destination) {slowest})"


def _of(metric: m.Metric, labels: str = "", *, part: str = "") -> str:
    """Return the series of the sites that the reader has chosen."""
    return f"{metric.name}{part}{{{','.join(filter(None, (SITE, labels)))}}}"


def _lag(which: str = "", *, percentile: str) -> str:
    end_to_end = f'stage=~"end to end",since="accepted",percentile="{percentile}"'
    return _of(m.OBSERVE_LAG_SECONDS, ",".join(filter(None, (which, end_to_end))))


def _rate(metric: m.Metric, labels: str = "", *, part: str = "") -> str:
    # Grafana makes it four scrapes or longer.
    return f"rate({_of(metric, labels, part=part)}[$__rate_interval])"


def _mean(metric: m.Metric, labels: str = "") -> str:
    """Return the mean of a histogram's values, for each value of its labels."""
    total, count = (
        f"sum by ({', '.join(metric.labels)}) ({_rate(metric, labels, part=part)})"
        for part in ("_sum", "_count")
    )
    return f"{total} / {count}"


def _in_hour(metric: m.Metric, labels: str = "", *, by: str = "") -> str:
    return f"sum by ({by}) (increase({_of(metric, labels)}[1h]))"


def _graph(title: str, legend: str, query: str, **looks: Any) -> Panel:
    """Return a panel with one query over time."""
    return Panel(title, "timeseries", ((legend, query),), **looks)


def _figure(title: str, query: str, *, width: int = 4, height: int = 4, **looks: Any) -> Panel:
    """Return a panel with one current number."""
    return Panel(title, "stat", (("", query),), width=width, height=height, **looks)


_OVERVIEW = (
    _figure(
        "Unaccounted", f"sum({_of(m.OBSERVE_UNACCOUNTED_EVENTS)})", alarms_at=1,
        says="Events that a lane has passed but that have no outcome.",
    ),
    _figure("Lost in the last hour", f"sum({_of(m.OBSERVE_LOST_EVENTS)})", alarms_at=1),
    _figure(
        "Cannot tell", f"sum({_of(m.OBSERVE_OVERDUE_CHECKS)})", warns_at=1,
        says="Minutes that should be checked but are not.",
    ),
    _figure(
        "Slowest p95", f"max({_lag(percentile='95')})", unit="s", warns_at=SLOW_AFTER_S / 2,
        alarms_at=SLOW_AFTER_S,
    ),
    _figure("Dead letters", f"sum({_of(m.OBSERVE_DEAD_EVENTS)})", warns_at=1),
    _figure(
        "Audit behind", f"max({_of(m.OBSERVE_AUDIT_BEHIND_SECONDS)})", unit="s", warns_at=120,
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
        "Requests, by status", "{{status}}", f"sum by (status) ({_rate(m.GATEWAY_REQUESTS)})",
        unit="reqps", is_stacked=True,
    ),
    _graph(
        "Deliveries, by outcome", "{{outcome}}",
        f"sum by (outcome) ({_rate(m.DELIVERY_ATTEMPTS)})", unit="reqps", is_stacked=True,
        says="Requests to destinations, retries included.",
    ),
    _graph(
        "Worst minute's loss", "{{destination}}", _of(m.OBSERVE_LOST_RATIO), unit="percentunit",
        warns_at=1e-9, alarms_at=LOST_RATIO_MAX,
    ),
    _graph(
        "Lost, by stage", "{{stage}}", f"sum by (stage) ({_of(m.OBSERVE_LOST_EVENTS)})",
        is_stacked=True,
    ),
    _graph(
        "Acknowledged per second", "{{stream}}", _of(m.OBSERVE_EVENTS_PER_SECOND), unit="cps",
        is_stacked=True,
    ),
    _graph(
        "Answers to callers", "{{result}}", f"sum by (result) ({_rate(m.GATEWAY_EVENTS)})",
        unit="cps",
    ),
    _graph(
        "Gateway: connections", "{{instance}}", _of(m.GATEWAY_CONNECTIONS), width=8,
    ),
    _graph(
        "Gateway: bytes in memory", "{{instance}}", _of(m.GATEWAY_IN_FLIGHT_BYTES), unit="bytes",
        width=8,
    ),
    _graph(
        "Gateway: age of the configuration", "{{instance}}", _of(m.GATEWAY_CONFIG_AGE_SECONDS),
        unit="s", width=8,
    ),
    Panel("Verdicts", "table", (("", f"{_of(m.OBSERVE_VERDICT)} == 1"),), width=24),
)  # fmt: skip

_STREAM_PANELS = (
    _graph(
        "Acknowledged per second", "{{stream}}", _of(m.OBSERVE_EVENTS_PER_SECOND, _STREAM),
        unit="cps",
    ),
    _graph(
        "Age of events at acceptance", "p{{percentile}}",
        _of(m.OBSERVE_INGEST_SECONDS, _STREAM), unit="s",
    ),
    _graph(
        "Gateway: time to Kafka's report, p99", "{{stream}}",
        _QUANTILE.format(_rate(m.GATEWAY_ACK_SECONDS, _STREAM, part="_bucket")), unit="s",
    ),
    _graph("Bytes in", "{{stream}}", _rate(m.GATEWAY_BODY_BYTES, _STREAM), unit="Bps"),
    Panel(
        "Hot spots", "timeseries",
        (
            ("fullest partition, times its share {{stream}}",
             _of(m.OBSERVE_FULLEST_PARTITION_RATIO, _STREAM)),
            ("share of the top key {{stream}}", _of(m.OBSERVE_TOP_KEY_RATIO, _STREAM)),
        ),
        warns_at=2,
    ),
    _graph("Backlog", "{{destination}}", _of(m.OBSERVE_BACKLOG_EVENTS, _OF_STREAM)),
    _graph(
        "Worst minute's loss", "{{destination}}", _of(m.OBSERVE_LOST_RATIO, _OF_STREAM),
        unit="percentunit", warns_at=1e-9, alarms_at=LOST_RATIO_MAX,
    ),
)  # fmt: skip

_DESTINATION = (
    Panel(
        "Lag since accepted", "timeseries",
        (
            ("p50 {{destination}}", _lag(_ALL, percentile="50")),
            ("p95 {{destination}}", _lag(_ALL, percentile="95")),
            ("p99 {{destination}}", _lag(_ALL, percentile="99")),
        ),
        unit="s",
    ),
    _graph(
        "Lag, stacked by stage", "{{stage}}", slowest_by_stage(_ALL), unit="s", is_stacked=True,
        says="For the slowest destination at each moment.",
    ),
    _graph(
        "Oldest event", "{{destination}}", _of(m.OBSERVE_OLDEST_AGE_SECONDS, _ALL), unit="s",
        warns_at=RETENTION_S_MAX / 2, alarms_at=RETENTION_S_MAX,
    ),
    _graph(
        "Backlog in bytes", "{{destination}}", _of(m.OBSERVE_BACKLOG_BYTES, _ALL), unit="bytes",
    ),
    _graph(
        "Waiting, by cause", "{{cause}}", f"sum by (cause) ({_of(m.OBSERVE_WAITING_EVENTS, _ALL)})",
        is_stacked=True,
    ),
    _graph("Dead letters", "{{destination}}", _of(m.OBSERVE_DEAD_EVENTS, _ALL)),
    _graph(
        "Deliveries, by outcome", "{{outcome}}",
        f"sum by (outcome) ({_rate(m.DELIVERY_ATTEMPTS, _ALL)})", unit="reqps", is_stacked=True,
        says="Requests to the destinations, retries included.",
    ),
    _graph("Parallel requests", "{{destination}}", _of(m.DELIVERY_PARALLEL, _ALL)),
    _graph(
        "Lost, by stage", "{{stage}}", f"sum by (stage) ({_of(m.OBSERVE_LOST_EVENTS, _ALL)})",
        is_stacked=True,
    ),
    _graph(
        "Time since the lane's last report", "{{destination}}",
        _of(m.OBSERVE_SILENT_SECONDS, _ALL), unit="s", warns_at=4, alarms_at=120,
    ),
)  # fmt: skip

_LANES = (
    _figure("Lanes up", f"sum({_of(m.DELIVERY_LANE_UP, _ALL)})", width=6, height=5),
    _figure(
        "Restarts in an hour", _in_hour(m.DELIVERY_LANE_RESTARTS, _ALL), width=6,
        height=5, warns_at=1, alarms_at=5,
    ),
    _figure("Retrier up", f"min({_of(m.RETRIER_LANE_UP)})", width=6, height=5),
    _figure(
        "Retrier restarts in an hour", _in_hour(m.RETRIER_LANE_RESTARTS),
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
        "Time since progress", "{{destination}}", _of(m.DELIVERY_PROGRESS_AGE_SECONDS, _ALL),
        unit="s",
    ),
    _graph(
        "Retrier: events released per second", "released",
        f"sum({_rate(m.RETRIER_EVENTS_RELEASED)})", unit="cps",
    ),
    _graph(
        "Retrier: time since progress", "{{lane}}", _of(m.RETRIER_PROGRESS_AGE_SECONDS), unit="s",
    ),
    _graph(
        "Retrier: mean micro-batch time", "{{lane}}", _mean(m.RETRIER_MICRO_BATCH_SECONDS),
        unit="s",
    ),
    _figure("Pipelines up", f"sum({_of(m.PIPELINES_LANE_UP)})", width=6, height=5),
    _figure(
        "Pipelines down or refused", f"sum({_of(m.PIPELINES_LANE_UP)} == bool 0)", width=6,
        height=5, warns_at=1,
    ),
    _figure(
        "Dead letters of pipelines in an hour",
        _in_hour(m.PIPELINES_EVENTS, 'outcome="dead"'), width=6, height=5,
        warns_at=1,
    ),
    _figure(
        "Too late for windows in an hour",
        _in_hour(m.PIPELINES_EVENTS, 'outcome="late"'), width=6, height=5,
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
        "Pipelines: time since progress", "{{pipeline}}", _of(m.PIPELINES_PROGRESS_AGE_SECONDS),
        unit="s", alarms_at=120,
    ),
    _graph(
        "Pipelines: memory of windows and keys", "{{pipeline}}", _of(m.PIPELINES_KEPT_BYTES),
        unit="bytes",
    ),
    _graph(
        "Pipelines: jobs tried again, per hour", "{{pipeline}}",
        _in_hour(m.PIPELINES_LANE_RESTARTS, by="pipeline"),
    ),
)  # fmt: skip
