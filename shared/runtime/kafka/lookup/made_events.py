"""Finds the events that a pipeline made from others, in a stream that it writes to."""

import time
from collections.abc import Collection
from dataclasses import dataclass, field

from shared.event.derived import ORIGIN, VIA, via_of
from shared.event.envelope import open_stream_record
from shared.event.record import Origin, RecordIn
from shared.event.topics import stream_topic
from shared.runtime.kafka.lookup.event_search import CLOCK_SLACK_MS, SEARCH_S_MAX, open_log


@dataclass(slots=True)
class MadeEvents:
    """The events that a pipeline made from others: each one's place, id and source."""

    made: dict[Origin, tuple[str, Origin]] = field(default_factory=dict)
    # False if there was more to read than time or the limit allowed.
    is_whole: bool = True


async def find_made(
    bootstrap_servers: str,
    origins: Collection[Origin],
    pipeline: str,
    stream: str,
    between_ms: tuple[int, int],
    *,
    count_max: int,
    search_s: float = SEARCH_S_MAX,
) -> MadeEvents:
    """Look for them in a stream, among events stored between two times; skip repeats."""
    wanted = {
        f"{origin.topic}:{origin.partition}:{origin.offset}".encode(): origin for origin in origins
    }
    events = MadeEvents()
    seen: set[str] = set()
    until_s = time.monotonic() + search_s

    def take(record: RecordIn) -> None:
        headers = dict(record.headers)
        origin = wanted.get(headers.get(ORIGIN, b""))
        if origin is not None and via_of(headers.get(VIA))[-1:] == (pipeline,):
            event_id = open_stream_record(record).event_id
            if event_id not in seen:
                seen.add(event_id)
                events.made[record.origin] = (event_id, origin)

    async with open_log(bootstrap_servers) as log:
        topic = stream_topic(stream)
        ends = await log.ends([topic])
        since_ms, before_ms = between_ms[0] - CLOCK_SLACK_MS, between_ms[1] + CLOCK_SLACK_MS
        begins = {**ends, **await log.offsets_at(dict.fromkeys(ends, since_ms))}
        ends |= await log.offsets_at(dict.fromkeys(ends, before_ms))
        ranges = {where: (begins[where], end) for where, end in ends.items()}
        left = await log.range(ranges).each(
            take, until_s=until_s, is_over=lambda: len(events.made) >= count_max
        )
    events.is_whole = not left and len(events.made) < count_max
    return events
