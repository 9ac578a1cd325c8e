"""Says in Spark's words how to read from Kafka and write to it, and what a position is."""

import json

from shared.event.record import Position, Ranges
from shared.event.topics import OUTCOME_BYTES_MAX
from shared.runtime.kafka.connection import spark_connection

# How long Kafka may take to store an outcome before its task fails, and all of it is sent again. A
# broker that restarts is away for up to 30 s; with the default of two minutes four tries pass in
# eight minutes before anybody hears why (ADR 0027).
_OUTCOME_TIMEOUT_MS = 45_000
# As many events as a broker gives at once, which is a megabyte. Between two polls Spark's source
# looks where the log begins and ends, and what its consumer has fetched beyond a poll is lost.
_POLL_EVENTS_MAX = 10_000


def range_options(bootstrap_servers: str, ranges: Ranges) -> dict[str, str]:
    """Reads just these offsets."""
    starts = by_topic({partition: begin for partition, (begin, _) in ranges.items()})
    return {
        **spark_connection(bootstrap_servers),
        # A re-drive that broke off has never been.
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
    """Writes outcomes so that a task succeeds only when Kafka has them."""
    return {
        **spark_connection(bootstrap_servers),
        "kafka.acks": "all",
        "kafka.enable.idempotence": "true",
        "kafka.compression.type": "lz4",
        "kafka.max.request.size": str(OUTCOME_BYTES_MAX),
        "kafka.delivery.timeout.ms": str(_OUTCOME_TIMEOUT_MS),
        "kafka.max.block.ms": str(_OUTCOME_TIMEOUT_MS),
        # A producer of its own: a flush waits for nobody else's records.
        "kafka.client.id": f"hifi-{name}",
    }


def by_topic(position: Position) -> dict[str, dict[str, int]]:
    """A position as Spark's Kafka source writes it, and ours: {topic: {partition: offset}}."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in position.items():
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def starting_offsets(ends: Position) -> str:
    """A position as an option of Spark's Kafka source."""
    return json.dumps(by_topic(ends))
