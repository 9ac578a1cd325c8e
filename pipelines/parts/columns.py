"""Names the columns of a plan, and reads the facts of an event from its record."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from shared.config.steps.expression import FACTS
from shared.event.envelope import EVENT_ID

# The prefix of our own columns in a plan; no member that is read has it.
OURS = f"{FACTS}:"
_TIME_PATTERN = "^-?[0-9]{1,18}$"
_DIGITS_MAX = 18
# Spark can compute with times between these: the years 1 and 9999.
_TIMES_MS = (-62_135_596_800_000, 253_402_300_799_999)
# The longest id or trace that Hifi writes (see envelope.py).
_TEXT_BYTES_MAX = 8_192


def ours(name: str) -> Column:
    return column(OURS + name)


def column(name: str) -> Column:
    """The column of that name, which may have any characters."""
    return F.col("`" + name.replace("`", "``") + "`")


def named(**columns: Column) -> list[Column]:
    return [column.alias(f"{OURS}{name}") for name, column in columns.items()]


def alive(made: Column) -> Column:
    """Limit a column to events that are still on their way; the others do not need it."""
    return F.when(ours("fate").isNull(), made)


def pair(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))


def header(name: str) -> Column:
    """The header of this name, as bytes."""
    return ours("known").getItem(name)


def event_id() -> Column:
    """The event's id, as `event_id_of` reads it."""
    raw = header(EVENT_ID)
    is_one = F.octet_length(raw).between(1, _TEXT_BYTES_MAX)
    place = F.concat_ws(":", ours("topic"), ours("partition"), ours("offset"))
    return F.coalesce(F.when(is_one, F.try_validate_utf8(raw.cast("string"))), place)


def time_ms(raw: Column) -> Column:
    """The time, as `open_stream_record` reads it: the record's own if no header has a valid one."""
    text = raw.cast("string")
    number = text.cast("bigint")
    # We write plain numbers; anything else is checked with the pattern.
    is_plain = (number.cast("string") == text) & (F.length(text) <= _DIGITS_MAX)
    written = F.when(is_plain | text.rlike(_TIME_PATTERN), number)
    return F.coalesce(written, F.unix_millis(F.col("timestamp")))


def timestamp(at_ms: Column) -> Column:
    return F.when(at_ms.between(*_TIMES_MS), F.timestamp_millis(at_ms))
