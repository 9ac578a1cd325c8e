"""The rights of each service in a Kafka that asks who is calling, and no more.

The embedded Kafka grants just this (`hifi up --secure`), and docs/kafka.md has it as a table for
those who bring their own.
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

# It makes topics and looks after them: `hifi up`, `hifi doctor`, `hifi replay` and a person.
OPERATOR = "operator"
# The prefix of the gateway's transactions.
TRANSACTION_PREFIX = "hifi-"
# The prefix of a replay's transactions, before its stream and its id.
REPLAY_WRITER_PREFIX = "hifi-replay-"


@dataclass(frozen=True, slots=True)
class Right:
    """The operations allowed on one thing in Kafka, or on all whose names begin so."""

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


# Committing a lane's position takes Read, asking for it takes Describe.
_LANES = Right("group", LANE_GROUP_PREFIX, ("Read", "Describe"), is_prefix=True)
_SEES_LANES = Right("group", LANE_GROUP_PREFIX, ("Describe",), is_prefix=True)

RIGHTS: Mapping[str, Sequence[Right]] = {
    "gateway": (
        # It makes the topics of streams, lets them grow, and finds events for their senders.
        _all_of(STREAM_PREFIX, "Read", "Write", "Create", "Alter", "DescribeConfigs"),
        # And those of tables, which it takes away as well: their rows are owed to nobody.
        _all_of(TABLE_PREFIX, "Read", "Write", "Create", "Delete"),
        # It has no business with what pipelines keep there.
        _all_of(KEPT_PREFIX, "Create"),
        # A dead letter that is sent again goes on where it would have gone.
        _all_of(RETRY_PREFIX, "Read", "Write", "DescribeConfigs"),
        # A change is written with its author. The other gateways learn of the keys that were used
        # (of requests, and of their senders), and of shares of quotas.
        *_both(CONFIG, CHANGES, REDRIVEN, REPLAYS, REQUESTS, SHARES, USES, TRIALS),
        *_write(PROBE),
        # The states of pipelines, as their processes report them; restores; and signed statements.
        *_read(PIPELINES, RESTORES, STATEMENTS),
        # How long they keep something is asked when a stream is removed; and that a dead letter
        # was sent again is in a receipt.
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
        # The lanes of each process.
        Right("group", LEASE_GROUP_PREFIX, ("Read", "Describe"), is_prefix=True),
    ),
    "retrier": (
        # Replays are read out of the streams.
        _all_of(STREAM_PREFIX, "Read"),
        _all_of(RETRY_PREFIX, "Read", "Write"),
        *_read(CONFIG),
        # Events that were read again, by it or by delivery, are labelled.
        *_both(STATE, LANES, REPLAYS),
        *_write(RECEIPTS, DEAD, PROBE),
        _LANES,
        # The work of each process, and how far it is.
        Right("group", LEASE_GROUP_PREFIX, ("Read", "Describe"), is_prefix=True),
        Right("transactional id", REPLAY_WRITER_PREFIX, ("Write", "Describe"), is_prefix=True),
    ),
    "pipelines": (
        _all_of(STREAM_PREFIX, "Read", "Write"),
        # After a rebuild they take away the table of the generation before.
        _all_of(TABLE_PREFIX, "Read", "Write", "Delete"),
        # They alone use what they keep, and take it away once a pipeline is gone.
        _all_of(KEPT_PREFIX, "Read", "Write", "Delete"),
        *_read(CONFIG),
        *_write(RECEIPTS, DEAD),
        # Trials are asked for, and answered, there.
        *_both(PIPELINES, TRIALS),
        *_write(ARCHIVE),
        # How far each pipeline is, and which process has which of them.
        _LANES,
        Right("group", LEASE_GROUP_PREFIX, ("Read", "Describe"), is_prefix=True),
        # What they leave behind, with how far they are.
        Right("transactional id", PIPELINES_WRITER_PREFIX, ("Write", "Describe"), is_prefix=True),
    ),
    "observe": (
        # It reads all that it proves, and asks how the topics are kept.
        _all_of(STREAM_PREFIX, "Read", "DescribeConfigs"),
        _all_of(RETRY_PREFIX, "Read", "DescribeConfigs"),
        *(
            Right("topic", topic, ("Read", "Describe", "DescribeConfigs"))
            for topic in (ACKED, RECEIPTS, DEAD, CONFIG, STATE, PIPELINES, REDRIVEN, RESTORES)
        ),
        *(
            Right("topic", topic, ("Read", "Write", "Describe", "DescribeConfigs"))
            # The observers that send notices to channels also try the channels.
            for topic in (MINUTES, STATEMENTS, PROBE, AUDIT, TRIALS)
        ),
        _SEES_LANES,
        # The active one of several observers, and its statements.
        Right("group", LEASE_GROUP_PREFIX, ("Read", "Describe"), is_prefix=True),
        Right("transactional id", AUDIT, ("Write", "Describe")),
    ),
    OPERATOR: (
        _all_of(
            OURS,
            *("Read", "Write", "Create", "Delete", "Alter", "AlterConfigs", "DescribeConfigs"),
        ),
        Right("group", OURS, ("Read", "Describe", "Delete"), is_prefix=True),
        # How full its disks are (`hifi size`), and to give others their rights (`hifi topics
        # --grant`). Kafka calls each cluster so.
        Right("cluster", "kafka-cluster", ("Alter", "Describe")),
        Right("transactional id", TRANSACTION_PREFIX, ("Write", "Describe"), is_prefix=True),
    ),
}


def table() -> str:
    """RIGHTS as a table in Markdown."""
    rows = [
        f"| {service} | {right.resource} | `{right.name}{'*' if right.is_prefix else ''}`"
        f" | {', '.join(right.operations)} |"
        for service, rights in RIGHTS.items()
        for right in rights
    ]
    return "\n".join(["| user | resource | name | operations |", "|---|---|---|---|", *rows])
