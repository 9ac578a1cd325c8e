"""Names the events that a pipeline makes of others, and says how often they were made so.

An id comes from the event's place in the log and from nothing else. A process that reads that place
again, after a crash or in ten days, makes the same events with the same ids.
"""

import hashlib
from typing import Literal

from shared.event.record import Headers, Origin

# The record that an event was made from: `topic:partition:offset`.
ORIGIN = "hifi-origin"
# The pipelines that it has come through, the first of them first, with commas between them.
VIA = "hifi-via"
# The restore that has put it back into a stream.
RESTORED = "hifi-restored"
# More is a mistake: chains that people draw have three or four pipelines.
HOPS_MAX = 8

# A pipeline's decision about an event that came through others.
Hop = Literal["take", "skip", "too_many"]


def derived_id(pipeline: str, generation: int, origin: Origin, nth: int) -> str:
    """The id of the nth event, from 0, that a pipeline makes of the record at a place.

    No name of a pipeline or topic has a slash, so that no two events share what is hashed.
    """
    topic, partition, offset = origin
    named = f"{pipeline}/{generation}/{topic}/{partition}/{offset}/{nth}"
    return hashlib.sha256(named.encode()).hexdigest()


def window_id(pipeline: str, generation: int, row: str, version: int) -> str:
    """The id of a row that a pipeline writes for a window, by its key and its count of writes."""
    named = f"{pipeline}/{generation}/{version}/{row}"
    return hashlib.sha256(named.encode()).hexdigest()


def via_of(raw: bytes | None) -> tuple[str, ...]:
    """The pipelines in a header."""
    return tuple(raw.decode(errors="replace").split(",")) if raw else ()


def restore_of(headers: Headers) -> str:
    """The restore that has put an event back, the last if several did; empty if none has."""
    return dict(headers).get(RESTORED, b"").decode(errors="replace")


def hop(via: tuple[str, ...], pipeline: str) -> Hop:
    """Whether a pipeline takes an event: not one that it has had before, and not forever."""
    if pipeline in via:
        return "skip"
    return "take" if len(via) < HOPS_MAX else "too_many"
