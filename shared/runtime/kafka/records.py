"""Decides how what a Kafka consumer knows becomes ours: a topic's partitions, and one record."""

from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from shared.event.record import Origin, RecordIn


async def partitions_of(consumer: AIOKafkaConsumer, *topics: str) -> list[TopicPartition]:
    """Every Kafka partition of those topics that exist, in the order of the topics."""
    metadata = await consumer._client.fetch_all_metadata()  # noqa: SLF001 - the public call knows
    # only topics that somebody subscribed to, and assigning is not subscribing.
    return [
        TopicPartition(topic, number)
        for topic in topics
        for number in sorted(metadata.partitions_for_topic(topic) or ())
    ]


async def spans_of(
    consumer: AIOKafkaConsumer, topics: Iterable[str]
) -> dict[tuple[str, int], tuple[int, int]]:
    """The first offset and the end of every Kafka partition of those topics that exist."""
    partitions = await partitions_of(consumer, *topics)
    starts = await consumer.beginning_offsets(partitions)
    ends = await consumer.end_offsets(partitions)
    return {(one.topic, one.partition): (starts[one], ends[one]) for one in partitions}


def record_in(record: ConsumerRecord) -> RecordIn:
    """A record as our core reads it: what is null in Kafka is empty here."""
    return RecordIn(
        origin=Origin(record.topic, record.partition, record.offset),
        timestamp_ms=record.timestamp,
        key=record.key,
        value=record.value or b"",
        headers=tuple((name, raw or b"") for name, raw in record.headers),
    )
