"""Computes how near a failing destination is to being disabled, for warnings."""

from shared.flow.flow import Flow

# People are warned when a destination has failed for these shares of the time that disables it.
WARN_AT = (0.5, 0.7, 0.9)


def failing_part(flow: Flow, *, disable_after_s: float, now_ms: int) -> float:
    """Return how long a destination has failed, as a share (0 to 1) of the time that disables it.

    At 1 the next failure disables it, if there have been enough failures.
    """
    if not flow.failing_since_ms:
        return 0.0
    return min(1.0, max(0, now_ms - flow.failing_since_ms) / (1000 * disable_after_s))
