"""Computes each topic's incoming, stored and outgoing bytes, and its number of Kafka partitions."""

import math
from dataclasses import dataclass

from shared.event.times import DAY_MS
from shared.event.topics import (
    ACKED,
    ACKED_RETENTION_MS,
    DEAD,
    DEAD_RETENTION_MS,
    RECEIPTS,
    RECEIPTS_RETENTION_MS,
    RETRY_PREFIX,
    RETRY_RETENTION_MS,
    STREAM_PREFIX,
)
from shared.scale.ask import Ask
from shared.scale.scale_error import ImpossibleError

# The bytes of a record besides the event: envelope, lengths, and its share of the batch's head
# (tests/unit/scale/test_topic_sizes.py packs some: 113 with an id of the event's own, else 117).
STREAM_OVERHEAD_BYTES = 117
# A waiting event has these too: its origin, its attempts, its deadline, and the last failure.
RETRY_OVERHEAD_BYTES = 500
# A random UUID in the ledger, after zstd, with its share of the row (measured: 20.0).
LEDGER_EVENT_BYTES = 20
# A receipt of a request with its offsets, minutes and lags.
RECEIPT_BYTES = 1_000
# A Kafka partition of MSK's Express brokers carries 15 MB/s; half of it is left for catching up.
PARTITION_USE = 0.5
# Adding partitions later would move keys to other ones, so a stream gets 50 % more from the start.
PARTITION_GROWTH = 1.5
# A number of Kafka partitions is a multiple of one of these, so that three zones can lead equal
# parts of them, and many numbers of machines can share them evenly.
_ROUND_TO = (3, 6, 12)
_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class TopicSize:
    """A topic, or all topics of a kind."""

    name: str
    partitions: int
    # The bytes/s from clients at the peak, and how many times they are read.
    in_bytes_s: float
    reads: float
    mean_share: float
    retention_s: float

    @property
    def stored_bytes(self) -> float:
        """The bytes of one copy at the traffic of a mean day."""
        return self.in_bytes_s * self.mean_share * self.retention_s

    @property
    def out_bytes_s(self) -> float:
        return self.in_bytes_s * self.reads


def topic_sizes(ask: Ask, *, delivery_instances: int, partition_mb_s: float) -> list[TopicSize]:
    """Return the sizes of all topics that grow with traffic."""
    events_s = ask.events_per_s
    record_bytes = ask.event_bytes + STREAM_OVERHEAD_BYTES
    retried_s = events_s * ask.fan_out * ask.retry_share
    died_s = events_s * ask.fan_out * ask.dead_share
    retry_bytes = record_bytes + RETRY_OVERHEAD_BYTES
    requests_s = events_s * ask.fan_out / ask.destination_batch
    each_mb_s = PARTITION_USE * partition_mb_s
    stream_partitions = _stream_partitions(ask, delivery_instances, partition_mb_s)

    def kind(
        name: str, in_bytes_s: float, reads: float, retention_ms: float, partitions: int = 0
    ) -> TopicSize:
        needed = math.ceil(in_bytes_s / (each_mb_s * _MB))
        return TopicSize(
            name=name,
            partitions=partitions or rounded(needed),
            in_bytes_s=in_bytes_s,
            reads=reads,
            mean_share=ask.mean_share,
            retention_s=retention_ms / 1_000,
        )

    return [
        kind(
            f"{STREAM_PREFIX}*",
            events_s * record_bytes,
            ask.fan_out,
            ask.retention_s * 1_000,
            stream_partitions * ask.streams,
        ),
        # The retrier reads waiting events; the audit and the console read ledger and receipts.
        kind(f"{RETRY_PREFIX}*", retried_s * retry_bytes, 1, RETRY_RETENTION_MS),
        kind(DEAD, died_s * retry_bytes, 0, DEAD_RETENTION_MS),
        kind(RECEIPTS, (requests_s + retried_s + died_s) * RECEIPT_BYTES, 2, RECEIPTS_RETENTION_MS),
        kind(ACKED, events_s * LEDGER_EVENT_BYTES, 1, ACKED_RETENTION_MS),
    ]


def rounded(partitions: int) -> int:
    """Round up to a number that zones and machines can share evenly."""
    to = next((to for to in _ROUND_TO if partitions <= to), _ROUND_TO[-1])
    return -(-max(partitions, 1) // to) * to


def days(size: TopicSize) -> float:
    return size.retention_s * 1_000 / DAY_MS


def _stream_partitions(ask: Ask, delivery_instances: int, partition_mb_s: float) -> int:
    """Return the Kafka partitions of one stream: enough for its bytes, and for its machines."""
    stream_bytes_s = ask.events_per_s * (ask.event_bytes + STREAM_OVERHEAD_BYTES) / ask.streams
    hot_mb_s = ask.hot_key_share * stream_bytes_s / _MB
    if hot_mb_s > partition_mb_s:
        raise ImpossibleError(
            "one Kafka partition",
            f"The busiest key has {hot_mb_s:,.1f} MB/s. The events of a key keep their order in one"
            f" Kafka partition, which carries {partition_mb_s:g} MB/s: use a finer key, or none.",
        )
    for_bytes = math.ceil(stream_bytes_s / (PARTITION_USE * partition_mb_s * _MB))
    for_delivery = math.ceil(delivery_instances / ask.streams)
    if ask.partitions is None:
        return rounded(max(math.ceil(PARTITION_GROWTH * for_bytes), for_delivery))
    if ask.partitions < max(for_bytes, for_delivery):
        why = (
            f"{stream_bytes_s / _MB:,.1f} MB/s need {for_bytes}"
            if for_bytes >= for_delivery
            else f"{for_delivery} machines share it, and each needs at least one"
        )
        raise ImpossibleError(
            "Kafka partitions",
            f"A stream of {ask.partitions} Kafka partitions is too narrow: {why}. Make a new stream"
            " with more (adding them later moves keys to other partitions), or split the traffic.",
        )
    return ask.partitions
