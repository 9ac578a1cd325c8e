"""Lists the topic settings of a site, without those that MSK does not accept."""

from deploy.aws.site import Site
from shared.event.topic_safety import IN_SYNC_MIN
from shared.event.topics import TopicSpec, fixed_specs, stream_spec
from shared.retry.schedule import RetrySchedule

# The topic settings that Express accepts (MSK's page on the configuration of Express brokers). It
# refuses all others.
EXPRESS_TOPIC_KEYS = frozenset(
    {
        "cleanup.policy",
        "compression.type",
        "delete.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.compaction.lag.ms",
        "retention.bytes",
        "retention.ms",
    }
)
COPIES, SYNCED_MIN = 3, 2


def topic_specs() -> tuple[TopicSpec, ...]:
    """Return one spec for every kind of topic, including one stream's."""
    return (*fixed_specs([tier.name for tier in RetrySchedule().tiers]), stream_spec("any"))


def topic_variables(site: Site) -> dict[str, str]:
    """Return the topic settings of every process and of `hifi topics`."""
    counts = site.sizes.topics
    variables = {
        "HIFI_KAFKA_PROTOCOL": "SASL_SSL",
        "HIFI_KAFKA_MECHANISM": "SCRAM-SHA-512",
        "HIFI_KAFKA_REPLICAS": str(COPIES),
        "HIFI_KAFKA_IN_SYNC_MIN": str(SYNCED_MIN),
        "HIFI_KAFKA_RETRY_PARTITIONS": str(counts.retry_partitions),
        "HIFI_KAFKA_DEAD_PARTITIONS": str(counts.dead_partitions),
        "HIFI_KAFKA_RECEIPTS_PARTITIONS": str(counts.receipts_partitions),
        "HIFI_KAFKA_LEDGER_PARTITIONS": str(counts.ledger_partitions),
    }
    if site.is_express:
        set_by_us = {IN_SYNC_MIN, *(key for spec in topic_specs() for key in spec.settings)}
        left_out = ",".join(sorted(set_by_us - EXPRESS_TOPIC_KEYS))
        variables["HIFI_KAFKA_TOPIC_KEYS_LEFT_OUT"] = left_out
    return variables
