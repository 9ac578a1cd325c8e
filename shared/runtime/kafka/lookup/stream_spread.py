"""Counts the last hour's events in each Kafka partition of streams, and looks at their keys."""

import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from shared.event.record import KafkaPartition, RecordIn
from shared.event.spread import HotKeys, key_text
from shared.event.times import HOUR_MS
from shared.runtime.clock import now_ms
from shared.runtime.kafka.reader import KafkaReader

# The maximum number of events, and of bytes, to read from a Kafka partition's end.
_NEWEST, _BYTES_MAX = 2_000, 8_000_000
# How long people wait patiently for the result.
_READ_S_MAX = 5.0


@dataclass(slots=True)
class LastHour:
    """The last hour of a stream: the first offset and the end in each Kafka partition."""

    topic: str
    since_ms: int
    spans: dict[KafkaPartition, tuple[int, int]] = field(default_factory=dict)

    @property
    def counts(self) -> list[int]:
        return [end - first for _, (first, end) in sorted(self.spans.items())]


@dataclass(slots=True)
class NewestEvents:
    """Keys and sizes of the newest events of one Kafka partition."""

    keys: HotKeys = field(default_factory=HotKeys)
    count: int = 0
    byte_count: int = 0

    def take(self, record: RecordIn) -> None:
        self.count += 1
        self.byte_count += len(record.value)
        if record.key is None:
            self.keys.add_others(1)
        else:
            self.keys.add(key_text(record.key))

    @property
    def mean_bytes(self) -> float:
        return self.byte_count / max(self.count, 1)


async def last_hours(reader: KafkaReader, topics: Iterable[str]) -> AsyncIterator[LastHour]:
    """Yield the last hour of each topic that exists, in the order given."""
    since_ms = now_ms() - HOUR_MS
    hours = {topic: LastHour(topic, since_ms) for topic in topics}
    spans = await reader.spans(hours)
    firsts = await reader.offsets_at(dict.fromkeys(spans, since_ms))
    for where, (_, end) in spans.items():
        hours[where.topic].spans[where] = (firsts.get(where, end), end)
    for hour in hours.values():
        if hour.spans:
            yield hour


async def newest_of_fullest(reader: KafkaReader, hour: LastHour) -> NewestEvents:
    """Read the newest events of the fullest Kafka partition."""
    where = max(hour.spans, key=lambda each: hour.spans[each][1] - hour.spans[each][0])
    first, end = hour.spans[where]
    events = NewestEvents()
    newest = reader.range({where: (max(first, end - _NEWEST), end)})
    await newest.each(
        events.take,
        until_s=time.monotonic() + _READ_S_MAX,
        is_over=lambda: events.byte_count >= _BYTES_MAX,
    )
    return events
