"""Makes Python's garbage collection rare: reference counts free objects, and cycles are rare.

Delivery's driver, with thousands of long-lived strands, spent a tenth of its processor time on
garbage collection.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG_MAX = 50_000


def collect_seldom() -> None:
    """Make collections rare; call it once, after all imports."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_MAX, 20, 20)


@contextmanager
def not_collecting() -> Iterator[None]:
    """Turn collection off for work with many objects and no cycles, such as bulk reads."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
