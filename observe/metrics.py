"""Turns the overview into metrics, which Prometheus and the alerts see."""

from collections.abc import Iterator

from observe.lag.time_shares import time_shares
from shared.metric_names import (
    OBSERVE_AUDIT_BEHIND_SECONDS,
    OBSERVE_AUDIT_RUN_SECONDS,
    OBSERVE_BACKLOG_BYTES,
    OBSERVE_BACKLOG_EVENTS,
    OBSERVE_BLIND_MINUTES,
    OBSERVE_DEAD_EVENTS,
    OBSERVE_EVENTS_PER_SECOND,
    OBSERVE_INGEST_SECONDS,
    OBSERVE_LAG_SECONDS,
    OBSERVE_LOST_EVENTS,
    OBSERVE_LOST_RATIO,
    OBSERVE_MEAN_LAG_SECONDS,
    OBSERVE_NODE_SECONDS,
    OBSERVE_OLDEST_AGE_SECONDS,
    OBSERVE_SILENT_SECONDS,
    OBSERVE_UNACCOUNTED_EVENTS,
    OBSERVE_UP,
    OBSERVE_VERDICT,
    OBSERVE_WAITING_EVENTS,
)
from shared.proof.overview import (
    DestinationView,
    MinuteState,
    Node,
    Overview,
    Quantiles,
    StreamVerdict,
)
from shared.runtime.metrics import Metrics

_LAGS = (
    OBSERVE_LAG_SECONDS,
    OBSERVE_MEAN_LAG_SECONDS,
    OBSERVE_NODE_SECONDS,
    OBSERVE_INGEST_SECONDS,
)
_CAUSES = ("parked", "throttled", "breaker", "retry")


class ObserveMetrics(Metrics):
    """Shows each overview. What is not known has no value, rather than one that looks well."""

    def show(self, overview: Overview) -> None:
        self.gauge(OBSERVE_UP).set(int(not overview.problem))
        self.gauge(OBSERVE_AUDIT_BEHIND_SECONDS).set(overview.audit.behind_s)
        self.gauge(OBSERVE_AUDIT_RUN_SECONDS).set(overview.audit.last_run_took_s)
        # Streams and destinations that are gone leave no figures behind.
        for metric in _LAGS:
            self.gauge(metric).clear()
        for stream in overview.streams:
            self.gauge(OBSERVE_EVENTS_PER_SECOND).labels(stream.name).set(stream.events_per_s)
            for quantile, seconds in _quantiles(stream.ingest):
                self.gauge(OBSERVE_INGEST_SECONDS).labels(stream.name, quantile).set(seconds)
            for destination in stream.destinations:
                self._show_books(destination)
                self._show_lags(destination)
                self._show_minutes(destination)

    def _show_books(self, view: DestinationView) -> None:
        name = view.destination_id
        for verdict in StreamVerdict:
            is_it = int(view.verdict is verdict)
            self.gauge(OBSERVE_VERDICT).labels(name, verdict.value).set(is_it)
        self.gauge(OBSERVE_BACKLOG_EVENTS).labels(name).set(view.backlog_events)
        self.gauge(OBSERVE_BACKLOG_BYTES).labels(name).set(view.backlog_bytes)
        self.gauge(OBSERVE_OLDEST_AGE_SECONDS).labels(name).set(view.oldest_age_s or 0.0)
        self.gauge(OBSERVE_DEAD_EVENTS).labels(name).set(view.balance.dead)
        self.gauge(OBSERVE_UNACCOUNTED_EVENTS).labels(name).set(view.balance.unaccounted)
        self.gauge(OBSERVE_SILENT_SECONDS).labels(name).set(view.silent_s)
        for cause in _CAUSES:
            waiting = view.waiting_by_cause.get(cause, 0)
            self.gauge(OBSERVE_WAITING_EVENTS).labels(name, cause).set(waiting)

    def _show_lags(self, view: DestinationView) -> None:
        name = view.destination_id
        lags = self.gauge(OBSERVE_LAG_SECONDS)
        for share, mean_ms in time_shares(view):
            self.gauge(OBSERVE_NODE_SECONDS).labels(name, share).set(mean_ms / 1000)
        for node in view.nodes:
            for since, lag in (
                ("event", node.out_from_event),
                ("accepted", node.out_from_accepted),
            ):
                for quantile, seconds in _quantiles(lag):
                    lags.labels(name, node.node.value, since, quantile).set(seconds)
        for since, lag in (("event", view.end_to_end), ("accepted", view.since_accepted)):
            for quantile, seconds in _quantiles(lag):
                lags.labels(name, "end to end", since, quantile).set(seconds)
            if lag is not None:
                mean_s = lag.mean_ms / 1000
                self.gauge(OBSERVE_MEAN_LAG_SECONDS).labels(name, since).set(mean_s)

    def _show_minutes(self, view: DestinationView) -> None:
        name = view.destination_id
        for node in Node:
            lost = sum(minute.lost.get(node, 0) for minute in view.minutes)
            self.gauge(OBSERVE_LOST_EVENTS).labels(name, node.value).set(lost)
        worst = max((minute.lost_part for minute in view.minutes), default=0.0)
        self.gauge(OBSERVE_LOST_RATIO).labels(name).set(worst)
        blind = sum(minute.state is MinuteState.CANNOT_TELL for minute in view.minutes)
        self.gauge(OBSERVE_BLIND_MINUTES).labels(name).set(blind)


def _quantiles(lag: Quantiles | None) -> Iterator[tuple[str, float]]:
    if lag is not None:
        yield "0.5", lag.p50_ms / 1000
        yield "0.95", lag.p95_ms / 1000
        yield "0.99", lag.p99_ms / 1000
