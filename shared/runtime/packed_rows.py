"""Decides how a record crosses from Spark to Python in real time: as one column of bytes.

A row at a time, what a row costs is its columns: Spark clears and describes each one's buffers
anew, and Python opens them. A record as seven of them, one with lists of structs, took 0.5 ms of a
busy core before anything was done with it (ADR 0032). So Spark joins what is known of a record to
one line of text, and puts its value behind that.
"""

from shared.record import Headers, Origin, RecordIn

# In Spark's words, for rows with the columns of its Kafka source. What may hold any byte is
# hexadecimal; "-" is no key, as an empty one is a key too. A header without a value has an empty
# one, and a record without a value is an event of no bytes, as everywhere (`arrow_rows`).
_HEADERS = (
    "array_join(transform(coalesce(headers, array()),"
    " h -> concat(hex(cast(h.key as binary)), '=', hex(coalesce(h.value, X'')))), ',')"
)
_LINE = (
    "concat_ws(' ', topic, cast(partition as string), cast(offset as string),"
    f" cast(unix_micros(timestamp) as string), coalesce(hex(key), '-'), {_HEADERS})"
)
# Before Spark hands a row on it asks for the next one, which in real time comes when the next event
# does, or the interval ends: a lone event would wait for a minute. So behind each record stands a
# row of nothing, which goes on with the record after it.
PACKED = (
    f"explode(array(concat(cast({_LINE} as binary), X'0A', coalesce(value, X'')),"
    " cast(null as binary))) as packed"
)
# An Arrow batch that has so many bytes is handed on. Any record has more: its place, its time and
# what surrounds them are 40; a row of nothing has 9 to 16.
BATCH_BYTES = 32


def unpacked(row: bytes) -> RecordIn:
    """The record that Spark has packed with `PACKED`."""
    line, _, value = row.partition(b"\n")
    topic, partition, offset, time_us, key, headers = line.decode().split(" ")
    return RecordIn(
        origin=Origin(topic, int(partition), int(offset)),
        timestamp_ms=int(time_us) // 1000,
        key=None if key == "-" else bytes.fromhex(key),
        value=value,
        headers=_headers(headers),
    )


def _headers(text: str) -> Headers:
    if not text:
        return ()
    return tuple(
        (bytes.fromhex(name).decode(), bytes.fromhex(value))
        for name, _, value in (each.partition("=") for each in text.split(","))
    )
