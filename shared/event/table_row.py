"""A row of a table as a record: its key, its value, and how windows are named by keys.

A row is the last record of its key; a record without a value takes the row away. Keys differ, and
are sorted, by their bytes in UTF-8, so that keys with the same beginning stand together.
"""

from shared.event.times import rfc3339

# As many as a copy can sort by (LMDB takes 511), and no key of ours is near it.
ROW_KEY_BYTES_MAX = 480
# The gateway takes as much as an event, too.
ROW_BYTES_MAX = 1_000_000
# Stands between the group that a window was counted for and the time when it begins.
_OF_WINDOW = "@"
_TIME_CHARS = len(rfc3339(0))


def is_row_key(text: str) -> bool:
    """Whether it can name a row: control characters would break lines that people read."""
    return (
        bool(text)
        and text.isprintable()
        and len(text.encode(errors="surrogatepass")) <= ROW_KEY_BYTES_MAX
    )


def names_row(key: bytes) -> bool:
    """Whether a record's key can be that of a row, no matter where it comes from."""
    try:
        return 0 < len(key) <= ROW_KEY_BYTES_MAX and bool(key.decode())
    except UnicodeDecodeError:
        return False


def window_key(group: str, begins_ms: int) -> str:
    """The key of what a window holds for a group: those of one group sort by time."""
    return f"{group}{_OF_WINDOW}{rfc3339(begins_ms)}"


def windows_between(group: str, begin_ms: int, end_ms: int) -> tuple[str, str]:
    """The keys between which the windows of a group lie that begin at or after, and before."""
    return window_key(group, begin_ms), window_key(group, end_ms)


def is_window_of(key: str, group: str) -> bool:
    """Whether a key is that of a window of this group, and not of one that is called alike."""
    return len(key) == len(group) + len(_OF_WINDOW) + _TIME_CHARS and key.startswith(
        group + _OF_WINDOW
    )
