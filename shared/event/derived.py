"""Makes the ids of events that a pipeline writes, and limits how many pipelines an event passes.

An id depends only on the place of the source event in the log. A process that reads that place
again, after a crash or in ten days, makes the same events with the same ids.
"""

import hashlib
from typing import Literal

from shared.event.record import Headers, Origin

# The record that an event was made from: `topic:partition:offset`.
ORIGIN = "hifi-origin"
# The pipelines that the event has passed through, in order, separated by commas.
VIA = "hifi-via"
# The restore that put the event back into a stream.
RESTORED = "hifi-restored"
# More is a mistake: real chains have three or four pipelines.
HOPS_MAX = 8

# A pipeline's decision about an event from other pipelines.
Hop = Literal["take", "skip", "too_many"]


def derived_id(pipeline: str, generation: int, origin: Origin, nth: int) -> str:
    """Return the id of the nth event, from 0, that a pipeline makes from the record at a place.

    Names of pipelines and topics have no slash, so no two events have the same hashed text.
    """
    topic, partition, offset = origin
    named = f"{pipeline}/{generation}/{topic}/{partition}/{offset}/{nth}"
    return hashlib.sha256(named.encode()).hexdigest()


def window_id(pipeline: str, generation: int, row: str, version: int) -> str:
    """Return the id of a window's row, from its key and the number of times it was written."""
    named = f"{pipeline}/{generation}/{version}/{row}"
    return hashlib.sha256(named.encode()).hexdigest()


def via_of(raw: bytes | None) -> tuple[str, ...]:
    """Return the pipelines in a header."""
    return tuple(raw.decode(errors="replace").split(",")) if raw else ()


def restore_of(headers: Headers) -> str:
    """Return the last restore that put an event back; empty if there was none."""
    return dict(headers).get(RESTORED, b"").decode(errors="replace")


def hop(via: tuple[str, ...], pipeline: str) -> Hop:
    """Decide whether a pipeline takes an event: not twice, and not after too many pipelines."""
    if pipeline in via:
        return "skip"
    return "take" if len(via) < HOPS_MAX else "too_many"
