"""Writes times, durations, counts and sizes for pages and commands, in one short format each."""

import time

# The sign for a missing value.
NONE = "\u2013"
# The effects on events after somebody asks to try their destination now.
WHAT_FOLLOWS = (
    "New events go out at once. Events that wait for a retry follow when their wait is over: within"
    " 5 min if a breaker, a hold or a pause kept them back, later if the destination refused them"
    " several times or asked for a longer wait."
)
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400


def duration(seconds: float | None) -> str:
    """Write a duration in two units at most: 340 ms, 2.1 s, 4 min 10 s, 3 h 5 min, 2 d 4 h."""
    if seconds is None:
        return NONE
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 0.9995:  # noqa: PLR2004 - what rounds to a second is one
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:  # noqa: PLR2004 - what rounds to ten needs no tenth
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit_s, unit, next_s, next_unit in (
        (_DAY_S, "d", _HOUR_S, "h"),
        (_HOUR_S, "h", _MINUTE_S, "min"),
        (_MINUTE_S, "min", 1, "s"),
    ):
        if whole >= unit_s:
            rest = whole % unit_s // next_s
            return f"{whole // unit_s} {unit}" + (f" {rest} {next_unit}" if rest else "")
    return f"{whole} s"


def count(number: int) -> str:
    return f"{number:,}"


def size(size_bytes: int | None) -> str:
    """Write a size with three digits at most: 999 B, 9.5 kB, 120 MB."""
    if size_bytes is None:
        return NONE
    amount, units = float(size_bytes), ["TB", "GB", "MB", "kB", "B"]
    while amount >= 999.5 and len(units) > 1:  # noqa: PLR2004 - rounds to a thousand: the next unit's
        amount /= 1000
        units.pop()
    is_whole = amount >= 99.5 or units[-1] == "B"  # noqa: PLR2004 - rounds to three figures
    return f"{amount:.{0 if is_whole else 1}f} {units[-1]}"


def clock(at_ms: int) -> str:
    """Write the time of day to the second, UTC."""
    return time.strftime("%H:%M:%S", time.gmtime(at_ms / 1000))


def minute(at_ms: int) -> str:
    return time.strftime("%H:%M", time.gmtime(at_ms / 1000))


def moment(at_ms: int) -> str:
    """Write day and time to the millisecond, UTC, in a form that can be pasted elsewhere."""
    try:
        day = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at_ms // 1000))
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"
    return f"{day}.{at_ms % 1000:03d}Z"


def to_minute(at_ms: int) -> str:
    """Write month, day and time to the minute, UTC."""
    text = moment(at_ms)
    return text[5:16] if text.endswith("Z") else text


def sentence(text: str) -> str:
    """Make a sentence of a reason that was written as part of one."""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def plural(number: int, word: str) -> str:
    return f"{number:,} {word if number == 1 else word + 's'}"
