"""Divides a rate among members; each of them computes the same shares by itself.

A member that wants less than an even share gets what it wants. The others divide the rest evenly. A
remainder that nobody wants is spread over all members, so the shares always add up to the rate.
"""

from collections.abc import Sequence


def share(rate: float, *, mine: float, others: Sequence[float]) -> float:
    """Return our share of a rate, from the rate that we want and the rates that others want."""
    wants, left = sorted((mine, *others)), rate
    for index, want in enumerate(wants):
        even = left / (len(wants) - index)
        if want > even:
            # Wants are sorted: neither this member nor a later one gets all that it wants.
            return min(mine, even)
        left -= want
    return mine + left / len(wants)
