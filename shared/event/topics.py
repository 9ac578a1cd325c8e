"""Every topic's name, the keys written to it, and how it must be set up.

No other file spells a topic name. A reader that meets a topic of ours asks here what it is.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from shared.event.times import DAY_MS, HOUR_MS

ConfigKind = Literal[
    "stream", "destination", "pipeline", "replacement", "table", "channel", "key", "tenant",
    "changes"]  # fmt: skip

# The prefix of everything of ours in a cluster.
OURS = "hifi."
STREAM_PREFIX = "hifi.stream."
TABLE_PREFIX = "hifi.table."
# The state that a pipeline keeps of events it has read: open windows, and keys that it has seen.
KEPT_PREFIX = "hifi.kept."
RETRY_PREFIX = "hifi.retry."
# Events that were not tried when they were due wait beside their tier: they may be a crowd, which
# would stand before the others' few.
_PARKED = ".parked"
# Where due events of destinations that answer slowly go on to (ADR 0051).
SLOW_TIER = "slow"
DEAD = "hifi.dead"
RECEIPTS = "hifi.receipts"
ACKED = "hifi.acked"
MINUTES = "hifi.minutes"
STATEMENTS = "hifi.statements"
AUDIT = "hifi.audit"
LANE_GROUP_PREFIX = "hifi.lane."
# The groups in which processes of the same service share out its work.
LEASE_GROUP_PREFIX = "hifi.leases."
# The beginning of a pipeline lane's name, where a destination has its own name.
_PIPELINE = "pipeline:"
# The group with a restore's progress, by its id; and the name under which it writes to a stream.
RESTORE_GROUP_PREFIX = "hifi.restore."
_RESTORE_WRITER_PREFIX = "hifi-restore-"
# Each process that runs pipelines writes as the holder of its slots.
PIPELINES_WRITER_PREFIX = "hifi-pipelines."
# The lanes over all tiers, and over what waits for slow destinations; any other lane is called
# after its destination.
RETRIER = "retrier"
RETRIER_SLOW = "retrier-slow"
CONFIG = "hifi.config"
CHANGES = "hifi.changes"
STATE = "hifi.state"
LANES = "hifi.lanes"
TERMS = "hifi.terms"
PIPELINES = "hifi.pipelines"
ARCHIVE = "hifi.archive"
RESTORES = "hifi.restores"
REPLAYS = "hifi.replays"
PROBE = "hifi.probe"
REDRIVEN = "hifi.redriven"
REQUESTS = "hifi.requests"
SHARES = "hifi.shares"
TRIALS = "hifi.trials"
USES = "hifi.uses"

# No dot: Kafka's own metrics cannot tell a.b from a_b, and a stream is one word of the topic name.
# 100 characters leave room for the prefix in Kafka's 249.
NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")

# Longer than the longest outage we plan for (a long weekend) plus the 72 h retry span.
STREAM_RETENTION_MS = 7 * DAY_MS
# The retry deadline of 72 h and a day to notice that the retrier stands still.
RETRY_RETENTION_MS = 4 * DAY_MS
# A month to look at what was given up, as Stripe keeps undelivered events for 30 days.
DEAD_RETENTION_MS = 30 * DAY_MS
# As long as dead letters, so that an audit can always explain one.
RECEIPTS_RETENTION_MS = 30 * DAY_MS

# Kafka deletes whole segments, a week's by default: with segments of a day a dead letter is gone a
# day after its month at the latest, and its mark, which is younger, a day later.
SEGMENT_MS = DAY_MS
_SEGMENT_MS_OF_KAFKA = 7 * DAY_MS
REDRIVEN_RETENTION_MS = DEAD_RETENTION_MS + SEGMENT_MS + DAY_MS
# Longer than what it names: events that Kafka deletes unread have their ids in the ledger.
ACKED_RETENTION_MS = STREAM_RETENTION_MS + DAY_MS
# A year, as audits of people go; a statement has a few hundred bytes.
STATEMENTS_RETENTION_MS = 365 * DAY_MS
# As long: people ask who has changed something when it has come out.
CHANGES_RETENTION_MS = STATEMENTS_RETENTION_MS

# Kafka's word for it is -1, but people also write a number that no calendar has.
_FOR_EVER_MS = 36_500 * DAY_MS

# A process with a copy of a table that was away for less than half of this has missed no deletion.
TOMBSTONES_KEPT_MS = 7 * DAY_MS

# How long an Idempotency-Key is good, as Stripe's is.
REQUESTS_RETENTION_MS = DAY_MS

# A process that starts reads it whole, in a second.
LANES_SEGMENT_BYTES = 16_777_216

# Nobody reads a probe; an hour shows a person when it last worked.
PROBE_RETENTION_MS = HOUR_MS

# Twice Kafka's default limit for a record: the largest possible event, with a retry's headers
# around it, must still fit, or its lane would stop forever.
OUTCOME_BYTES_MAX = 2_097_152

# Four Kafka partitions keep both cores of a small machine busy and can be raised per stream.
STREAM_PARTITIONS = 4
# All events that wait for a destination are in one of them, so a crowd or a hang concerns a quarter
# of the others; and the tiers are worked on in this many parts.
RETRY_PARTITIONS = 4
# Outcomes move at the pace of their lanes, so two are enough to spread them.
OUTCOME_PARTITIONS = 2
# Enough that each broker leads one, of as many brokers as there commonly are: the retrier asks each
# for the time. And a probe finds a leader also when one broker is away.
PROBE_PARTITIONS = 12
# Enough that a broker that fails holds up only some of the keys. It must not grow: the records of
# a key are in the order of its partition.
REQUESTS_PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """How a topic must be set up; `hifi doctor` compares, the embedded stack creates."""

    name: str
    partition_count: int
    settings: Mapping[str, str]


def is_name(text: str) -> bool:
    """Whether `text` can name a stream or a destination."""
    return NAME_PATTERN.fullmatch(text) is not None


def stream_topic(stream: str) -> str:
    return STREAM_PREFIX + stream


def stream_of(topic: str) -> str:
    """The stream of a stream topic; any other topic's name is returned whole."""
    return topic.removeprefix(STREAM_PREFIX)


def retry_topic(tier: str, *, is_parked: bool = False) -> str:
    return RETRY_PREFIX + tier + (_PARKED if is_parked else "")


def tier_topics(tier: str) -> tuple[str, str]:
    """A tier's two topics: one for events that were tried last, one for parked events."""
    return retry_topic(tier), retry_topic(tier, is_parked=True)


def retry_topics(tiers: Iterable[str]) -> list[str]:
    """Every topic in which events wait."""
    return [*(topic for tier in tiers for topic in tier_topics(tier)), retry_topic(SLOW_TIER)]


def tier_of(topic: str) -> str:
    return topic.removeprefix(RETRY_PREFIX).removesuffix(_PARKED)


def is_of_parked(topic: str) -> bool:
    return topic.endswith(_PARKED)


def destination_id(stream: str, destination: str) -> str:
    """A destination belongs to one stream, so its identity names both."""
    return f"{stream}/{destination}"


def stream_and_name(destination_id: str) -> tuple[str, str]:
    """The stream of a destination, and its name there."""
    stream, _, name = destination_id.partition("/")
    return stream, name


def retry_key(destination: str) -> bytes:
    """The key on a retry tier: all that waits for a destination is in one Kafka partition of it."""
    return destination.encode()


def topic_of(lane: str) -> str:
    """The topic that a destination or a pipeline takes its events from."""
    return stream_topic(stream_and_name(lane)[0])


def lane_group(destination: str) -> str:
    """The consumer group that shows ordinary lag tools how far a lane is; nobody joins it.

    The retrier's lanes share one, as they share no topic.
    """
    name = RETRIER if destination == RETRIER_SLOW else destination
    return LANE_GROUP_PREFIX + name.replace("/", ".")


def pipeline_lane(stream: str, pipeline: str, generation: int = 1) -> str:
    """A pipeline's id at the stream that it reads; no destination is called so.

    A rebuilt pipeline reads the stream again, and so has another id.
    """
    return destination_id(stream, _PIPELINE + of_generation(pipeline, generation))


def pipeline_of(lane: str) -> str | None:
    """The pipeline whose lane it is, if it is one's, of any generation."""
    _, name = stream_and_name(lane)
    return name.removeprefix(_PIPELINE).partition(".")[0] if is_pipelines(name) else None


def is_pipelines(name: str) -> bool:
    """Whether a name, where destinations of a stream have theirs, is that of a pipeline."""
    return name.startswith(_PIPELINE)


def pipelines_writer(slot: int) -> str:
    """The id under which a slot's holder writes, in transactions, what pipelines leave behind."""
    return f"{PIPELINES_WRITER_PREFIX}{slot}"


def restore_group(restore_id: str) -> str:
    """The consumer group that holds how far a restore is; nobody joins it."""
    return f"{RESTORE_GROUP_PREFIX}{restore_id}"


def restore_writer(stream: str) -> str:
    """The id under which events are restored into a stream: one writer at a time."""
    return f"{_RESTORE_WRITER_PREFIX}{stream}"


def lease_group(service: str) -> str:
    """The group in which the processes of a service share its work out."""
    return LEASE_GROUP_PREFIX + service


def config_key(kind: ConfigKind, name: str) -> bytes:
    """The key of the record that holds an object of the configuration."""
    return f"{kind}:{name}".encode()


def stream_spec(stream: str, *, partition_count: int = STREAM_PARTITIONS) -> TopicSpec:
    return TopicSpec(stream_topic(stream), partition_count, _log(STREAM_RETENTION_MS))


def of_generation(name: str, generation: int) -> str:
    """No name of a table or of a pipeline has a dot."""
    return name if generation == 1 else f"{name}.{generation}"


def name_and_generation(title: str) -> tuple[str, int]:
    """The parts that `of_generation` has put together; for anything else the generation is 0."""
    name, _, generation = title.partition(".")
    if generation and not generation.isdecimal():
        return name, 0
    return name, int(generation or 1)


def table_topic(table: str, generation: int = 1) -> str:
    """The topic with a table's rows."""
    return TABLE_PREFIX + of_generation(table, generation)


def table_of(topic: str) -> str:
    """The table of a table's topic; any other topic's name is returned whole."""
    if not topic.startswith(TABLE_PREFIX):
        return topic
    return topic.removeprefix(TABLE_PREFIX).partition(".")[0]


def kept_topic(pipeline: str, generation: int = 1) -> str:
    """The topic with what a pipeline keeps."""
    return KEPT_PREFIX + of_generation(pipeline, generation)


def kept_spec(pipeline: str, generation: int = 1) -> TopicSpec:
    """The process that goes on with the pipeline reads it whole, so old values go soon."""
    kept = {"segment.bytes": str(LANES_SEGMENT_BYTES), "min.cleanable.dirty.ratio": "0.2"}
    return TopicSpec(kept_topic(pipeline, generation), 1, {**_COMPACTED, **kept})


def table_spec(table: str, generation: int = 1, *, retention_ms: int | None = None) -> TopicSpec:
    """One partition: rows change in one order, and one offset says how far somebody is."""
    settings = {**_COMPACTED, "delete.retention.ms": str(TOMBSTONES_KEPT_MS), **_SEGMENTS}
    if retention_ms is not None:
        settings |= {"cleanup.policy": "compact,delete", "retention.ms": str(retention_ms)}
        settings["segment.ms"] = str(min(SEGMENT_MS, retention_ms))
    return TopicSpec(table_topic(table, generation), 1, settings)


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """How many Kafka partitions the topics have that grow with the traffic of all streams."""

    retry: int = RETRY_PARTITIONS
    dead: int = OUTCOME_PARTITIONS
    receipts: int = OUTCOME_PARTITIONS
    ledger: int = OUTCOME_PARTITIONS


def fixed_specs(
    tiers: Sequence[str], counts: PartitionCounts | None = None
) -> tuple[TopicSpec, ...]:
    """Every topic there is besides the streams' own."""
    counts = counts or PartitionCounts()
    return (
        *(
            TopicSpec(topic, counts.retry, _outcome_log(RETRY_RETENTION_MS))
            for topic in retry_topics(tiers)
        ),
        TopicSpec(DEAD, counts.dead, {**_outcome_log(DEAD_RETENTION_MS), **_SEGMENTS}),
        TopicSpec(RECEIPTS, counts.receipts, _outcome_log(RECEIPTS_RETENTION_MS)),
        # Ids are half their size once compressed, and nobody waits for the broker to do it.
        TopicSpec(ACKED, counts.ledger, {**_log(ACKED_RETENTION_MS), "compression.type": "zstd"}),
        TopicSpec(MINUTES, 1, _log(RECEIPTS_RETENTION_MS)),
        # One partition: a statement names the one before it.
        TopicSpec(STATEMENTS, 1, _log(STATEMENTS_RETENTION_MS)),
        # The audit's knowledge from run to run, rewritten by each: only the newest counts.
        TopicSpec(AUDIT, 1, {**_COMPACTED, **_SEGMENTS, "compression.type": "zstd"}),
        # One partition: readers of the configuration see its changes in the order of writing.
        TopicSpec(CONFIG, 1, _COMPACTED),
        # Changes with their authors, as many of a tenant as it has keys here; uses of API keys.
        *(TopicSpec(name, 1, _newest_of_each(CHANGES_RETENTION_MS)) for name in (CHANGES, USES)),
        TopicSpec(STATE, 1, _COMPACTED),
        # The verdict on each pipeline: followers of pipelines follow this.
        TopicSpec(PIPELINES, 1, _COMPACTED),
        # The description of each object of an archive, which also stands beside the object.
        TopicSpec(ARCHIVE, 1, _log(RECEIPTS_RETENTION_MS)),
        restores_spec(),
        TopicSpec(REPLAYS, 1, restores_spec().settings),
        # A mark of a hundred bytes for each delivery: at a start, those not yet compacted are read.
        TopicSpec(LANES, 1, {**_COMPACTED, "segment.bytes": str(LANES_SEGMENT_BYTES)}),
        # Marks of dead letters that were sent again: one for each, and longer than they rest.
        TopicSpec(REDRIVEN, 1, {**_log(REDRIVEN_RETENTION_MS), **_NEWEST}),
        # Deleted, not compacted: a claim that came too late would take the answer away (ADR 0060).
        TopicSpec(REQUESTS, REQUESTS_PARTITIONS, {**_log(REQUESTS_RETENTION_MS), **_SEGMENTS}),
        # Nobody reads records older than seconds; one partition, so that all hear all in one order.
        *(
            TopicSpec(name, 1, {**_log(PROBE_RETENTION_MS), "segment.ms": str(PROBE_RETENTION_MS)})
            for name in (SHARES, TERMS, TRIALS)
        ),
        # Where idle gateways ask whether records are still taken, and the retrier what time it is;
        # nobody reads it.
        TopicSpec(PROBE, PROBE_PARTITIONS, _log(PROBE_RETENTION_MS)),
    )


def held_ms(tiers: Sequence[str], settings: Mapping[str, Mapping[str, str]]) -> int | None:
    """How long after its removal something of a stream may still be read; None means forever.

    `settings` are those of its topics, by name. An event that waits in a tier when the stream is
    removed may become a dead letter as late as the tier keeps it, and then rests. Kafka deletes
    whole segments, so a record may outlive its retention by as long as one takes.
    """
    kept_ms = {
        # A cluster that decides on segments itself may not say how.
        name: (int(each["retention.ms"]), int(each.get("segment.ms", _SEGMENT_MS_OF_KAFKA)))
        for name, each in settings.items()
    }
    if any(not 0 <= retention_ms < _FOR_EVER_MS for retention_ms, _ in kept_ms.values()):
        return None
    waiting = set(retry_topics(tiers))
    waits_ms = max((sum(kept_ms[name]) for name in kept_ms.keys() & waiting), default=0)
    rests_ms = max((sum(kept_ms[name]) for name in kept_ms.keys() - waiting), default=0)
    return waits_ms + rests_ms


def restores_spec() -> TopicSpec:
    """The newest state of each restore, kept for longer than anything of it can be seen."""
    return TopicSpec(RESTORES, 1, _newest_of_each(RECEIPTS_RETENTION_MS))


def _newest_of_each(retention_ms: int) -> Mapping[str, str]:
    # In segments that are soon compacted.
    return {**_log(retention_ms), **_NEWEST, "segment.bytes": str(LANES_SEGMENT_BYTES)}


def _log(retention_ms: int) -> Mapping[str, str]:
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(retention_ms),
        # Broker time: a client's wild clock can neither block retention nor delete unread events.
        "message.timestamp.type": "LogAppendTime",
    }


def _outcome_log(retention_ms: int) -> Mapping[str, str]:
    return {**_log(retention_ms), "max.message.bytes": str(OUTCOME_BYTES_MAX)}


_SEGMENTS: Mapping[str, str] = {"segment.ms": str(SEGMENT_MS)}
_NEWEST: Mapping[str, str] = {**_SEGMENTS, "cleanup.policy": "compact,delete"}
_COMPACTED: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",
}
