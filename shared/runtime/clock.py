"""Reads the clock for the pure core, which must not read it."""

import time


def now_ms() -> int:
    """Return the wall time in epoch milliseconds."""
    return time.time_ns() // 1_000_000
