"""Records as the Kafka client decodes them, for readers of a stream."""

from collections.abc import Sequence

from aiokafka.record.default_records import DefaultRecord

from delivery.event_columns import FetchedRecords
from shared.event.record import KafkaPartition, RecordIn


def decoded(record: RecordIn) -> DefaultRecord:
    return DefaultRecord(
        record.origin.offset,
        record.timestamp_ms,
        0,
        record.key,
        record.value,
        list(record.headers),
    )


def fetched(records: Sequence[RecordIn]) -> FetchedRecords:
    """Return the result of a fetch from one Kafka partition."""
    places = {KafkaPartition(*record.origin[:2]) for record in records}
    assert len(places) == 1, "a fetch has records of one Kafka partition only"
    return FetchedRecords(places.pop(), [decoded(record) for record in records])
