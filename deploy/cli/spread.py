"""Looks how the last hour's events lie in the Kafka partitions of streams, for `hifi doctor`."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from shared.config.configuration import Configuration, Stream
from shared.event.record import KafkaPartition
from shared.event.spread import HotKeys, examine_count, examine_spread, hottest
from shared.event.times import HOUR_MS
from shared.event.topic_safety import TopicFinding
from shared.event.topics import stream_topic
from shared.runtime.clock import now_ms
from shared.runtime.kafka.reader import KafkaReader, open_reader

_HOUR_S = HOUR_MS / 1000
# Of a hot Kafka partition so many of its newest events are read, and of so many streams at most.
_NEWEST, _READ_MAX = 2_000, 20
# Below so many events a second in each of its Kafka partitions no stream is too large.
_LITTLE_PER_S = 500


@dataclass(slots=True)
class _Hour:
    """What came to a stream, by Kafka partition: from which offset on, and up to where."""

    stream: Stream
    spans: dict[KafkaPartition, tuple[int, int]]

    @property
    def counts(self) -> list[int]:
        return [end - first for _, (first, end) in sorted(self.spans.items())]


async def examine_streams(address: str, configuration: Configuration) -> list[TopicFinding]:
    """What stands out; nothing of a stream that is well."""
    streams = sorted(configuration.streams.values(), key=lambda each: each.name)
    found: list[TopicFinding] = []
    async with open_reader(address) as reader:
        read_count = 0
        async for hour in _hours(reader, streams):
            is_busy = sum(hour.counts) > _LITTLE_PER_S * _HOUR_S * len(hour.counts)
            keys, sizes = HotKeys(), [0]
            if (hottest(hour.counts) is not None or is_busy) and read_count < _READ_MAX:
                read_count += 1
                keys, sizes = await _newest(reader, hour)
            to = configuration.destinations_of(hour.stream.name)
            found += examine_spread(
                hour.stream.name,
                hour.counts,
                keys.top(),
                is_by_shards=hour.stream.partitioning is not None,
            )
            found += examine_count(
                hour.stream.name,
                len(hour.counts),
                bytes_per_s=sum(hour.counts) / _HOUR_S * sum(sizes) / len(sizes),
                shards=max((each.shards for each in to), default=1),
            )
    return found


async def _hours(reader: KafkaReader, streams: Iterable[Stream]) -> AsyncIterator[_Hour]:
    since_ms = now_ms() - HOUR_MS
    by_topic = {stream_topic(each.name): each for each in streams}
    spans = await reader.spans(by_topic)
    firsts = await reader.offsets_at(dict.fromkeys(spans, since_ms))
    hours = {topic: _Hour(stream, {}) for topic, stream in by_topic.items()}
    for where, (_, end) in spans.items():
        hours[where.topic].spans[where] = (firsts.get(where, end), end)
    for hour in hours.values():
        if hour.spans:
            yield hour


async def _newest(reader: KafkaReader, hour: _Hour) -> tuple[HotKeys, list[int]]:
    """The keys and sizes of the newest events of the Kafka partition that has most."""
    where = max(hour.spans, key=lambda each: hour.spans[each][1] - hour.spans[each][0])
    first, end = hour.spans[where]
    keys, sizes = HotKeys(), []
    async for record in reader.range({where: (max(first, end - _NEWEST), end)}).records():
        sizes.append(len(record.value))
        if record.key is not None:
            keys.add(record.key)
    return keys, sizes or [0]
