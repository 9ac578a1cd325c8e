"""Asks an index which of many streams have an event with an id or with an ordering key."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from shared.event.places import Places
from shared.event.topics import stream_topic

# Returns an index's places in a topic for an event's id or for an ordering key.
PlacesOf: TypeAlias = Callable[[str, str], Places]
# The maximum number of streams in one answer, because very many may have the same id; and the
# maximum duration of a search.
STREAMS_MAX, _LOOK_S_MAX = 50, 1.0


@dataclass(frozen=True, slots=True)
class StreamsWithId:
    """The streams for which an index has an id or a key; only the log can prove it."""

    streams: tuple[str, ...] = ()
    # The number of streams that it was asked about, from the first on.
    asked_count: int = 0
    has_index: bool = True
    # Whether there may be more streams, in events that the index has not read yet.
    index_is_behind: bool = False


def streams_with_id(places: PlacesOf | None, streams: Sequence[str], name: str) -> StreamsWithId:
    """Ask about as many of these streams as time allows, but at least about one."""
    if places is None:
        return StreamsWithId(has_index=False)
    until_s = time.monotonic() + _LOOK_S_MAX
    matches: list[str] = []
    is_behind, asked_count = False, 0
    for stream in streams:
        answer = places(stream_topic(stream), name)
        asked_count += 1
        is_behind = is_behind or answer.is_behind
        matches += [stream] if answer.stretches else []
        if len(matches) == STREAMS_MAX or time.monotonic() > until_s:
            break
    return StreamsWithId(tuple(matches), asked_count, index_is_behind=is_behind)
