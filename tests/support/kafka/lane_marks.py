"""Reads lanes' marks from a real Kafka: their positions, and the work that may be under way."""

import asyncio
from collections.abc import Sequence

from delivery.lanes.marks import OPEN, Mark, open_mark
from shared.event.record import KafkaPartition
from shared.event.topics import LANES
from tests.support.kafka.kafka_log import read_all

Marked = tuple[KafkaPartition, Mark]


def marks_written(bootstrap_servers: str, destination_id: str) -> Sequence[Marked]:
    """Return every mark of a destination that the log still has, in the order of writing."""
    records = asyncio.run(read_all(bootstrap_servers, LANES))
    opened = [open_mark(record.key or b"", record.value) for record in records]
    return [
        (strand.where, mark)
        for strand, mark in filter(None, opened)
        if strand.destination == destination_id and mark is not None
    ]


def newest(marks: Sequence[Marked]) -> dict[KafkaPartition, Mark]:
    return dict(marks)


def passed(bootstrap_servers: str, destination_id: str) -> int:
    """Return how many events a lane has passed, of a stream that begins at 0."""
    marks = newest(marks_written(bootstrap_servers, destination_id))
    return sum(mark.at for mark in marks.values())


def may_be_sent(marks: Sequence[Marked]) -> set[tuple[str, int, int]]:
    """Return topic, Kafka partition and offset of everything under way according to these marks."""
    return {
        (*where, offset)
        for where, mark in marks
        if mark.until < OPEN
        for offset in range(mark.at, mark.until)
    }


def follows(bootstrap_servers: str, destination_id: str) -> bool:
    """Return whether a lane follows its log, as in real time."""
    marks = newest(marks_written(bootstrap_servers, destination_id))
    return any(mark.until >= OPEN for mark in marks.values())
