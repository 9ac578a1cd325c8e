"""Makes Spark's options for reads and writes of Kafka, and its format of a position."""

import json

from shared.event.record import Position, Ranges
from shared.event.topics import OUTCOME_BYTES_MAX
from shared.runtime.kafka.connection import spark_connection

# How long Kafka may take to store an outcome; then the task fails and all its outcomes are sent
# again. A restarting broker is down for up to 30 s. With the default of 2 min, four tries would
# take 8 min before anybody learns of the error (ADR 0027).
_OUTCOME_TIMEOUT_MS = 45_000
# About as many events as a broker sends at once, which is a megabyte. Between two polls Spark's
# source asks where the log begins and ends, and discards prefetched events.
_POLL_EVENTS_MAX = 10_000


def range_options(bootstrap_servers: str, ranges: Ranges) -> dict[str, str]:
    """Return options to read just these offsets."""
    starts = by_topic({partition: begin for partition, (begin, _) in ranges.items()})
    return {
        **spark_connection(bootstrap_servers),
        # The events of an aborted redrive do not count.
        "kafka.isolation.level": "read_committed",
        "kafka.max.poll.records": str(_POLL_EVENTS_MAX),
        "assign": json.dumps(
            {topic: sorted(map(int, numbers)) for topic, numbers in starts.items()}
        ),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": starting_offsets(
            {partition: end for partition, (_, end) in ranges.items()}
        ),
        "failOnDataLoss": "true",
        "includeHeaders": "true",
    }


def sink_options(bootstrap_servers: str, *, name: str) -> dict[str, str]:
    """Return options to write outcomes: a task succeeds only when Kafka has them."""
    return {
        **spark_connection(bootstrap_servers),
        "kafka.acks": "all",
        "kafka.enable.idempotence": "true",
        "kafka.compression.type": "lz4",
        "kafka.max.request.size": str(OUTCOME_BYTES_MAX),
        "kafka.delivery.timeout.ms": str(_OUTCOME_TIMEOUT_MS),
        "kafka.max.block.ms": str(_OUTCOME_TIMEOUT_MS),
        # A separate producer, so that a flush does not wait for other records.
        "kafka.client.id": f"hifi-{name}",
    }


def by_topic(position: Position) -> dict[str, dict[str, int]]:
    """Convert a position to the format of Spark's Kafka source: {topic: {partition: offset}}."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in position.items():
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def starting_offsets(ends: Position) -> str:
    """Return a position as an option of Spark's Kafka source."""
    return json.dumps(by_topic(ends))
