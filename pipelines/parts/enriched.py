"""Adds rows of tables to events, and decides which events can become rows."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pipelines.members import members_of
from pipelines.parts.columns import OURS, alive, column, ours
from pipelines.parts.heap import fit
from pipelines.parts.numbers import expression
from pipelines.tables.look_ups import FOUND, LookUp
from shared.config.pipeline import LookedUp
from shared.event.table_row import ROW_KEY_BYTES_MAX
from shared.runtime.spark.session import arrow_column

# The reason of a dead letter.
NO_ROW = "no_row"
# The header with a look-up's table, and the offset up to which the table was known: TABLE@OFFSET.
TABLE = "hifi-table"
# Members of a row that do not fit their types are null.
_READING_ROWS = {
    "mode": "PERMISSIVE",
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
}


def enriched(rows: DataFrame, asked: LookedUp, look_up: LookUp) -> DataFrame:
    """Add a table's row for the event, as the table is when the event is processed."""
    key = alive(expression(asked.key).cast("string"))
    look = arrow_column(look_up, FOUND)
    rows = rows.withColumn(f"{OURS}found", look(key, ours("partition")))
    row, at = (ours("found").getField(name) for name in ("row", "at"))
    # Several tables are listed in the order of the steps.
    used = [ours("used")] if f"{OURS}used" in rows.columns else []
    versions = F.concat_ws(",", *used, F.concat(F.lit(f"{asked.table}@"), at.cast("string")))
    members = members_of(asked.schema)
    read = F.from_json(fit(row, members), members, _READING_ROWS)
    made = {asked.into: read, f"{OURS}used": versions}
    if asked.missing == "dead":
        made[f"{OURS}fate"] = F.coalesce(ours("fate"), F.when(row.isNull(), NO_ROW))
    rows = rows.withColumns(made)
    return rows.select(*(column(name) for name in rows.columns if name != f"{OURS}found"))


def names_row() -> Column:
    """Whether an event's key can be the key of a row."""
    key = ours("out_key")
    is_text = F.try_validate_utf8(key.cast("string")).isNotNull()
    is_short = F.octet_length(key).between(1, ROW_KEY_BYTES_MAX)
    return F.coalesce(is_text & is_short, F.lit(False))
