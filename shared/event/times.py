"""Says what a minute, an hour and a day are; decides how times are cut to a minute and written."""

from datetime import UTC, datetime, timedelta

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def minute_of(time_ms: int) -> int:
    """The start of the minute that a time falls into."""
    return time_ms - time_ms % MINUTE_MS


def rfc3339(time_ms: int) -> str:
    """To the millisecond, in UTC; OverflowError for a year that no calendar has."""
    time = _EPOCH + timedelta(milliseconds=time_ms)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
