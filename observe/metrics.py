"""Turns the overview into metrics, which Prometheus and the alerts see."""

from collections.abc import Iterator, Sequence

from observe.lag.time_shares import time_shares
from shared import metric_names as m
from shared.proof.overview import (
    DestinationView,
    Node,
    Overview,
    Quantiles,
)
from shared.runtime.metrics import Metrics

_LAGS = (
    m.OBSERVE_LAG_SECONDS,
    m.OBSERVE_MEAN_LAG_SECONDS,
    m.OBSERVE_NODE_SECONDS,
    m.OBSERVE_INGEST_SECONDS,
)
_CAUSES = ("parked", "throttled", "breaker", "retry")


class ObserveMetrics(Metrics):
    """Shows each overview. What is not known has no value, rather than one that looks well."""

    def __init__(self) -> None:
        super().__init__()
        # Destination, verdict and cause, as they are shown now.
        self._verdicts: set[tuple[str, str, str]] = set()

    def show(self, overview: Overview) -> None:
        self.gauge(m.OBSERVE_UP).set(int(not overview.problem))
        self.gauge(m.OBSERVE_AUDIT_BEHIND_SECONDS).set(overview.audit.behind_s)
        self.gauge(m.OBSERVE_AUDIT_RUN_SECONDS).set(overview.audit.last_run_took_s)
        self.gauge(m.OBSERVE_UNREADABLE_RECORDS).set(overview.audit.unreadable_count)
        # Streams and destinations that are gone leave no figures behind.
        for metric in _LAGS:
            self.gauge(metric).clear()
        self._show_verdicts(overview.destinations)
        for stream in overview.streams:
            self.gauge(m.OBSERVE_EVENTS_PER_SECOND).labels(stream.name).set(stream.events_per_s)
            for quantile, seconds in _quantiles(stream.ingest):
                self.gauge(m.OBSERVE_INGEST_SECONDS).labels(stream.name, quantile).set(seconds)
            for destination in stream.destinations:
                self._show_books(destination)
                self._show_lags(destination)
                self._show_minutes(destination)

    def _show_verdicts(self, views: Sequence[DestinationView]) -> None:
        """Changed in place: one that goes on must be there whenever it is looked at."""
        verdicts = {(view.destination_id, view.verdict.value, view.cause) for view in views}
        for gone in self._verdicts - verdicts:
            self.gauge(m.OBSERVE_VERDICT).remove(*gone)
        for shown in verdicts:
            self.gauge(m.OBSERVE_VERDICT).labels(*shown).set(1)
        self._verdicts = verdicts

    def _show_books(self, view: DestinationView) -> None:
        name = view.destination_id
        self.gauge(m.OBSERVE_BACKLOG_EVENTS).labels(name).set(view.backlog_events)
        self.gauge(m.OBSERVE_BACKLOG_BYTES).labels(name).set(view.backlog_bytes)
        self.gauge(m.OBSERVE_OLDEST_AGE_SECONDS).labels(name).set(view.oldest_age_s or 0.0)
        self.gauge(m.OBSERVE_DEAD_EVENTS).labels(name).set(view.balance.dead)
        self.gauge(m.OBSERVE_UNACCOUNTED_EVENTS).labels(name).set(view.balance.unaccounted)
        self.gauge(m.OBSERVE_SILENT_SECONDS).labels(name).set(view.silent_s)
        for cause in _CAUSES:
            waiting = view.waiting_by_cause.get(cause, 0)
            self.gauge(m.OBSERVE_WAITING_EVENTS).labels(name, cause).set(waiting)

    def _show_lags(self, view: DestinationView) -> None:
        name = view.destination_id
        lags, means = self.gauge(m.OBSERVE_LAG_SECONDS), self.gauge(m.OBSERVE_MEAN_LAG_SECONDS)
        for share, mean_ms in time_shares(view):
            self.gauge(m.OBSERVE_NODE_SECONDS).labels(name, share).set(mean_ms / 1000)
        nodes = [(lag.node.value, lag.out_from_event, lag.out_from_accepted) for lag in view.nodes]
        whole = ("end to end", view.end_to_end, view.since_accepted)
        for node, from_event, from_accepted in (*nodes, whole):
            for since, lag in (("event", from_event), ("accepted", from_accepted)):
                for quantile, seconds in _quantiles(lag):
                    lags.labels(name, node, since, quantile).set(seconds)
        for since, lag in (("event", view.end_to_end), ("accepted", view.since_accepted)):
            if lag is not None:
                means.labels(name, since).set(lag.mean_ms / 1000)

    def _show_minutes(self, view: DestinationView) -> None:
        name = view.destination_id
        for node in Node:
            lost = sum(minute.lost.get(node, 0) for minute in view.minutes)
            self.gauge(m.OBSERVE_LOST_EVENTS).labels(name, node.value).set(lost)
        worst = max((minute.lost_part for minute in view.minutes), default=0.0)
        self.gauge(m.OBSERVE_LOST_RATIO).labels(name).set(worst)
        self.gauge(m.OBSERVE_BLIND_MINUTES).labels(name).set(view.unsettled.minute_count)


def _quantiles(lag: Quantiles | None) -> Iterator[tuple[str, float]]:
    if lag is not None:
        yield "0.5", lag.p50_ms / 1000
        yield "0.95", lag.p95_ms / 1000
        yield "0.99", lag.p99_ms / 1000
