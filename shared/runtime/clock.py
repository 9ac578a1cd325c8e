"""Reads the clock, for a core that must not."""

import time


def now_ms() -> int:
    """Wall time in epoch milliseconds."""
    return time.time_ns() // 1_000_000
