"""Packs a record into one column of bytes, to cross from Spark to Python in real time.

A row at a time, what a row costs is its columns: Spark clears and describes each one's buffers
anew, and Python opens them. A record as seven of them, one with lists of structs, took 0.5 ms of a
busy core before anything was done with it (docs/tuning.md). So Spark joins what is known of a
record to one line of text, and puts its value behind that.
"""

from shared.event.record import Headers, Origin, RecordIn

# In Spark's words, for rows with the columns of its Kafka source. What may hold any byte is
# hexadecimal; "-" is no key, as an empty one is a key too. A header without a value has an empty
# one, and a record without a value is an event of no bytes, as everywhere (`arrow_rows`).
_HEADER = "concat(hex(cast({0}.key as binary)), '=', hex(coalesce({0}.value, X'')))"
# As many as the gateway writes. Spark compiles this, but not a function over an array, which costs
# 55 us for each record: that is for records with more.
_FEW = 4
_FEW_HEADERS = ", ".join(_HEADER.format(f"get(headers, {nth})") for nth in range(_FEW))
_HEADERS = (
    f"if(size(headers) > {_FEW},"
    f" array_join(transform(headers, h -> {_HEADER.format('h')}), ','),"
    f" concat_ws(',', {_FEW_HEADERS}))"
)
_LINE = (
    "concat_ws(' ', topic, cast(partition as string), cast(offset as string),"
    f" cast(unix_micros(timestamp) as string), coalesce(hex(key), '-'), {_HEADERS})"
)
PACKED = f"concat(cast({_LINE} as binary), X'0A', coalesce(value, X'')) as packed"
# Before Spark hands a row on it asks for the next one, which in real time comes when the next event
# does, or the interval ends: a lone event would wait for a minute. So behind each record stands a
# row of nothing, which goes on with the record after it. A projection of its own, behind that of
# the record: what stands within `explode` is not compiled.
AND_NOTHING = "explode(array(packed, cast(null as binary))) as packed"
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
