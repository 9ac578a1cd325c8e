"""Has Python look for garbage seldom: objects die by their reference counts, and cycles are rare.

Delivery's driver, which knows thousands of strands for as long as it lives, was at it for a tenth
of its processor time.
"""

import gc

_YOUNG_MAX = 50_000


def collect_seldom() -> None:
    """Called once, when everything is imported."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_MAX, 20, 20)
