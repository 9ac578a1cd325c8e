"""Reads the headers of an event as Kafka's readers will."""

from aiokafka.record.default_records import DefaultRecordBatch

from gateway.intake.events import Event
from gateway.intake.record_batch import RecordBatch
from shared.event.record import Headers


def headers_of(event: Event) -> Headers:
    batch = RecordBatch(1)
    batch.fill([event], 0)
    (record,) = DefaultRecordBatch(b"".join(batch.build()))
    return tuple(record.headers)
