"""Has Spark write rows to Kafka, and returns the figures that it counted on the way.

The writer is that of Spark's own Kafka sink, called as the sink calls it. The sink itself runs a
plan of its own and never reports the figures of `observe`, so its callers would wait for them
forever (ADR 0077).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from pipelines.parts.archive_source import AWAY, ArchiveAwayError

_BYTES = "org.apache.kafka.common.serialization.ByteArraySerializer"
_OF_THE_CLIENT = "kafka."

# The maximum number of rows that the driver takes at once: in Python each takes about a kilobyte.
ROWS_MAX = 100_000


class TooMuchAtOnceError(Exception):
    """Too many events were processed at once: the next job must have fewer."""


def write_rows(
    rows: DataFrame, options: Mapping[str, str], observed: Sequence[str]
) -> list[dict[str, Any]]:
    """Write all rows to Kafka; return the figures that `observe` has counted by these names."""
    jvm = rows.sparkSession._jvm  # noqa: SLF001 - nothing else reaches the writer
    assert jvm is not None, "a session that runs has its JVM"
    parameters = jvm.java.util.HashMap()
    for name, value in options.items():
        if name.startswith(_OF_THE_CLIENT):
            parameters.put(name.removeprefix(_OF_THE_CLIENT), value)
    for what in ("key", "value"):
        parameters.put(f"{what}.serializer", _BYTES)
    no_topic = getattr(getattr(jvm.scala, "None$"), "MODULE$")
    execution = rows._jdf.queryExecution()  # noqa: SLF001 - as above
    jvm.org.apache.spark.sql.kafka010.KafkaWriter.write(execution, parameters, no_topic)
    return told_of(execution, observed)


def read_rows(
    rows: DataFrame, observed: Sequence[str], *, rows_max: int = ROWS_MAX
) -> tuple[list[Any], list[Any]]:
    """Return the rows themselves, and the figures that were counted on the way."""
    table = rows.toArrow()
    if table.num_rows > rows_max:
        raise TooMuchAtOnceError(f"it made {table.num_rows:,} rows; at most {rows_max:,} are taken")
    execution = rows._jdf.queryExecution()  # noqa: SLF001 - as above
    return table.to_pylist(), told_of(execution, observed)


def told_of(execution: Any, observed: Sequence[str]) -> list[dict[str, Any]]:
    """The figures that `observe` has counted while this was executed.

    Raise ArchiveAwayError if an archive did not return its events: then the job must be repeated.
    """
    figures = execution.observedMetrics()
    if figures.contains(AWAY) and (away := json.loads(figures.apply(AWAY).json()).get(AWAY)):
        raise ArchiveAwayError(away)
    return [json.loads(figures.apply(name).json()) for name in observed]
