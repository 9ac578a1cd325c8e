"""Turns the overview into metrics for Prometheus and the alerts."""

from collections.abc import Iterator
from typing import Any, TypeAlias

from observe.lag.time_shares import time_shares
from shared import metric_names as m
from shared.event.topics import destination_id
from shared.proof.overview import (
    DestinationView,
    Overview,
    Quantiles,
    Stage,
)
from shared.runtime.metrics import Metrics

# A metric with its labels, and its value.
Sample: TypeAlias = tuple[Any, ...]
Value: TypeAlias = tuple[Sample, float]

CAUSES = ("parked", "rate-limited", "breaker open", "failed attempt")


class ObserveMetrics(Metrics):
    """Shows each overview; an unknown figure has no value, instead of one that looks healthy."""

    def __init__(self) -> None:
        super().__init__()
        # The metrics, with labels, that had a value in the last overview.
        self._present: set[Sample] = set()

    def show(self, overview: Overview) -> None:
        self.gauge(m.OBSERVE_UP).set(int(not overview.problem))
        self.gauge(m.OBSERVE_AUDIT_BEHIND_SECONDS).set(overview.audit.behind_s)
        self.gauge(m.OBSERVE_AUDIT_RUN_SECONDS).set(overview.audit.last_run_took_s)
        self.gauge(m.OBSERVE_UNREADABLE_RECORDS).set(overview.audit.unreadable_count)
        self.gauge(m.OBSERVE_LEASE_UP).set(int(not overview.audit.is_elsewhere))
        # Only the active observer shows values: Prometheus would add up those of two observers.
        values = {} if overview.audit.is_elsewhere else dict(_values(overview))
        # Changed in place, so that a scrape always finds the figures that remain. Streams and
        # destinations that are gone leave neither figures nor alerts behind.
        for metric, *labels in self._present - values.keys():
            self.gauge(metric).remove(*labels)
        for (metric, *labels), value in values.items():
            self.gauge(metric).labels(*labels).set(value)
        self._present = set(values)


def _values(overview: Overview) -> Iterator[Value]:
    for stream in overview.streams:
        yield (m.OBSERVE_EVENTS_PER_SECOND, stream.name), stream.events_per_s
        for percentile, seconds in _percentiles(stream.ingest):
            yield (m.OBSERVE_INGEST_SECONDS, stream.name, percentile), seconds
        if (spread := stream.spread) is not None:
            yield (m.OBSERVE_FULLEST_PARTITION_RATIO, stream.name), spread.times
            top = max((part for _, part in spread.keys), default=0.0)
            yield (m.OBSERVE_TOP_KEY_RATIO, stream.name), top
    for unknown in overview.unknown:
        name = destination_id(unknown.stream, unknown.name)
        yield (m.OBSERVE_UNKNOWN_WAITING_EVENTS, name), unknown.waiting_events
    for view in overview.takers:
        yield (m.OBSERVE_VERDICT, view.destination_id, view.verdict.value, view.cause), 1
        yield from _books(view)
        yield from _lags(view)
        yield from _minutes(view)


def _books(view: DestinationView) -> Iterator[Value]:
    name = view.destination_id
    yield (m.OBSERVE_BACKLOG_EVENTS, name), view.backlog_events
    yield (m.OBSERVE_BACKLOG_BYTES, name), view.backlog_bytes
    yield (m.OBSERVE_OLDEST_AGE_SECONDS, name), view.oldest_age_s or 0.0
    yield (m.OBSERVE_DEAD_EVENTS, name), view.balance.dead
    yield (m.OBSERVE_UNACCOUNTED_EVENTS, name), view.balance.unaccounted
    yield (m.OBSERVE_SILENT_SECONDS, name), view.silent_s
    for cause in CAUSES:
        yield (m.OBSERVE_WAITING_EVENTS, name, cause), view.waiting_by_cause.get(cause, 0)


def _lags(view: DestinationView) -> Iterator[Value]:
    name = view.destination_id
    for share, mean_ms in time_shares(view):
        yield (m.OBSERVE_STAGE_SECONDS, name, share), mean_ms / 1000
    stages = [(lag.stage.value, lag.out_from_event, lag.out_from_accepted) for lag in view.stages]
    whole = ("end to end", view.end_to_end, view.since_accepted)
    for stage, from_event, from_accepted in (*stages, whole):
        for since, lag in (("event", from_event), ("accepted", from_accepted)):
            for percentile, seconds in _percentiles(lag):
                yield (m.OBSERVE_LAG_SECONDS, name, stage, since, percentile), seconds
    for since, lag in (("event", view.end_to_end), ("accepted", view.since_accepted)):
        if lag is not None:
            yield (m.OBSERVE_MEAN_LAG_SECONDS, name, since), lag.mean_ms / 1000


def _minutes(view: DestinationView) -> Iterator[Value]:
    name = view.destination_id
    for stage in Stage:
        lost = sum(minute.lost.get(stage, 0) for minute in view.minutes)
        yield (m.OBSERVE_LOST_EVENTS, name, stage.value), lost
    worst = max((minute.lost_part for minute in view.minutes), default=0.0)
    yield (m.OBSERVE_LOST_RATIO, name), worst
    yield (m.OBSERVE_OVERDUE_CHECKS, name), view.overdue.minute_count


def _percentiles(lag: Quantiles | None) -> Iterator[tuple[str, float]]:
    if lag is not None:
        yield "50", lag.p50_ms / 1000
        yield "95", lag.p95_ms / 1000
        yield "99", lag.p99_ms / 1000
