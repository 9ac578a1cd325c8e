"""Lets a JVM begin with a heap about as large as the data it keeps, on machines that several share.

By itself it begins with a 64th of the machine's memory. Objects that outlive a few collections of
the young part go to the old one, which is not collected before it is full: for an hour a JVM grows,
by nothing but garbage. It takes its first heap at once, so that its size shows from the start.
"""

from collections.abc import Sequence

YOUNG_MB = 96


def small_heap(heap_mb: int, *, kept_mb: int, young_mb: int = YOUNG_MB) -> Sequence[str]:
    """Options for a heap of at most `heap_mb`, whose old part has `kept_mb` at first."""
    young_mb = min(young_mb, heap_mb // 3)
    first_mb = min(heap_mb, young_mb + kept_mb)
    return f"-XX:NewSize={young_mb}m", f"-Xms{first_mb}m", "-XX:+AlwaysPreTouch"
