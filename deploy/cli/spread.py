"""Examines the spread of the last hour's events over the Kafka partitions, for `hifi doctor`."""

from shared.config.configuration import Configuration
from shared.event.spread import examine_count, examine_spread, hottest
from shared.event.times import HOUR_MS
from shared.event.topic_safety import TopicFinding
from shared.event.topics import stream_topic
from shared.runtime.kafka.lookup.stream_spread import NewestEvents, last_hours, newest_of_fullest
from shared.runtime.kafka.reader import open_reader

_HOUR_S = HOUR_MS / 1000
# The newest events of at most this many streams are read.
_READ_MAX = 20
# With fewer events a second in each Kafka partition, a stream has enough partitions.
_LITTLE_PER_S = 500


async def examine_streams(address: str, configuration: Configuration) -> list[TopicFinding]:
    """Return findings on unhealthy streams; a healthy stream yields none."""
    streams = sorted(configuration.streams.values(), key=lambda each: each.name)
    by_topic = {stream_topic(each.name): each for each in streams}
    findings: list[TopicFinding] = []
    async with open_reader(address) as reader:
        read_count = 0
        async for hour in last_hours(reader, by_topic):
            stream, counts = by_topic[hour.topic], hour.counts
            is_busy = sum(counts) > _LITTLE_PER_S * _HOUR_S * len(counts)
            newest = NewestEvents()
            if (hottest(counts) is not None or is_busy) and read_count < _READ_MAX:
                read_count += 1
                newest = await newest_of_fullest(reader, hour)
            findings += examine_spread(
                stream.name,
                counts,
                newest.keys.top(),
                is_by_shards=stream.partitioning is not None,
            )
            findings += examine_count(
                stream.name,
                len(counts),
                bytes_per_s=sum(counts) / _HOUR_S * newest.mean_bytes,
                shards=max(
                    (each.shards for each in configuration.destinations_of(stream.name)), default=1
                ),
            )
    return findings
