"""Divides a rate among those that want some of it; they work it out alike, each by itself.

Those that want less than an even part get what they want; the others share the rest evenly, and the
part that nobody wants is spread over all. The shares always add up to the rate.
"""

from collections.abc import Sequence


def share(rate: float, *, mine: float, others: Sequence[float]) -> float:
    """Our part of a rate, from what we want of it and what each of the others wants."""
    wants, left = sorted((mine, *others)), rate
    for index, want in enumerate(wants):
        even = left / (len(wants) - index)
        if want > even:
            # Nobody from here on gets all.
            return min(mine, even)
        left -= want
    return mine + left / len(wants)
