"""Has Python look for garbage seldom: objects die by their reference counts, and cycles are rare.

Delivery's driver, which knows thousands of strands for as long as it lives, was at it for a tenth
of its processor time.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG_MAX = 50_000


def collect_seldom() -> None:
    """Called once, when everything is imported."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_MAX, 20, 20)


@contextmanager
def not_collecting() -> Iterator[None]:
    """For what makes many objects and no cycles, such as reading a million records."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
