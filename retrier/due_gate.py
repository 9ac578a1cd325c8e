"""Says how far the next micro-batch goes into what is due. Pure.

Nothing sleeps and nothing is rewritten while it waits: what is due ends where the records of a tier
stop being old enough.
"""

from shared.event.record import Position, Ranges
from shared.event.topics import is_of_parked

# As many Kafka partitions' worth of events is what a micro-batch has room for.
_MICRO_BATCH_PARTITIONS = 2
# The least that parked events get of what others may.
_PARKED_PART = 10


def bounded(begins: Position, due: Position, *, events_max: int) -> Ranges:
    """What of it is sent next: never what is not due, and not more than `events_max` of each.

    What was parked may be a crowd of one destination's: it has the room that what was tried leaves,
    and a tenth in any case.
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
