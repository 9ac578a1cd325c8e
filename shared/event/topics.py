"""Defines every topic's name, the keys of its records, and its settings.

No other file spells out a topic's name; the code here also recognizes Hifi's topics by name.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from shared.event.times import DAY_MS, HOUR_MS

ConfigKind = Literal[
    "stream", "destination", "pipeline", "replacement", "table", "channel", "key", "tenant",
    "changes"]  # fmt: skip

# The prefix of all topics and groups of Hifi in a cluster.
OURS = "hifi."
STREAM_PREFIX = "hifi.stream."
TABLE_PREFIX = "hifi.table."
# The state of pipelines: open windows, and known keys.
KEPT_PREFIX = "hifi.kept."
RETRY_PREFIX = "hifi.retry."
# Events that were parked when they were due wait in a topic beside their tier. In the tier,
# many parked events of one destination would make the few events of others wait.
_PARKED = ".parked"
# The tier for due events of slow destinations (ADR 0051).
SLOW_TIER = "slow"
DEAD = "hifi.dead"
RECEIPTS = "hifi.receipts"
ACKED = "hifi.acked"
MINUTES = "hifi.minutes"
STATEMENTS = "hifi.statements"
AUDIT = "hifi.audit"
LANE_GROUP_PREFIX = "hifi.lane."
# The groups in which a service's processes divide its work.
LEASE_GROUP_PREFIX = "hifi.leases."
# The prefix of a pipeline's name among the names of a stream's destinations.
_PIPELINE = "pipeline:"
# The prefixes of the group with a restore's progress, and of its transactional id.
RESTORE_GROUP_PREFIX = "hifi.restore."
_RESTORE_WRITER_PREFIX = "hifi-restore-"
# Processes with pipelines write under the ids of the slots that they hold.
PIPELINES_WRITER_PREFIX = "hifi-pipelines."
# The retrier's lanes, for all tiers and for slow destinations. Other lanes have the names of
# their destinations.
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

# No dot: Kafka's own metrics cannot distinguish a.b from a_b, and a dot ends the stream's part of a
# topic name. 100 characters leave room for the prefix in Kafka's 249.
NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")

# Longer than the longest outage we plan for (a long weekend) plus the 72 h retry span.
STREAM_RETENTION_MS = 7 * DAY_MS
# The retry deadline of 72 h and a day to notice that the retrier does not run.
RETRY_RETENTION_MS = 4 * DAY_MS
# A month to look at dead letters; Stripe, too, keeps undelivered events for 30 days.
DEAD_RETENTION_MS = 30 * DAY_MS
# As long as dead letters, so that an audit can always explain one.
RECEIPTS_RETENTION_MS = 30 * DAY_MS

# Kafka deletes whole segments, which span a week by default. With segments of a day, a dead letter
# is deleted at most a day after its month; its mark, which is younger, a day later.
SEGMENT_MS = DAY_MS
_SEGMENT_MS_OF_KAFKA = 7 * DAY_MS
REDRIVEN_RETENTION_MS = DEAD_RETENTION_MS + SEGMENT_MS + DAY_MS
# Longer than streams: the ledger has the ids of events that Kafka deletes unread.
ACKED_RETENTION_MS = STREAM_RETENTION_MS + DAY_MS
# A year, as human auditors need it; a statement has a few hundred bytes.
STATEMENTS_RETENTION_MS = 365 * DAY_MS
# As long as statements: people often ask for the author of a change months later.
CHANGES_RETENTION_MS = STATEMENTS_RETENTION_MS

# Kafka's value for "forever" is -1, but people also set a huge number.
_FOR_EVER_MS = 36_500 * DAY_MS

# A process that was down for less than half of this has missed no deletion in its copy of a table.
TOMBSTONES_KEPT_MS = 7 * DAY_MS

# How long an Idempotency-Key is valid, as with Stripe.
REQUESTS_RETENTION_MS = DAY_MS

# A starting process reads the whole segment, in a second.
LANES_SEGMENT_BYTES = 16_777_216

# Nobody reads probes; an hour of them shows people when Kafka last accepted one.
PROBE_RETENTION_MS = HOUR_MS

# Twice Kafka's default limit for a record: the largest possible event, with a retry's headers
# around it, must still fit, or its lane would stop forever.
OUTCOME_BYTES_MAX = 2_097_152

# Four Kafka partitions keep both cores of a small machine busy; each stream can have more.
STREAM_PARTITIONS = 4
# All events that wait for a destination are in one of them, so a crowd of events or a hang affects
# a quarter of the destinations. The tiers are also processed in this many parts.
RETRY_PARTITIONS = 4
# Outcomes move at the pace of their lanes, so two are enough to spread them.
OUTCOME_PARTITIONS = 2
# Enough for each broker of a typical cluster to lead one: the retrier asks each for the time. A
# probe also finds a leader while one broker is down.
PROBE_PARTITIONS = 12
# Enough partitions that a failing broker delays only some of the keys. The number must not grow:
# that would move keys to other partitions and break the order of their records.
REQUESTS_PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic's necessary settings: `hifi up` creates it with them, `hifi doctor` checks them."""

    name: str
    partition_count: int
    settings: Mapping[str, str]


def is_name(text: str) -> bool:
    """Whether `text` can name a stream or a destination."""
    return NAME_PATTERN.fullmatch(text) is not None


def stream_topic(stream: str) -> str:
    return STREAM_PREFIX + stream


def stream_of(topic: str) -> str:
    """Return the stream of a stream topic; return any other topic's name whole."""
    return topic.removeprefix(STREAM_PREFIX)


def retry_topic(tier: str, *, is_parked: bool = False) -> str:
    return RETRY_PREFIX + tier + (_PARKED if is_parked else "")


def tier_topics(tier: str) -> tuple[str, str]:
    """Return a tier's two topics: for events after an attempt, and for parked events."""
    return retry_topic(tier), retry_topic(tier, is_parked=True)


def retry_topics(tiers: Iterable[str]) -> list[str]:
    """Return all topics in which events wait."""
    return [*(topic for tier in tiers for topic in tier_topics(tier)), retry_topic(SLOW_TIER)]


def tier_of(topic: str) -> str:
    return topic.removeprefix(RETRY_PREFIX).removesuffix(_PARKED)


def is_of_parked(topic: str) -> bool:
    return topic.endswith(_PARKED)


def destination_id(stream: str, destination: str) -> str:
    """Return a destination's id, which names its stream as well."""
    return f"{stream}/{destination}"


def stream_and_name(destination_id: str) -> tuple[str, str]:
    """Return the stream of a destination, and its name there."""
    stream, _, name = destination_id.partition("/")
    return stream, name


def retry_key(destination: str) -> bytes:
    """Return the key in a retry tier: a destination's waiting events are in one Kafka partition."""
    return destination.encode()


def topic_of(lane: str) -> str:
    """Return the topic that a destination or a pipeline reads."""
    return stream_topic(stream_and_name(lane)[0])


def lane_group(destination: str) -> str:
    """Return the consumer group with a lane's position, for ordinary lag tools; nobody joins it.

    The retrier's lanes can share one group, because they have no topic in common.
    """
    name = RETRIER if destination == RETRIER_SLOW else destination
    return LANE_GROUP_PREFIX + name.replace("/", ".")


def pipeline_lane(stream: str, pipeline: str, generation: int = 1) -> str:
    """Return a pipeline's id at the stream that it reads; no destination can have it.

    A rebuilt pipeline reads the stream again, so it has another id.
    """
    return destination_id(stream, _PIPELINE + of_generation(pipeline, generation))


def pipeline_of(lane: str) -> str | None:
    """Return the name of the lane's pipeline, of any generation; None for other lanes."""
    _, name = stream_and_name(lane)
    return name.removeprefix(_PIPELINE).partition(".")[0] if is_pipelines(name) else None


def is_pipelines(name: str) -> bool:
    """Whether a name among those of a stream's destinations belongs to a pipeline."""
    return name.startswith(_PIPELINE)


def pipelines_writer(slot: int) -> str:
    """Return the transactional id of a slot's holder, which writes pipelines' results."""
    return f"{PIPELINES_WRITER_PREFIX}{slot}"


def restore_group(restore_id: str) -> str:
    """Return the consumer group with a restore's progress; nobody joins it."""
    return f"{RESTORE_GROUP_PREFIX}{restore_id}"


def restore_writer(stream: str) -> str:
    """Return the transactional id for restores into a stream: one writer at a time."""
    return f"{_RESTORE_WRITER_PREFIX}{stream}"


def lease_group(service: str) -> str:
    """Return the group in which a service's processes divide its work."""
    return LEASE_GROUP_PREFIX + service


def config_key(kind: ConfigKind, name: str) -> bytes:
    """Return the key of a configured object's record."""
    return f"{kind}:{name}".encode()


def stream_spec(stream: str, *, partition_count: int = STREAM_PARTITIONS) -> TopicSpec:
    return TopicSpec(stream_topic(stream), partition_count, _log(STREAM_RETENTION_MS))


def of_generation(name: str, generation: int) -> str:
    """Add a generation to a name of a table or pipeline, which never has a dot."""
    return name if generation == 1 else f"{name}.{generation}"


def name_and_generation(title: str) -> tuple[str, int]:
    """Split a text from `of_generation`; for any other text the generation is 0."""
    name, _, generation = title.partition(".")
    if generation and not generation.isdecimal():
        return name, 0
    return name, int(generation or 1)


def table_topic(table: str, generation: int = 1) -> str:
    """Return the topic with a table's rows."""
    return TABLE_PREFIX + of_generation(table, generation)


def table_of(topic: str) -> str:
    """Return the table of a table's topic; return any other topic's name whole."""
    if not topic.startswith(TABLE_PREFIX):
        return topic
    return topic.removeprefix(TABLE_PREFIX).partition(".")[0]


def kept_topic(pipeline: str, generation: int = 1) -> str:
    """Return the topic of a pipeline's windows or keys."""
    return KEPT_PREFIX + of_generation(pipeline, generation)


def kept_spec(pipeline: str, generation: int = 1) -> TopicSpec:
    """Return a kept topic's settings: it is read whole at a start, so it is compacted soon."""
    kept = {"segment.bytes": str(LANES_SEGMENT_BYTES), "min.cleanable.dirty.ratio": "0.2"}
    return TopicSpec(kept_topic(pipeline, generation), 1, {**_COMPACTED, **kept})


def table_spec(table: str, generation: int = 1, *, retention_ms: int | None = None) -> TopicSpec:
    """Return a table's settings: one partition, for one order of changes and one position."""
    settings = {**_COMPACTED, "delete.retention.ms": str(TOMBSTONES_KEPT_MS), **_SEGMENTS}
    if retention_ms is not None:
        settings |= {"cleanup.policy": "compact,delete", "retention.ms": str(retention_ms)}
        settings["segment.ms"] = str(min(SEGMENT_MS, retention_ms))
    return TopicSpec(table_topic(table, generation), 1, settings)


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """The partition counts of topics that grow with the traffic of all streams."""

    retry: int = RETRY_PARTITIONS
    dead: int = OUTCOME_PARTITIONS
    receipts: int = OUTCOME_PARTITIONS
    ledger: int = OUTCOME_PARTITIONS


def fixed_specs(
    tiers: Sequence[str], counts: PartitionCounts | None = None
) -> tuple[TopicSpec, ...]:
    """Return all topics other than those of streams, tables and pipelines' state."""
    counts = counts or PartitionCounts()
    return (
        *(
            TopicSpec(topic, counts.retry, _outcome_log(RETRY_RETENTION_MS))
            for topic in retry_topics(tiers)
        ),
        TopicSpec(DEAD, counts.dead, {**_outcome_log(DEAD_RETENTION_MS), **_SEGMENTS}),
        TopicSpec(RECEIPTS, counts.receipts, _outcome_log(RECEIPTS_RETENTION_MS)),
        # Compression halves the size of ids, and nobody waits for the broker to compress them.
        TopicSpec(ACKED, counts.ledger, {**_log(ACKED_RETENTION_MS), "compression.type": "zstd"}),
        TopicSpec(MINUTES, 1, _log(RECEIPTS_RETENTION_MS)),
        # One partition: each statement names the previous one.
        TopicSpec(STATEMENTS, 1, _log(STATEMENTS_RETENTION_MS)),
        # The audit's state, rewritten by each run: only the newest counts.
        TopicSpec(AUDIT, 1, {**_COMPACTED, **_SEGMENTS, "compression.type": "zstd"}),
        # One partition: readers of the configuration see changes in the order of writing.
        TopicSpec(CONFIG, 1, _COMPACTED),
        # Changes with their authors (a tenant's new change replaces its oldest); uses of API keys.
        *(TopicSpec(name, 1, _newest_of_each(CHANGES_RETENTION_MS)) for name in (CHANGES, USES)),
        TopicSpec(STATE, 1, _COMPACTED),
        # The state of each pipeline.
        TopicSpec(PIPELINES, 1, _COMPACTED),
        # The description of each object of an archive, which the store has beside the object, too.
        TopicSpec(ARCHIVE, 1, _log(RECEIPTS_RETENTION_MS)),
        restores_spec(),
        TopicSpec(REPLAYS, 1, restores_spec().settings),
        # 100 bytes for each delivery; a starting process reads those that are not yet compacted.
        TopicSpec(LANES, 1, {**_COMPACTED, "segment.bytes": str(LANES_SEGMENT_BYTES)}),
        # A mark for each dead letter that was sent again, kept longer than the dead letter.
        TopicSpec(REDRIVEN, 1, {**_log(REDRIVEN_RETENTION_MS), **_NEWEST}),
        # Deleted, not compacted: a late claim would remove the answer (ADR 0060).
        TopicSpec(REQUESTS, REQUESTS_PARTITIONS, {**_log(REQUESTS_RETENTION_MS), **_SEGMENTS}),
        # Nobody reads records older than seconds. One partition, so that all readers see one order.
        *(
            TopicSpec(name, 1, {**_log(PROBE_RETENTION_MS), "segment.ms": str(PROBE_RETENTION_MS)})
            for name in (SHARES, TERMS, TRIALS)
        ),
        # Idle gateways write here to test whether Kafka accepts records, and the retrier to learn
        # the broker's time. Nobody reads it.
        TopicSpec(PROBE, PROBE_PARTITIONS, _log(PROBE_RETENTION_MS)),
    )


def reserved_ms(tiers: Sequence[str], settings: Mapping[str, Mapping[str, str]]) -> int | None:
    """Return how long after a stream's removal its events may be readable; None means forever.

    `settings` are those of its topics, by name. An event that waits in a tier at the removal may
    become a dead letter at the end of the tier's retention, and is then kept as long as any dead
    letter. Kafka deletes whole segments, so a record may outlive its retention by the duration of
    a segment.
    """
    kept_ms = {
        # A cluster that controls segments itself may not report their duration.
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
    """Return the topic of restores: the newest state of each, kept as long as receipts."""
    return TopicSpec(RESTORES, 1, _newest_of_each(RECEIPTS_RETENTION_MS))


def _newest_of_each(retention_ms: int) -> Mapping[str, str]:
    # In small segments, which are soon compacted.
    return {**_log(retention_ms), **_NEWEST, "segment.bytes": str(LANES_SEGMENT_BYTES)}


def _log(retention_ms: int) -> Mapping[str, str]:
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(retention_ms),
        # Broker time: a client's wrong clock can neither block retention nor delete unread events.
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
