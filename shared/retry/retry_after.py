"""Reads a Retry-After header, and clamps the wait that it asks for."""

import re
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

# A destination that asks for no wait at all still gets a pause of a second.
RETRY_AFTER_S_MIN = 1.0
# A day: as long as the longest wait that other services accept (EventBridge: 24 h).
RETRY_AFTER_S_MAX = 86_400.0

# Any length counts: a destination that asks for 10^15 seconds must get the longest wait, not none.
_SECONDS = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a destination asked us to wait; negative means: do not come back."""

    # Private, because callers may only use the clamped wait.
    _asked_s: float

    @property
    def is_refusal(self) -> bool:
        return self._asked_s < 0

    @property
    def clamped_s(self) -> float:
        return min(max(self._asked_s, RETRY_AFTER_S_MIN), RETRY_AFTER_S_MAX)


def parse_retry_after(text: str | None, *, now_ms: int) -> Wait | None:
    """Read a Retry-After header: seconds, fractions and HTTP dates; None for anything else.

    A date in the past is a wait of 0 s (clocks differ), not a refusal.
    """
    if text is None:
        return None
    stripped = text.strip()
    if _SECONDS.fullmatch(stripped):
        return Wait(float(stripped))
    at_s = _time_s(stripped)
    return None if at_s is None else Wait(max(0.0, at_s - now_ms / 1000))


def as_length(text: str | None, date: str | None) -> str | None:
    """Return a Retry-After with a date as seconds after the `Date` of the same answer.

    The destination's own clock made both, so no other clock matters. Without a `Date`, or with
    anything but a date, the text stays as it is.
    """
    if text is None or date is None or _SECONDS.fullmatch(text.strip()):
        return text
    until_s, answered_s = _time_s(text), _time_s(date)
    if until_s is None or answered_s is None:
        return text
    return str(int(max(0.0, until_s - answered_s)))


def _time_s(text: str) -> float | None:
    try:
        date = parsedate_to_datetime(text)
        return date.replace(tzinfo=date.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        return None
