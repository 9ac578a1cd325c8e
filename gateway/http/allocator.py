"""Tunes the memory allocator for a process where large buffers come and go all the time.

Each of these was measured at full load, batches of 1,000: together a tenth of the processor time.
"""

import ctypes
import gc

# From malloc.h of glibc.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# Freed memory up to this size stays with us: bodies and batches of the next requests need it again.
_KEPT_BYTES = 64 * 1_048_576
# Our objects die by reference count; what is looked for are cycles, which are rare here.
_YOUNG_MAX = 50_000


def tune() -> None:
    """Called once, when everything is imported."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_MAX, 20, 20)
    # Another libc than glibc has other habits, and no such function.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, _KEPT_BYTES)
