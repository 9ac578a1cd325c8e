"""Finds the newest events of an ordering key in many streams, with the help of an index."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from shared.event.envelope import Envelope, open_stream_record
from shared.event.places import Places
from shared.event.record import RecordIn
from shared.event.topics import stream_topic
from shared.runtime.kafka.lookup.streams_with_id import StreamsWithId
from shared.runtime.kafka.reader import KafkaReader

# The maximum number of events on a page, and how many of the newest stretches to read of each Kafka
# partition. A stretch is 1 s of a gateway's events.
EVENTS_MAX, _STRETCHES_MAX = 50, 5
# How long people wait for a list.
_READ_S_MAX = 3.0


@dataclass(frozen=True, slots=True)
class KeyedEvents:
    """The newest events of a key, the newest first, and when each was stored."""

    # The streams in the index's answer, and the number of streams that it was asked about.
    told: StreamsWithId
    events: tuple[tuple[Envelope, int], ...] = ()
    # Streams that there was no time to read completely.
    unread: tuple[str, ...] = ()


async def read_keyed(
    log: KafkaReader, told: StreamsWithId, places: Mapping[str, Places], key: str
) -> KeyedEvents:
    """Read the places in the index's answer, stream by stream, as far as time allows."""
    until_s = time.monotonic() + _READ_S_MAX
    wanted = key.encode(errors="replace")
    events: list[tuple[Envelope, int]] = []

    def take(record: RecordIn) -> None:
        if record.key == wanted:
            events.append((open_stream_record(record), record.timestamp_ms))

    spans = await log.spans({stream_topic(stream) for stream in told.streams})
    unread = []
    for stream in told.streams:
        topic = stream_topic(stream)
        for where, stretches in places[stream].of(topic).items():
            if where not in spans:
                continue
            begin, over = spans[where]
            for first, end in stretches[-_STRETCHES_MAX:]:
                ranges = {where: (max(first, begin), min(end, over))}
                if await log.range(ranges).each(take, until_s=until_s):
                    unread.append(stream)
    events.sort(key=lambda event: (-event[1], -event[0].origin.offset))
    return KeyedEvents(told, tuple(events[:EVENTS_MAX]), tuple(dict.fromkeys(unread)))
