"""Lists every metric: its name, kind, labels and meaning.

Names follow <hifi>_<stage>_<noun>_<unit>[_total]. Labels are bounded sets: a stream, a destination,
a status, a reason; never an event id, a URL or a key. docs/metrics.md is generated from here.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

# From 1 ms, the best that a local Kafka can do, to the gateway's own deadline of 10 s.
ACK_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
# From an idle micro-batch to a lane that waits for a destination's timeout.
MICRO_BATCH_BUCKETS_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    meaning: str
    labels: tuple[str, ...] = ()
    # Only histograms have some.
    buckets: tuple[float, ...] = ()

    @property
    def kind(self) -> Kind:
        if self.name.endswith("_total"):
            return "counter"
        return "histogram" if self.buckets else "gauge"


def _of_destination(name: str, meaning: str) -> Metric:
    return Metric(name, meaning, labels=("destination",))


def _of_pipeline(name: str, meaning: str) -> Metric:
    return Metric(name, meaning, labels=("pipeline",))


GATEWAY_REQUESTS = Metric(
    "hifi_gateway_requests_total",
    "Requests answered, by route and HTTP status.",
    labels=("route", "status"),
)
GATEWAY_EVENTS = Metric(
    "hifi_gateway_events_total",
    "Events by answer to the caller: accepted, rejected, retry, unknown or aborted.",
    labels=("stream", "result"),
)
GATEWAY_BODY_BYTES = Metric(
    "hifi_gateway_body_bytes_total",
    "Request body bytes received, counted before decompression.",
    labels=("stream",),
)
GATEWAY_ACK_SECONDS = Metric(
    "hifi_gateway_ack_seconds",
    "Time from a parsed request to Kafka's last report for its events.",
    labels=("stream",),
    buckets=ACK_BUCKETS_S,
)
GATEWAY_IN_FLIGHT_BYTES = Metric(
    "hifi_gateway_in_flight_bytes",
    "Body bytes in memory: of unanswered requests, and of events that were reported unknown and"
    " that Kafka has not answered yet.",
)
GATEWAY_CONNECTIONS = Metric(
    "hifi_gateway_open_connections",
    "Callers' open connections, idle ones included; at most HIFI_GATEWAY_CONNECTIONS_MAX.",
)
GATEWAY_UP = Metric(
    "hifi_gateway_up",
    "1 while /readyz answers 200: Kafka stores records and the gateway is not stopping.",
)
GATEWAY_CONFIG_AGE_SECONDS = Metric(
    "hifi_gateway_config_age_seconds",
    "Time since Kafka last confirmed that the gateway's configuration is the newest.",
)
GATEWAY_SHORT_OF_COPIES_TOPICS = Metric(
    "hifi_gateway_short_of_copies_topics",
    "Topics of streams with fewer copies than HIFI_KAFKA_REPLICAS and HIFI_KAFKA_IN_SYNC_MIN ask"
    " for.",
)
GATEWAY_SPANS = Metric(
    "hifi_gateway_spans_total",
    "Spans of traced requests, by result: sent to the collector, or dropped because there were too"
    " many or because the collector did not accept them.",
    labels=("result",),
)
DELIVERY_LANE_UP = _of_destination(
    "hifi_delivery_lane_up",
    "1 while the lane runs, 0 while a part of it cannot start or is down until its next try. The"
    " process that owns the lane shows it, except while the lane is paused.",
)
DELIVERY_LANE_RESTARTS = _of_destination(
    "hifi_delivery_lane_restarts_total",
    "Times that a lane, or a part of it, died and was restarted.",
)
DELIVERY_LANE_STALLED_SECONDS = _of_destination(
    "hifi_delivery_lane_stalled_seconds",
    "How long the slowest Kafka partition of a lane has had something to send but made no progress,"
    " or could not start; 0 until that is too long.",
)
DELIVERY_EVENTS_READ = _of_destination(
    "hifi_delivery_events_read_total",
    "Events read by finished jobs; events that a job reads again count again.",
)
DELIVERY_MICRO_BATCH_SECONDS = Metric(
    "hifi_delivery_micro_batch_seconds",
    "Time that a job with events took, from its plan to its end.",
    labels=("destination",),
    buckets=MICRO_BATCH_BUCKETS_S,
)
DELIVERY_PROGRESS_AGE_SECONDS = _of_destination(
    "hifi_delivery_progress_age_seconds",
    "How long the slowest Kafka partition of a lane has had something to send but made no progress;"
    " it rises when one hangs.",
)
DELIVERY_FLOW_STATE = Metric(
    "hifi_delivery_flow_state",
    "1 for a destination's state: closed (healthy), rate-limited, half_open, open, held or"
    " disabled; 0 for the other states.",
    labels=("destination", "state"),
)
DELIVERY_FAILING_RATIO = _of_destination(
    "hifi_delivery_failing_ratio",
    "How long a destination has failed without one success, as a share of the time after which it"
    " is disabled: 0 is healthy, at 1 it is disabled. `destination.failing` is logged at 0.5, 0.7"
    " and 0.9.",
)
DELIVERY_PARALLEL = _of_destination(
    "hifi_delivery_parallel_requests",
    "Parallel requests to a destination, adapted to its answers.",
)
DELIVERY_ATTEMPTS = Metric(
    "hifi_delivery_attempts_total",
    "Requests made, retries included, by outcome: ok, recoverable, non_recoverable or park.",
    labels=("destination", "outcome"),
)
DELIVERY_EVENTS_PARKED = Metric(
    "hifi_delivery_events_parked_total",
    "Events set aside to wait without a counted attempt, by cause.",
    labels=("destination", "cause"),
)
RETRIER_LANE_UP = Metric(
    "hifi_retrier_lane_up",
    "1 while this lane of the retrier runs, 0 while one of its Kafka partitions is down.",
    labels=("lane",),
)
RETRIER_LANE_RESTARTS = Metric(
    "hifi_retrier_lane_restarts_total",
    "Times that a part of this lane of the retrier died and was restarted.",
    labels=("lane",),
)
RETRIER_PROGRESS_AGE_SECONDS = Metric(
    "hifi_retrier_progress_age_seconds",
    "How long this lane has had due events but made no progress; it rises when the lane hangs.",
    labels=("lane",),
)
RETRIER_LANE_STALLED_SECONDS = Metric(
    "hifi_retrier_lane_stalled_seconds",
    "How long the lane has had something to do but made no progress; 0 until that is too long.",
    labels=("lane",),
)
RETRIER_EVENTS_RELEASED = Metric(
    "hifi_retrier_events_released_total",
    "Waiting events that the due gate has released, counted when their micro-batch has finished.",
    labels=("lane",),
)
RETRIER_MICRO_BATCH_SECONDS = Metric(
    "hifi_retrier_micro_batch_seconds",
    "Time that a micro-batch of the retrier with events took, from its plan to its report.",
    buckets=MICRO_BATCH_BUCKETS_S,
    labels=("lane",),
)
PIPELINES_LANE_UP = _of_pipeline(
    "hifi_pipelines_lane_up",
    "1 while the pipeline runs, 0 while it waits for its next try. The process that owns the"
    " pipeline shows it; a refused pipeline has no value.",
)
PIPELINES_LANE_RESTARTS = _of_pipeline(
    "hifi_pipelines_lane_restarts_total",
    "Times that a job of the pipeline failed and was tried again.",
)
PIPELINES_LANE_STALLED_SECONDS = _of_pipeline(
    "hifi_pipelines_lane_stalled_seconds",
    "How long the pipeline has had something to do but made no progress; 0 until that is too long.",
)
PIPELINES_PROGRESS_AGE_SECONDS = _of_pipeline(
    "hifi_pipelines_progress_age_seconds",
    "How long the pipeline has had something to do but made no progress; it rises when it hangs.",
)
PIPELINES_EVENTS_READ = _of_pipeline(
    "hifi_pipelines_events_read_total",
    "Events read by finished jobs; events that a job reads again count again.",
)
PIPELINES_EVENTS = Metric(
    "hifi_pipelines_events_total",
    "Events by outcome: passed (one may become several), filtered, late, dead or lost; events that"
    " a job reads again count again. Lost ones are offsets that Kafka had already deleted.",
    labels=("pipeline", "outcome"),
)
PIPELINES_KEPT = _of_pipeline(
    "hifi_pipelines_kept_entries",
    "Open windows or known keys of a pipeline with windows or keys.",
)
PIPELINES_KEPT_BYTES = _of_pipeline(
    "hifi_pipelines_kept_bytes",
    "Memory of the windows or keys in hifi_pipelines_kept_entries, as counted for their limits.",
)
PIPELINES_MICRO_BATCH_SECONDS = Metric(
    "hifi_pipelines_micro_batch_seconds",
    "Time that a job of the pipeline with events took, from its plan to its end.",
    labels=("pipeline",),
    buckets=MICRO_BATCH_BUCKETS_S,
)
PIPELINES_EXECUTOR_ENDED = Metric(
    "hifi_pipelines_executor_ended_total",
    "Times that the pipeline killed the executor, which all pipelines share. It was running alone,"
    " so no other pipeline can be the cause.",
    labels=("tenant", "pipeline"),
)
PIPELINES_EXECUTORS_LOST = Metric(
    "hifi_pipelines_executors_lost_total",
    "Executors of this process that ended before the process did, whatever the cause.",
)
PIPELINES_STUCK_TASKS = Metric(
    "hifi_pipelines_stuck_tasks",
    "Tasks that still run although Hifi cancelled them; each keeps a place of the executor.",
)
PIPELINES_SPARK_UP = Metric(
    "hifi_pipelines_spark_up",
    "1 once the process has started Spark, which it does for its first pipeline.",
)
OBSERVE_UP = Metric(
    "hifi_observe_up",
    "1 while the sampler has read all existing receipts; 0 means that its figures may be old.",
)
OBSERVE_LEASE_UP = Metric(
    "hifi_observe_lease_up",
    "1 if this observer runs the audit and shows the figures of streams and destinations; 0 while"
    " it stands by because another one holds the lease.",
)
OBSERVE_VERDICT = Metric(
    "hifi_observe_verdict",
    "1 for a destination's current verdict, with its cause in a word (status_503, connect_refused);"
    " other verdicts have no value.",
    labels=("destination", "verdict", "cause"),
)
OBSERVE_LAG_SECONDS = Metric(
    "hifi_observe_lag_seconds",
    "How late events were in the last 5 minutes, at the end of a stage or end to end, measured from"
    " their own time (event) or from the gateway's acceptance (accepted).",
    labels=("destination", "stage", "since", "percentile"),
)
OBSERVE_STAGE_SECONDS = Metric(
    "hifi_observe_stage_seconds",
    "A stage's share of the mean time from acceptance to delivery: a destination's stages add up"
    " to its hifi_observe_mean_lag_seconds since accepted.",
    labels=("destination", "stage"),
)
OBSERVE_MEAN_LAG_SECONDS = Metric(
    "hifi_observe_mean_lag_seconds",
    "Mean lateness of events delivered in the last 5 minutes, measured from their own time (event)"
    " or from the gateway's acceptance (accepted).",
    labels=("destination", "since"),
)
OBSERVE_INGEST_SECONDS = Metric(
    "hifi_observe_ingest_seconds",
    "Age of events when the gateway received them, in the last 5 minutes.",
    labels=("stream", "percentile"),
)
OBSERVE_EVENTS_PER_SECOND = Metric(
    "hifi_observe_events_per_second",
    "Events acknowledged per second in the last minute, according to the gateway's ledger.",
    labels=("stream",),
)
OBSERVE_FULLEST_PARTITION_RATIO = Metric(
    "hifi_observe_fullest_partition_ratio",
    "Events of a stream's fullest Kafka partition in the last minutes, as a multiple of an even"
    " share; above 2 it is hot. Absent while fewer than 1,000 events came.",
    labels=("stream",),
)
OBSERVE_TOP_KEY_RATIO = Metric(
    "hifi_observe_top_key_ratio",
    "Share of a stream's events of the last minutes with its most frequent key, from 0 to 1; 0 if"
    " no key has a tenth. The console names the key.",
    labels=("stream",),
)
OBSERVE_OLDEST_AGE_SECONDS = _of_destination(
    "hifi_observe_oldest_age_seconds",
    "Time since Kafka stored the oldest event that is neither delivered nor dead.",
)
OBSERVE_BACKLOG_EVENTS = _of_destination(
    "hifi_observe_backlog_events",
    "Queued and waiting events, parked and rate-limited ones included.",
)
OBSERVE_BACKLOG_BYTES = _of_destination(
    "hifi_observe_backlog_bytes",
    "Size of queued and waiting events, estimated from the mean size of the stream's latest ones.",
)
OBSERVE_WAITING_EVENTS = Metric(
    "hifi_observe_waiting_events",
    "Events that wait for an attempt, by cause: parked, rate-limited, breaker open or failed"
    " attempt.",
    labels=("destination", "cause"),
)
OBSERVE_UNKNOWN_WAITING_EVENTS = _of_destination(
    "hifi_observe_unknown_waiting_events",
    "Events that wait for a destination that nobody has removed, but that no configuration readable"
    " here contains. They become dead letters at their deadline.",
)
OBSERVE_DEAD_EVENTS = _of_destination(
    "hifi_observe_dead_events",
    "Events that are dead letters, according to the receipts that are kept.",
)
OBSERVE_UNACCOUNTED_EVENTS = _of_destination(
    "hifi_observe_unaccounted_events",
    "Events without an outcome that their lane has passed or that Kafka has deleted: a loss until"
    " somebody explains it.",
)
OBSERVE_SILENT_SECONDS = _of_destination(
    "hifi_observe_silent_seconds",
    "How long a lane has given no sign of life despite work, as seen from outside Spark.",
)
OBSERVE_LOST_EVENTS = Metric(
    "hifi_observe_lost_events",
    "Events lost in the last hour, or found to be lost in it, by the stage that lost them.",
    labels=("destination", "stage"),
)
OBSERVE_LOST_RATIO = _of_destination(
    "hifi_observe_lost_ratio",
    "Lost events as a share of acknowledged ones, in the worst minute of hifi_observe_lost_events.",
)
OBSERVE_OVERDUE_CHECKS = _of_destination(
    "hifi_observe_overdue_checks",
    "Minutes of any age whose check is overdue.",
)
OBSERVE_AUDIT_BEHIND_SECONDS = Metric(
    "hifi_observe_audit_behind_seconds",
    "Time since the audit last finished a run, beyond its regular interval.",
)
OBSERVE_AUDIT_RUN_SECONDS = Metric(
    "hifi_observe_audit_run_seconds",
    "Duration of the audit's last run.",
)
OBSERVE_UNREADABLE_RECORDS = Metric(
    "hifi_observe_unreadable_records",
    "Records of the last day that the audit could not read: they prove nothing about any event.",
)
OBSERVE_UNDER_MIN_ISR_TOPICS = Metric(
    "hifi_observe_under_min_isr_topics",
    "Hifi's topics with a Kafka partition that takes no writes, as too few replicas are in sync.",
)
OBSERVE_CLOCK_SKEW_SECONDS = Metric(
    "hifi_observe_clock_skew_seconds",
    "How far the clock of observe, or of the gateways, is ahead of the broker's.",
    labels=("clock",),
)

CATALOGUE = tuple(value for value in tuple(globals().values()) if isinstance(value, Metric))
# Earlier names, and the present ones.
RENAMED = {
    "hifi_gateway_connection_count": GATEWAY_CONNECTIONS.name,
    "hifi_observe_blind_minutes": OBSERVE_OVERDUE_CHECKS.name,
    "hifi_observe_node_seconds": OBSERVE_STAGE_SECONDS.name,
    "hifi_observe_overdue_minutes": OBSERVE_OVERDUE_CHECKS.name,
    "hifi_observe_unreadable_count": OBSERVE_UNREADABLE_RECORDS.name,
    "hifi_pipelines_held_places_count": PIPELINES_STUCK_TASKS.name,
    "hifi_pipelines_kept_count": PIPELINES_KEPT.name,
    "hifi_pipelines_stuck_tasks_count": PIPELINES_STUCK_TASKS.name,
}


def table() -> str:
    """Return the catalogue as a Markdown table."""
    rows = [
        f"| `{m.name}` | {m.kind} | {', '.join(m.labels) or '-'} | {m.meaning} |" for m in CATALOGUE
    ]
    return "\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *rows])
