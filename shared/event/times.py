"""Defines units of time, cuts times to minutes, and writes times as text."""

from datetime import UTC, datetime, timedelta

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def minute_of(time_ms: int) -> int:
    """Return the start of a time's minute."""
    return time_ms - time_ms % MINUTE_MS


def rfc3339(time_ms: int) -> str:
    """Write a time to the millisecond, in UTC; OverflowError beyond the year 9999."""
    time = _EPOCH + timedelta(milliseconds=time_ms)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
