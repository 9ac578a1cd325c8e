"""Reads a Retry-After header, and clamps what it asks for."""

import re
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

# A destination that asks for no wait at all still gets a second of peace.
RETRY_AFTER_S_MIN = 1.0
# A day: longer than any maintenance window that peers honour (EventBridge: 24 h).
RETRY_AFTER_S_MAX = 86_400.0

# Any length: a destination that asks for 10^15 seconds is to get the longest wait, not none.
_SECONDS = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a destination asked us to wait; negative means: do not come back."""

    # Private, as nobody is to wait for it as it stands.
    _asked_s: float

    @property
    def is_refusal(self) -> bool:
        return self._asked_s < 0

    @property
    def clamped_s(self) -> float:
        return min(max(self._asked_s, RETRY_AFTER_S_MIN), RETRY_AFTER_S_MAX)


def parse_retry_after(text: str | None, *, now_ms: int) -> Wait | None:
    """Read a Retry-After header: seconds, fractions and HTTP dates; None if it says nothing.

    A date that has passed is a wait of nothing (clocks differ), not a refusal.
    """
    if text is None:
        return None
    stripped = text.strip()
    if _SECONDS.fullmatch(stripped):
        return Wait(float(stripped))
    try:
        date = parsedate_to_datetime(stripped)
        at_s = date.replace(tzinfo=date.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        return None
    return Wait(max(0.0, at_s - now_ms / 1000))
