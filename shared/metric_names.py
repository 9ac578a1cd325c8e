"""Every metric there is: its name, kind, labels and meaning.

Names follow <hifi>_<stage>_<noun>_<unit>[_total]. Labels are bounded sets: a stream, a destination,
a status, a reason; never an event id, a URL or a key. docs/metrics.md is generated from here.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

# From a millisecond, which a local Kafka needs at best, to the gateway's own deadline of 10 s.
ACK_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
# From an idle micro-batch to a lane that hangs on a destination's timeout.
MICRO_BATCH_BUCKETS_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    meaning: str
    labels: tuple[str, ...] = ()
    # A histogram's.
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
    "Request body bytes received, as they came: compressed ones compressed.",
    labels=("stream",),
)
GATEWAY_ACK_SECONDS = Metric(
    "hifi_gateway_ack_seconds",
    "From the parsed request to Kafka's last report for it.",
    labels=("stream",),
    buckets=ACK_BUCKETS_S,
)
GATEWAY_IN_FLIGHT_BYTES = Metric(
    "hifi_gateway_in_flight_bytes",
    "Body bytes held: of requests without an answer yet, and of events reported unknown that"
    " Kafka has not answered for.",
)
GATEWAY_CONNECTIONS = Metric(
    "hifi_gateway_connection_count",
    "Open connections of callers, idle ones too; at most HIFI_GATEWAY_CONNECTIONS_MAX.",
)
GATEWAY_UP = Metric(
    "hifi_gateway_up",
    "1 while /readyz says so: Kafka stores records and the gateway is not stopping.",
)
GATEWAY_CONFIG_AGE_SECONDS = Metric(
    "hifi_gateway_config_age_seconds",
    "Since Kafka last said that the gateway's configuration is the newest.",
)
GATEWAY_SHORT_OF_COPIES_TOPICS = Metric(
    "hifi_gateway_short_of_copies_topics",
    "Topics of streams in fewer copies than HIFI_KAFKA_REPLICAS and HIFI_KAFKA_IN_SYNC_MIN say.",
)
GATEWAY_SPANS = Metric(
    "hifi_gateway_spans_total",
    "Spans of traced requests, by what became of them: sent to the collector, or dropped as there"
    " were too many or it did not take them.",
    labels=("result",),
)
DELIVERY_LANE_UP = _of_destination(
    "hifi_delivery_lane_up",
    "1 while the lane runs, 0 while a part of it is down and waits to be tried again, or cannot"
    " begin. Shown by the process that has it; not while it is paused.",
)
DELIVERY_LANE_RESTARTS = _of_destination(
    "hifi_delivery_lane_restarts_total",
    "Times that a lane, or a part of it, died and was tried again.",
)
DELIVERY_LANE_STALLED_SECONDS = _of_destination(
    "hifi_delivery_lane_stalled_seconds",
    "How long the Kafka partition of a lane that waits longest has had something to send and made"
    " no progress, or could not begin, once it is too long; else 0.",
)
DELIVERY_EVENTS_READ = _of_destination(
    "hifi_delivery_events_read_total",
    "Events that finished jobs have read; a repeat counts again.",
)
DELIVERY_MICRO_BATCH_SECONDS = Metric(
    "hifi_delivery_micro_batch_seconds",
    "How long a job with events took, from its plan to its end.",
    labels=("destination",),
    buckets=MICRO_BATCH_BUCKETS_S,
)
DELIVERY_PROGRESS_AGE_SECONDS = _of_destination(
    "hifi_delivery_progress_age_seconds",
    "How long the Kafka partition of a lane that waits longest has had something to send and made"
    " no progress; one that hangs shows here.",
)
DELIVERY_FLOW_STATE = Metric(
    "hifi_delivery_flow_state",
    "1 for the state a destination is in: closed (all is well), rate-limited, half_open, open, held"
    " or disabled; 0 for the others.",
    labels=("destination", "state"),
)
DELIVERY_FAILING_RATIO = _of_destination(
    "hifi_delivery_failing_ratio",
    "How much of the time until it is disabled a destination has failed without one success: 0 is"
    " well, 1 is due. `destination.failing` is logged at 0.5, 0.7 and 0.9.",
)
DELIVERY_PARALLEL = _of_destination(
    "hifi_delivery_parallel_requests",
    "Requests that a destination gets at once, as adapted to how it answers.",
)
DELIVERY_ATTEMPTS = Metric(
    "hifi_delivery_attempts_total",
    "Requests made, retries included, by outcome: ok, recoverable, non_recoverable or park.",
    labels=("destination", "outcome"),
)
DELIVERY_EVENTS_PARKED = Metric(
    "hifi_delivery_events_parked_total",
    "Events sent to wait without an attempt being charged, by cause.",
    labels=("destination", "cause"),
)
RETRIER_LANE_UP = Metric(
    "hifi_retrier_lane_up",
    "1 while this lane of the retrier's goes on, 0 while a Kafka partition of it is down.",
    labels=("lane",),
)
RETRIER_LANE_RESTARTS = Metric(
    "hifi_retrier_lane_restarts_total",
    "Times something of this lane of the retrier's died and was started again.",
    labels=("lane",),
)
RETRIER_PROGRESS_AGE_SECONDS = Metric(
    "hifi_retrier_progress_age_seconds",
    "Since when something due of this lane's has not gone on; if it hangs, it shows here.",
    labels=("lane",),
)
RETRIER_LANE_STALLED_SECONDS = Metric(
    "hifi_retrier_lane_stalled_seconds",
    "How long the lane that has something to do has made no progress, once it is too long; else 0.",
    labels=("lane",),
)
RETRIER_EVENTS_RELEASED = Metric(
    "hifi_retrier_events_released_total",
    "Waiting events that finished micro-batches have read past the due gate.",
    labels=("lane",),
)
RETRIER_MICRO_BATCH_SECONDS = Metric(
    "hifi_retrier_micro_batch_seconds",
    "How long a micro-batch of the retrier with events took, from its plan to its report.",
    buckets=MICRO_BATCH_BUCKETS_S,
    labels=("lane",),
)
PIPELINES_LANE_UP = _of_pipeline(
    "hifi_pipelines_lane_up",
    "1 while the pipeline goes on, 0 while it waits to be tried again. Shown by the process that"
    " has it; of one that is refused nothing is shown.",
)
PIPELINES_LANE_RESTARTS = _of_pipeline(
    "hifi_pipelines_lane_restarts_total",
    "Times that a job of the pipeline's did not come to its end and was tried again.",
)
PIPELINES_LANE_STALLED_SECONDS = _of_pipeline(
    "hifi_pipelines_lane_stalled_seconds",
    "How long the pipeline has had something to do and made no progress, once it is too long;"
    " else 0.",
)
PIPELINES_PROGRESS_AGE_SECONDS = _of_pipeline(
    "hifi_pipelines_progress_age_seconds",
    "Since when the pipeline has had something to do without going on; if it hangs, it shows here.",
)
PIPELINES_EVENTS_READ = _of_pipeline(
    "hifi_pipelines_events_read_total",
    "Events that finished jobs have read; a repeat counts again.",
)
PIPELINES_EVENTS = Metric(
    "hifi_pipelines_events_total",
    "Events by outcome: passed (one may become several), filtered, late or dead; a repeat counts"
    " again. Lost ones are offsets that Kafka had already deleted.",
    labels=("pipeline", "outcome"),
)
PIPELINES_KEPT = _of_pipeline(
    "hifi_pipelines_kept_count",
    "Windows that are open, or keys that are known, of a pipeline that keeps such.",
)
PIPELINES_KEPT_BYTES = _of_pipeline(
    "hifi_pipelines_kept_bytes", "The memory that these take, as it is counted for the bounds."
)
PIPELINES_MICRO_BATCH_SECONDS = Metric(
    "hifi_pipelines_micro_batch_seconds",
    "How long a job with events of the pipeline took, from its plan to its end.",
    labels=("pipeline",),
    buckets=MICRO_BATCH_BUCKETS_S,
)
PIPELINES_EXECUTOR_ENDED = Metric(
    "hifi_pipelines_executor_ended_total",
    "Times that the pipeline has ended the executor that works on all events, with nothing else at"
    " work in it: no other can have done it.",
    labels=("tenant", "pipeline"),
)
PIPELINES_EXECUTORS_LOST = Metric(
    "hifi_pipelines_executors_lost_total",
    "Executors of this process that have ended before it, whoever's doing it was.",
)
PIPELINES_HELD_PLACES = Metric(
    "hifi_pipelines_held_places_count",
    "Places of the executor that tasks hold which were cut off a while ago and go on.",
)
PIPELINES_SPARK_UP = Metric(
    "hifi_pipelines_spark_up",
    "1 once the process has started Spark, which it does for the first pipeline that it gets.",
)
OBSERVE_UP = Metric(
    "hifi_observe_up",
    "1 while the sampler has read all receipts there are; 0 means that its figures may be old.",
)
OBSERVE_LEASE_UP = Metric(
    "hifi_observe_lease_up",
    "1 if this observer runs the audit and has the figures of streams and destinations; 0 while it"
    " stands by, as another holds the lease.",
)
OBSERVE_VERDICT = Metric(
    "hifi_observe_verdict",
    "1 for the one verdict that holds of a destination, with its cause in a word (status_503,"
    " connect_refused); nothing for the others.",
    labels=("destination", "verdict", "cause"),
)
OBSERVE_LAG_SECONDS = Metric(
    "hifi_observe_lag_seconds",
    "How late events were in the last 5 minutes, out of a stage or end to end, since their own time"
    " (event) or since the gateway had them (accepted).",
    labels=("destination", "stage", "since", "quantile"),
)
OBSERVE_STAGE_SECONDS = Metric(
    "hifi_observe_stage_seconds",
    "A stage's share of the mean time from acceptance to delivery: a destination's stages add up"
    " to its hifi_observe_mean_lag_seconds since accepted.",
    labels=("destination", "stage"),
)
OBSERVE_MEAN_LAG_SECONDS = Metric(
    "hifi_observe_mean_lag_seconds",
    "How late delivered events were in the last 5 minutes on the average, since their own time"
    " (event) or since the gateway had them (accepted).",
    labels=("destination", "since"),
)
OBSERVE_INGEST_SECONDS = Metric(
    "hifi_observe_ingest_seconds",
    "How old events were when the gateway got them, in the last 5 minutes.",
    labels=("stream", "quantile"),
)
OBSERVE_EVENTS_PER_SECOND = Metric(
    "hifi_observe_events_per_second",
    "Events acknowledged per second in the last minute, by the gateway's ledger.",
    labels=("stream",),
)
OBSERVE_FULLEST_PARTITION_RATIO = Metric(
    "hifi_observe_fullest_partition_ratio",
    "How many times its even share of the last minutes' events the fullest Kafka partition of a"
    " stream got; above 2 it is hot. Absent while fewer than 1,000 came.",
    labels=("stream",),
)
OBSERVE_TOP_KEY_RATIO = Metric(
    "hifi_observe_top_key_ratio",
    "What part of a stream's events of the last minutes its most frequent key has, from 0 to 1; 0"
    " where none has a tenth. The console names it.",
    labels=("stream",),
)
OBSERVE_OLDEST_AGE_SECONDS = _of_destination(
    "hifi_observe_oldest_age_seconds",
    "Age of the oldest event that is neither delivered nor dead, since Kafka has it.",
)
OBSERVE_BACKLOG_EVENTS = _of_destination(
    "hifi_observe_backlog_events",
    "Events on their way or waiting, parked and rate-limited ones included.",
)
OBSERVE_BACKLOG_BYTES = _of_destination(
    "hifi_observe_backlog_bytes",
    "The same in bytes, estimated by the mean size of the stream's latest events.",
)
OBSERVE_WAITING_EVENTS = Metric(
    "hifi_observe_waiting_events",
    "Events that wait for a retry, by cause: parked, rate-limited, breaker open or failed attempt.",
    labels=("destination", "cause"),
)
OBSERVE_UNKNOWN_WAITING_EVENTS = _of_destination(
    "hifi_observe_unknown_waiting_events",
    "Events that wait for a destination that no configuration names which can be read here, and"
    " that nobody has removed. They become dead letters at their deadline.",
)
OBSERVE_DEAD_EVENTS = _of_destination(
    "hifi_observe_dead_events",
    "Events that rest in dead letters, by the receipts that are kept.",
)
OBSERVE_UNACCOUNTED_EVENTS = _of_destination(
    "hifi_observe_unaccounted_events",
    "Events without an outcome that their lane has passed or Kafka deleted: lost until explained.",
)
OBSERVE_SILENT_SECONDS = _of_destination(
    "hifi_observe_silent_seconds",
    "How long a lane has given no sign although there is work, seen from outside of Spark.",
)
OBSERVE_LOST_EVENTS = Metric(
    "hifi_observe_lost_events",
    "Events of the last hour's minutes, or found within it, that are lost, by who lost them.",
    labels=("destination", "stage"),
)
OBSERVE_LOST_RATIO = _of_destination(
    "hifi_observe_lost_ratio",
    "The worst minute of these: lost events as a part of those acknowledged.",
)
OBSERVE_OVERDUE_MINUTES = _of_destination(
    "hifi_observe_overdue_minutes",
    "Minutes that should be checked and are not, however old.",
)
OBSERVE_AUDIT_BEHIND_SECONDS = Metric(
    "hifi_observe_audit_behind_seconds",
    "Since the audit last finished a run, beyond the time between two runs.",
)
OBSERVE_AUDIT_RUN_SECONDS = Metric(
    "hifi_observe_audit_run_seconds",
    "How long the audit's last run took.",
)
OBSERVE_UNREADABLE_RECORDS = Metric(
    "hifi_observe_unreadable_count",
    "Records that the audit could not read in the last day: they prove nothing of any event.",
)
OBSERVE_UNDER_MIN_ISR_TOPICS = Metric(
    "hifi_observe_under_min_isr_topics",
    "Topics of ours with too few replicas in sync, of some Kafka partition: it takes no writes.",
)
OBSERVE_CLOCK_SKEW_SECONDS = Metric(
    "hifi_observe_clock_skew_seconds",
    "How far a clock is ahead of the broker's: that of observe, or of the gateways.",
    labels=("clock",),
)

CATALOGUE = tuple(value for value in tuple(globals().values()) if isinstance(value, Metric))


def table() -> str:
    """The catalogue as a Markdown table."""
    rows = [
        f"| `{m.name}` | {m.kind} | {', '.join(m.labels) or '-'} | {m.meaning} |" for m in CATALOGUE
    ]
    return "\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *rows])
