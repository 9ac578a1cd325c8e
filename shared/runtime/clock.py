"""Decides what time it is: the one place that reads a clock for the pure core."""

import time


def now_ms() -> int:
    """Wall time in epoch milliseconds."""
    return time.time_ns() // 1_000_000
