"""Limits how far the next micro-batch goes into the due events. Pure.

Nothing sleeps, and no waiting record is rewritten: the due events end where the records of a tier
stop being old enough.
"""

from shared.event.record import Position, Ranges
from shared.event.topics import is_of_parked

# A micro-batch has room for this many Kafka partitions' worth of events.
_MICRO_BATCH_PARTITIONS = 2
# Parked events get at least a tenth of `events_max`.
_PARKED_PART = 10


def bounded(begins: Position, due: Position, *, events_max: int) -> Ranges:
    """Return the ranges to send next: only due events, and at most `events_max` of each.

    There may be many parked events, all of one destination. Parked events get the room that tried
    events leave, and at least a tenth of `events_max`.
    """
    counts = {where: max(0, due.get(where, at) - at) for where, at in begins.items()}
    tried = [min(count, events_max) for w, count in counts.items() if not is_of_parked(w.topic)]
    parked = [count for where, count in counts.items() if count and is_of_parked(where.topic)]
    room = _MICRO_BATCH_PARTITIONS * events_max - sum(tried)
    share = room // max(1, len(parked))
    parked_max = max(1, events_max // _PARKED_PART, min(events_max, share))
    return {
        where: (at, at + min(count, parked_max if is_of_parked(where.topic) else events_max))
        for where, at in begins.items()
        if (count := counts[where])
    }
