"""Chooses the events of a minute to compare between ledger and log: all, or a sample."""

import math
import random
from collections.abc import Mapping

from shared.proof.intervals import Offsets

# In a minute with up to WHOLE_MAX events, all are compared; in a larger one, one in SAMPLE_PART,
# but at least SAMPLE_MIN.
WHOLE_MAX, SAMPLE_PART, SAMPLE_MIN = 200_000, 100, 10_000


def sample(offsets: Mapping[int, Offsets], seed: str, *, blocks: int) -> dict[int, Offsets]:
    """Return the offsets to compare: `blocks` blocks by Kafka partition, placed by the seed."""
    total = sum(map(len, offsets.values()))
    if total <= WHOLE_MAX:
        return dict(offsets)
    wanted = max(SAMPLE_MIN, math.ceil(total / SAMPLE_PART))
    dice = random.Random(seed)  # noqa: S311 - the choice must be repeatable
    return {
        partition: _blocks(there, math.ceil(wanted * len(there) / total), blocks, dice)
        for partition, there in offsets.items()
    }


def _blocks(there: Offsets, wanted: int, blocks: int, dice: random.Random) -> Offsets:
    """Pick one block at a random place in each of `blocks` equal parts."""
    picked, count = Offsets(), len(there)
    for index in range(blocks):
        begin, end = count * index // blocks, count * (index + 1) // blocks
        size = min(end - begin, math.ceil(wanted / blocks))
        at = dice.randint(begin, end - size)
        for span in _ranked(there, at, at + size):
            picked.add(*span)
    return picked


def _ranked(there: Offsets, low: int, high: int) -> list[tuple[int, int]]:
    """Return the offsets with ranks in [low, high)."""
    spans, rank = [], 0
    for first, end in there:
        begin, stop = max(low - rank, 0), min(high - rank, end - first)
        if begin < stop:
            spans.append((first + begin, first + stop))
        rank += end - first
    return spans
