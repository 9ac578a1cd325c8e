"""Decides every metric there is: its name, kind, labels and meaning.

Names follow <hifi>_<node>_<noun>_<unit>[_total]. Labels are bounded sets: a stream, a destination,
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
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


GATEWAY_REQUESTS = Metric(
    "hifi_gateway_requests_total",
    "counter",
    "Requests answered, by route and HTTP status.",
    labels=("route", "status"),
)
GATEWAY_EVENTS = Metric(
    "hifi_gateway_events_total",
    "counter",
    "Events by what the caller was told: accepted, rejected, retry, unknown or aborted.",
    labels=("stream", "result"),
)
GATEWAY_BODY_BYTES = Metric(
    "hifi_gateway_body_bytes_total",
    "counter",
    "Request body bytes received, as they came: compressed ones compressed.",
    labels=("stream",),
)
GATEWAY_ACK_SECONDS = Metric(
    "hifi_gateway_ack_seconds",
    "histogram",
    "From the parsed request to Kafka's last report for it.",
    labels=("stream",),
    buckets=ACK_BUCKETS_S,
)
GATEWAY_IN_FLIGHT_BYTES = Metric(
    "hifi_gateway_in_flight_bytes",
    "gauge",
    "Body bytes held: of requests without an answer yet, and of events reported unknown that"
    " Kafka has not answered for.",
)
GATEWAY_UP = Metric(
    "hifi_gateway_up",
    "gauge",
    "1 while /readyz says so: Kafka stores records and the gateway is not stopping.",
)
GATEWAY_CONFIG_AGE_SECONDS = Metric(
    "hifi_gateway_config_age_seconds",
    "gauge",
    "Since Kafka last said that the gateway's configuration is the newest.",
)
DELIVERY_LANE_UP = Metric(
    "hifi_delivery_lane_up",
    "gauge",
    "1 while the lane's Spark query runs, 0 while it is down and waits for its restart.",
    labels=("destination",),
)
DELIVERY_LANE_RESTARTS = Metric(
    "hifi_delivery_lane_restarts_total",
    "counter",
    "Times a lane's query died and was started again.",
    labels=("destination",),
)
DELIVERY_LANE_STALLED_SECONDS = Metric(
    "hifi_delivery_lane_stalled_seconds",
    "gauge",
    "How long a lane that has something to do has made no progress, once it is too long; else 0.",
    labels=("destination",),
)
DELIVERY_EVENTS_READ = Metric(
    "hifi_delivery_events_read_total",
    "counter",
    "Events that finished micro-batches have read; a replay counts again.",
    labels=("destination",),
)
DELIVERY_MICRO_BATCH_SECONDS = Metric(
    "hifi_delivery_micro_batch_seconds",
    "histogram",
    "How long a micro-batch with events took, from trigger to commit.",
    labels=("destination",),
    buckets=MICRO_BATCH_BUCKETS_S,
)
DELIVERY_PROGRESS_AGE_SECONDS = Metric(
    "hifi_delivery_progress_age_seconds",
    "gauge",
    "Since the lane last reported progress; a lane that hangs shows here.",
    labels=("destination",),
)
RETRIER_LANE_UP = Metric(
    "hifi_retrier_lane_up",
    "gauge",
    "1 while the retrier's Spark query runs, 0 while it is down and waits for its restart.",
)
RETRIER_LANE_RESTARTS = Metric(
    "hifi_retrier_lane_restarts_total",
    "counter",
    "Times the retrier's query died and was started again.",
)
RETRIER_PROGRESS_AGE_SECONDS = Metric(
    "hifi_retrier_progress_age_seconds",
    "gauge",
    "Since the retrier's lane last reported progress; if it hangs, it shows here.",
)
RETRIER_LANE_STALLED_SECONDS = Metric(
    "hifi_retrier_lane_stalled_seconds",
    "gauge",
    "How long the lane that has something to do has made no progress, once it is too long; else 0.",
)
RETRIER_EVENTS_RELEASED = Metric(
    "hifi_retrier_events_released_total",
    "counter",
    "Waiting events that finished micro-batches have read past the due gate.",
)
RETRIER_MICRO_BATCH_SECONDS = Metric(
    "hifi_retrier_micro_batch_seconds",
    "histogram",
    "How long a micro-batch of the retrier with events took, from trigger to commit.",
    buckets=MICRO_BATCH_BUCKETS_S,
)

CATALOGUE: tuple[Metric, ...] = tuple(
    found for found in tuple(globals().values()) if isinstance(found, Metric)
)


def table() -> str:
    """The catalogue as a Markdown table."""
    rows = [
        f"| `{m.name}` | {m.kind} | {', '.join(m.labels) or '-'} | {m.meaning} |" for m in CATALOGUE
    ]
    return "\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *rows])
