"""The minimal rights of each service in a Kafka with authentication.

The embedded Kafka grants exactly these (`hifi up --secure`). docs/kafka.md has them as a table for
people with a Kafka of their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from shared.event.topics import (
    ACKED,
    ARCHIVE,
    AUDIT,
    CHANGES,
    CONFIG,
    DEAD,
    KEPT_PREFIX,
    LANE_GROUP_PREFIX,
    LANES,
    LEASE_GROUP_PREFIX,
    MINUTES,
    OURS,
    PIPELINES,
    PIPELINES_WRITER_PREFIX,
    PROBE,
    RECEIPTS,
    REDRIVEN,
    REPLAYS,
    REQUESTS,
    RESTORES,
    RETRY_PREFIX,
    SHARES,
    STATE,
    STATEMENTS,
    STREAM_PREFIX,
    TABLE_PREFIX,
    TERMS,
    TRIALS,
    USES,
)

Resource: TypeAlias = Literal["topic", "group", "cluster", "transactional id"]
Operation: TypeAlias = Literal[
    "Read", "Write", "Create", "Delete", "Alter", "Describe", "AlterConfigs", "DescribeConfigs"
]

# Creates and maintains topics: `hifi up`, `hifi doctor`, `hifi replay`, and people.
OPERATOR = "operator"
# The prefix of the gateway's transactions.
TRANSACTION_PREFIX = "hifi-"
# The prefix of a replay's transactions, followed by its stream and its id.
REPLAY_WRITER_PREFIX = "hifi-replay-"


@dataclass(frozen=True, slots=True)
class Right:
    """The allowed operations on one resource in Kafka, or on all with this prefix."""

    resource: Resource
    name: str
    operations: tuple[Operation, ...]
    is_prefix: bool = False


_WRITES: tuple[Operation, ...] = ("Write",)


def _read(*topics: str) -> tuple[Right, ...]:
    return tuple(Right("topic", topic, ("Read", "Describe")) for topic in topics)


def _write(*topics: str) -> tuple[Right, ...]:
    return tuple(Right("topic", topic, ("Write", "Describe")) for topic in topics)


def _both(*topics: str) -> tuple[Right, ...]:
    return tuple(Right("topic", topic, ("Read", "Write", "Describe")) for topic in topics)


def _all_of(prefix: str, *operations: Operation) -> Right:
    return Right("topic", prefix, (*operations, "Describe"), is_prefix=True)


# Committing a lane's position needs Read, reading the position needs Describe.
_LANES = Right("group", LANE_GROUP_PREFIX, ("Read", "Describe"), is_prefix=True)
_SEES_LANES = Right("group", LANE_GROUP_PREFIX, ("Describe",), is_prefix=True)

RIGHTS: Mapping[str, Sequence[Right]] = {
    "gateway": (
        # It creates and extends the topics of streams, and looks up events for their senders.
        _all_of(STREAM_PREFIX, "Read", "Write", "Create", "Alter", "DescribeConfigs"),
        # It creates the topics of tables, and deletes them: nobody is owed their rows.
        _all_of(TABLE_PREFIX, "Read", "Write", "Create", "Delete"),
        # It does not need to read the state that pipelines keep there.
        _all_of(KEPT_PREFIX, "Create"),
        # A redriven dead letter returns to the retry tiers.
        _all_of(RETRY_PREFIX, "Read", "Write", "DescribeConfigs"),
        # A change is written with its author. Gateways tell each other about used idempotency keys
        # and API keys, and about their shares of quotas.
        *_both(CONFIG, CHANGES, REDRIVEN, REPLAYS, REQUESTS, SHARES, USES, TRIALS),
        *_write(PROBE),
        # Restores, signed statements, and pipelines' states as reported by their processes.
        *_read(PIPELINES, RESTORES, STATEMENTS),
        # When a stream is removed, it asks for the retention of these topics. A receipt records
        # that a dead letter was sent again.
        *(
            Right("topic", topic, (*more, "Read", "Describe", "DescribeConfigs"))
            for topic, more in ((ACKED, _WRITES), (DEAD, ()), (RECEIPTS, _WRITES))
        ),
        Right("transactional id", TRANSACTION_PREFIX, ("Write", "Describe"), is_prefix=True),
    ),
    "delivery": (
        _all_of(STREAM_PREFIX, "Read"),
        _all_of(RETRY_PREFIX, "Write"),
        *_read(CONFIG),
        *_both(STATE, LANES, TERMS),
        *_write(RECEIPTS, DEAD),
        _LANES,
        # The leases of lanes.
        Right("group", LEASE_GROUP_PREFIX, ("Read", "Describe"), is_prefix=True),
    ),
    "retrier": (
        # Replays read events from the streams.
        _all_of(STREAM_PREFIX, "Read"),
        _all_of(RETRY_PREFIX, "Read", "Write"),
        *_read(CONFIG),
        # It labels events that it or delivery has read a second time.
        *_both(STATE, LANES, REPLAYS),
        *_write(RECEIPTS, DEAD, PROBE),
        _LANES,
        # The leases and the progress of its work.
        Right("group", LEASE_GROUP_PREFIX, ("Read", "Describe"), is_prefix=True),
        Right("transactional id", REPLAY_WRITER_PREFIX, ("Write", "Describe"), is_prefix=True),
    ),
    "pipelines": (
        _all_of(STREAM_PREFIX, "Read", "Write"),
        # After a rebuild they delete the table of the previous generation.
        _all_of(TABLE_PREFIX, "Read", "Write", "Delete"),
        # Only they use this state, and they delete it when a pipeline is gone.
        _all_of(KEPT_PREFIX, "Read", "Write", "Delete"),
        *_read(CONFIG),
        *_write(RECEIPTS, DEAD),
        # They read requests for trials there, and answer them.
        *_both(PIPELINES, TRIALS),
        *_write(ARCHIVE),
        # The position of each pipeline, and the leases of pipelines.
        _LANES,
        Right("group", LEASE_GROUP_PREFIX, ("Read", "Describe"), is_prefix=True),
        # A pipeline's results are written in one transaction with its position.
        Right("transactional id", PIPELINES_WRITER_PREFIX, ("Write", "Describe"), is_prefix=True),
    ),
    "observe": (
        # It reads all topics that it checks, and asks for their retention.
        _all_of(STREAM_PREFIX, "Read", "DescribeConfigs"),
        _all_of(RETRY_PREFIX, "Read", "DescribeConfigs"),
        *(
            Right("topic", topic, ("Read", "Describe", "DescribeConfigs"))
            for topic in (ACKED, RECEIPTS, DEAD, CONFIG, STATE, PIPELINES, REDRIVEN, RESTORES)
        ),
        *(
            Right("topic", topic, ("Read", "Write", "Describe", "DescribeConfigs"))
            # The observers send notices to channels, and also answer trials of channels.
            for topic in (MINUTES, STATEMENTS, PROBE, AUDIT, TRIALS)
        ),
        _SEES_LANES,
        # The lease of the active observer, and its statements.
        Right("group", LEASE_GROUP_PREFIX, ("Read", "Describe"), is_prefix=True),
        Right("transactional id", AUDIT, ("Write", "Describe")),
    ),
    OPERATOR: (
        _all_of(
            OURS,
            *("Read", "Write", "Create", "Delete", "Alter", "AlterConfigs", "DescribeConfigs"),
        ),
        Right("group", OURS, ("Read", "Describe", "Delete"), is_prefix=True),
        # It asks how full the disks are (`hifi size`), and grants rights to others (`hifi topics
        # --grant`). Kafka uses this name for every cluster.
        Right("cluster", "kafka-cluster", ("Alter", "Describe")),
        Right("transactional id", TRANSACTION_PREFIX, ("Write", "Describe"), is_prefix=True),
    ),
}


def table() -> str:
    """Return RIGHTS as a Markdown table."""
    rows = [
        f"| {service} | {right.resource} | `{right.name}{'*' if right.is_prefix else ''}`"
        f" | {', '.join(right.operations)} |"
        for service, rights in RIGHTS.items()
        for right in rights
    ]
    return "\n".join(["| user | resource | name | operations |", "|---|---|---|---|", *rows])
