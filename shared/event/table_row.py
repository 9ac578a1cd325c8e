"""Rows of tables as records: their keys, the limits of keys and values, and windows' keys.

A row is the last record with its key; a record without a value deletes the row. Keys are compared
and sorted by their UTF-8 bytes, so keys with the same prefix are adjacent.
"""

from shared.event.times import rfc3339

# The copies' limit (LMDB allows 511 bytes); Hifi's own keys are far shorter.
ROW_KEY_BYTES_MAX = 480
# The gateway's limit for an event is the same.
ROW_BYTES_MAX = 1_000_000
# Separates a window's group from the time when the window begins.
_OF_WINDOW = "@"
_TIME_CHARS = len(rfc3339(0))


def is_row_key(text: str) -> bool:
    """Whether the text can be a row's key: control characters would break printed lines."""
    return (
        bool(text)
        and text.isprintable()
        and len(text.encode(errors="surrogatepass")) <= ROW_KEY_BYTES_MAX
    )


def names_row(key: bytes) -> bool:
    """Whether the bytes can be a row's key in a record, whoever wrote it."""
    try:
        return 0 < len(key) <= ROW_KEY_BYTES_MAX and bool(key.decode())
    except UnicodeDecodeError:
        return False


def window_key(group: str, begins_ms: int) -> str:
    """Return the key of a group's row for a window; keys of one group sort by time."""
    return f"{group}{_OF_WINDOW}{rfc3339(begins_ms)}"


def windows_between(group: str, begin_ms: int, end_ms: int) -> tuple[str, str]:
    """Return the first key of a group's windows in a time range, and the key after the last."""
    return window_key(group, begin_ms), window_key(group, end_ms)


def is_window_of(key: str, group: str) -> bool:
    """Whether a key belongs to a window of this group, and not to a group with a longer name."""
    return len(key) == len(group) + len(_OF_WINDOW) + _TIME_CHARS and key.startswith(
        group + _OF_WINDOW
    )
