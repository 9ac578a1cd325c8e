"""The Grafana dashboards: overview, stream, destination, Spark lanes."""

import json
from collections.abc import Mapping

from deploy.alerts.rules import LAG_S_MAX, LOST_RATIO_MAX, RETENTION_S_MAX
from deploy.dashboards.panels import Panel, dashboard
from shared import metric_names as m

_ALL = '{destination=~"$destination"}'
_STREAM = '{stream=~"$stream"}'
_ACK_BUCKETS = m.GATEWAY_ACK_SECONDS.name + "_bucket"
_QUANTILE = "histogram_quantile(0.99, sum by (le, stream) ({}))"
_OF_STREAM = '{destination=~"($stream)/.*"}'


def boards() -> Mapping[str, str]:
    """Every dashboard: file name and JSON."""
    dashboards = {
        "overview.json": dashboard("hifi-overview", "Hifi overview", _OVERVIEW),
        "stream.json": dashboard(
            "hifi-stream",
            "Hifi stream",
            _STREAM_PANELS,
            variables=[("stream", m.OBSERVE_EVENTS_PER_SECOND.name)],
        ),
        "destination.json": dashboard(
            "hifi-destination",
            "Hifi destination",
            _DESTINATION,
            variables=[("destination", m.OBSERVE_VERDICT.name)],
        ),
        "lanes.json": dashboard(
            "hifi-lanes",
            "Hifi Spark lanes",
            _LANES,
            variables=[("destination", m.DELIVERY_LANE_UP.name)],
        ),
    }
    return {name: json.dumps(board, indent=1) + "\n" for name, board in dashboards.items()}


def slowest_by_node(labels: str = "") -> str:
    """Each node's share of the time of the one destination that takes longest, so they add up."""
    shares = m.OBSERVE_NODE_SECONDS.name + labels
    slowest = f"topk(1, sum by (destination) ({shares}))"
    return f"sum by (node) ({shares} and on (destination) {slowest})"


def _lag(which: str, *, quantile: str, since: str = "accepted", node: str = "end to end") -> str:
    return (
        f'{m.OBSERVE_LAG_SECONDS.name}{{{which}node=~"{node}",since="{since}",'
        f'quantile="{quantile}"}}'
    )


def _rate(metric: m.Metric, labels: str = "") -> str:
    return f"rate({metric.name}{labels}[1m])"


def _mean(metric: m.Metric, labels: str = "") -> str:
    name = metric.name
    return (
        f"sum by (destination) (rate({name}_sum{labels}[1m]))"
        f" / sum by (destination) (rate({name}_count{labels}[1m]))"
    )


_OVERVIEW = (
    Panel(
        "Unaccounted", "stat", (("", f"sum({m.OBSERVE_UNACCOUNTED_EVENTS.name})"),),
        width=4, height=4, alarms_at=1, says="Passed by a lane, without any outcome.",
    ),
    Panel(
        "Lost in the last hour", "stat", (("", f"sum({m.OBSERVE_LOST_EVENTS.name})"),),
        width=4, height=4, alarms_at=1,
    ),
    Panel(
        "Cannot tell", "stat", (("", f"sum({m.OBSERVE_BLIND_MINUTES.name})"),),
        width=4, height=4, warns_at=1, says="Minutes that should be settled and are not.",
    ),
    Panel(
        "Slowest p95", "stat", (("", f"max({_lag('', quantile='0.95')})"),),
        unit="s", width=4, height=4, warns_at=LAG_S_MAX / 2, alarms_at=LAG_S_MAX,
    ),
    Panel(
        "Dead letters", "stat", (("", f"sum({m.OBSERVE_DEAD_EVENTS.name})"),),
        width=4, height=4, warns_at=1,
    ),
    Panel(
        "Audit behind", "stat", (("", f"max({m.OBSERVE_AUDIT_BEHIND_SECONDS.name})"),),
        unit="s", width=4, height=4, warns_at=120, alarms_at=600,
    ),
    Panel(
        "Lag, stacked by node", "timeseries",
        (("{{node}}", slowest_by_node()),),
        unit="s", width=16, is_stacked=True,
        says="Mean time from acceptance to delivery, of the slowest destination at each moment.",
    ),
    Panel(
        "Where time goes", "piechart",
        (("{{node}}", slowest_by_node()),), unit="s", width=8,
        says="Of the slowest destination now.",
    ),
    Panel(
        "Worst minute's loss", "timeseries",
        (("{{destination}}", m.OBSERVE_LOST_RATIO.name),),
        unit="percentunit", warns_at=1e-9, alarms_at=LOST_RATIO_MAX,
    ),
    Panel(
        "Lost, by node", "timeseries",
        (("{{node}}", f"sum by (node) ({m.OBSERVE_LOST_EVENTS.name})"),), is_stacked=True,
    ),
    Panel(
        "Acknowledged per second", "timeseries",
        (("{{stream}}", m.OBSERVE_EVENTS_PER_SECOND.name),), unit="cps", is_stacked=True,
    ),
    Panel(
        "What callers were told", "timeseries",
        (("{{result}}", f"sum by (result) ({_rate(m.GATEWAY_EVENTS)})"),), unit="cps",
    ),
    Panel(
        "Verdicts", "table", (("", f"{m.OBSERVE_VERDICT.name} == 1"),), width=24,
    ),
)  # fmt: skip

_STREAM_PANELS = (
    Panel(
        "Acknowledged per second", "timeseries",
        (("{{stream}}", m.OBSERVE_EVENTS_PER_SECOND.name + _STREAM),), unit="cps",
    ),
    Panel(
        "How old events are when they come", "timeseries",
        (("p{{quantile}}", m.OBSERVE_INGEST_SECONDS.name + _STREAM),), unit="s",
    ),
    Panel(
        "Gateway: time to Kafka's report, p99", "timeseries",
        (("{{stream}}", _QUANTILE.format(f"rate({_ACK_BUCKETS}{_STREAM}[1m])")),),
        unit="s",
    ),
    Panel(
        "Bytes in", "timeseries",
        (("{{stream}}", _rate(m.GATEWAY_BODY_BYTES, _STREAM)),), unit="Bps",
    ),
    Panel(
        "Backlog", "timeseries",
        (("{{destination}}", m.OBSERVE_BACKLOG_EVENTS.name + _OF_STREAM),),
    ),
    Panel(
        "Worst minute's loss", "timeseries",
        (("{{destination}}", m.OBSERVE_LOST_RATIO.name + _OF_STREAM),), unit="percentunit",
        warns_at=1e-9, alarms_at=LOST_RATIO_MAX,
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
    Panel(
        "Lag, stacked by node", "timeseries",
        (("{{node}}", slowest_by_node(_ALL)),),
        unit="s", is_stacked=True, says="Of the slowest of them at each moment.",
    ),
    Panel(
        "Oldest event", "timeseries",
        (("{{destination}}", m.OBSERVE_OLDEST_AGE_SECONDS.name + _ALL),),
        unit="s", warns_at=RETENTION_S_MAX / 2, alarms_at=RETENTION_S_MAX,
    ),
    Panel(
        "Backlog in bytes", "timeseries",
        (("{{destination}}", m.OBSERVE_BACKLOG_BYTES.name + _ALL),), unit="bytes",
    ),
    Panel(
        "Waiting, by cause", "timeseries",
        (("{{cause}}", f"sum by (cause) ({m.OBSERVE_WAITING_EVENTS.name}{_ALL})"),),
        is_stacked=True,
    ),
    Panel(
        "Dead letters", "timeseries",
        (("{{destination}}", m.OBSERVE_DEAD_EVENTS.name + _ALL),),
    ),
    Panel(
        "Lost, by node", "timeseries",
        (("{{node}}", f"sum by (node) ({m.OBSERVE_LOST_EVENTS.name}{_ALL})"),), is_stacked=True,
    ),
    Panel(
        "No sign of its lane for", "timeseries",
        (("{{destination}}", m.OBSERVE_SILENT_SECONDS.name + _ALL),),
        unit="s", warns_at=4, alarms_at=120,
    ),
)  # fmt: skip

_LANES = (
    Panel(
        "Lanes up", "stat", (("", f"sum({m.DELIVERY_LANE_UP.name}{_ALL})"),), width=6, height=5,
    ),
    Panel(
        "Restarts in an hour", "stat",
        (("", f"sum(increase({m.DELIVERY_LANE_RESTARTS.name}{_ALL}[1h]))"),),
        width=6, height=5, warns_at=1, alarms_at=5,
    ),
    Panel(
        "Retrier up", "stat", (("", f"min({m.RETRIER_LANE_UP.name})"),), width=6, height=5,
    ),
    Panel(
        "Retrier restarts in an hour", "stat",
        (("", f"sum(increase({m.RETRIER_LANE_RESTARTS.name}[1h]))"),),
        width=6, height=5, warns_at=1, alarms_at=5,
    ),
    Panel(
        "Mean micro-batch", "timeseries",
        (("{{destination}}", _mean(m.DELIVERY_MICRO_BATCH_SECONDS, _ALL)),), unit="s",
    ),
    Panel(
        "Events read per second", "timeseries",
        (("{{destination}}", _rate(m.DELIVERY_EVENTS_READ, _ALL)),), unit="cps",
    ),
    Panel(
        "Since progress", "timeseries",
        (("{{destination}}", m.DELIVERY_PROGRESS_AGE_SECONDS.name + _ALL),), unit="s",
    ),
    Panel(
        "Retrier: events released per second", "timeseries",
        (("released", f"sum({_rate(m.RETRIER_EVENTS_RELEASED)})"),), unit="cps",
    ),
    Panel(
        "Retrier: since progress", "timeseries",
        (("age", m.RETRIER_PROGRESS_AGE_SECONDS.name),), unit="s",
    ),
)  # fmt: skip
