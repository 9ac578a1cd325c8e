"""Removes from a Spark session all functions that no pipeline may use.

The second of two locks: the first judges the text of each expression (expressions.py). A function
that is not on the list of allowed functions does not exist here, so no spelling can call it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from pipelines.judging.allowed import FUNCTIONS
from shared.runtime.spark.session import SparkSettings, running_spark

# The options of a session that runs pipelines.
OPTIONS: Mapping[str, str] = {
    # A value that does not fit becomes null: an exception would end the job of all events.
    "spark.sql.ansi.enabled": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.legacy.sizeOfNull": "false",
    # A step takes 16 µs for each event, and 38 uncompiled; compiling adds 20 ms to small jobs.
    "spark.sql.codegen.factoryMode": "FALLBACK",
    # Otherwise each of the 250 calls that make a plan asks the JVM five times for its call site.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Member names are case-sensitive.
    "spark.sql.caseSensitive": "true",
    # No file is a table, and double quotes enclose text.
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.variable.substitute": "false",
    # Results that jobs bring back are in the driver's heap; fewer events have smaller results.
    "spark.driver.maxResultSize": "64m",
}
# The functions that plans themselves use (plan.py), and those that the engine counts with.
_OF_PLANS = frozenset(
    """
    ! and or not = == <=> < <= > >= + - * / % when
    map map_from_entries posexplode_outer timestamp_millis try_element_at try_validate_utf8 typeof
    & collect_list collect_set count count_if explode histogram_numeric max min session_window sum
    """.split()  # noqa: SIM905 - nobody would read a list of these words
)


def lock(session: SparkSession) -> None:
    """Drop every unlisted function from the session's registries."""
    state = session._jsparkSession.sessionState()  # noqa: SLF001 - nothing else reaches them
    kept = FUNCTIONS.keys() | _OF_PLANS
    for registry in (state.functionRegistry(), state.tableFunctionRegistry()):
        listed = registry.listFunction()
        for at in range(listed.size()):
            function = listed.apply(at)
            if function.funcName() not in kept:
                registry.dropFunction(function)
    # A refusal is shown to the author of the expression; it must not be logged as our error.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


# Without this, Spark refuses a heap below 450 MB, and reserves 300 MB of it.
_SMALL_HEAP: Mapping[str, str] = {"spark.testing.reservedMemory": str(32 * 1024 * 1024)}


@contextmanager
def trial_session(
    folder: Path, cache: Path | None = None, heap_mb: int = 512
) -> Iterator[SparkSession]:
    """Open a session for trials, set like that of running pipelines, but for small jobs."""
    settings = SparkSettings(
        name="hifi-pipelines-trial",
        service="pipelines",
        worker_daemon="pipelines.worker_daemon",
        folder=folder,
        cache=cache,
        task_places=1,
        heap_mb=heap_mb,
        more={**OPTIONS, **_SMALL_HEAP},
    )
    with running_spark(settings) as session:
        lock(session)
        yield session
