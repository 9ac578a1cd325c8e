"""Decides whether JSON is nested deeper than a limit, without building it.

Nearly every event has fewer brackets than the limit has levels, and is done with two counts.
"""

import operator
import re
from itertools import accumulate, count

_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS = b"[]{}"
_OTHERS = bytes(set(range(256)) - set(_BRACKETS))
# Up is 2 and down is 0, so that the depth after n brackets is their sum less n.
_STEPS = bytes.maketrans(_BRACKETS, bytes([2, 0, 2, 0]))


def is_deeper(value: bytes, depth_max: int) -> bool:
    """Whether some part of valid JSON lies within more than so many brackets."""
    if value.count(b"{") + value.count(b"[") <= depth_max:
        return False
    steps = _TEXT.sub(b"", value).translate(_STEPS, _OTHERS)
    # Most of what is wide is flat: an empty pair (2, 0) adds a level only above its own place.
    return max(map(operator.sub, accumulate(steps), count(1)), default=0) > depth_max
