"""Starts a JVM with a heap about as large as the data that it keeps, for shared machines.

By default a JVM starts with a 64th of the machine's memory. Objects that outlive a few collections
of the young part move to the old part, which is not collected before it is full, so a JVM keeps
growing for an hour, although all growth is garbage. Here a JVM takes its first heap at once, so its
size is visible from the start.
"""

from collections.abc import Sequence

YOUNG_MB = 96


def small_heap(heap_mb: int, *, kept_mb: int, young_mb: int = YOUNG_MB) -> Sequence[str]:
    """Return options for a heap of `heap_mb` at most, whose old part has `kept_mb` at first."""
    young_mb = min(young_mb, heap_mb // 3)
    first_mb = min(heap_mb, young_mb + kept_mb)
    return f"-XX:NewSize={young_mb}m", f"-Xms{first_mb}m", "-XX:+AlwaysPreTouch"
