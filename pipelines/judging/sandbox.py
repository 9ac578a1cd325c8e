"""Removes from a Spark session the functions that no pipeline may use, however they are called.

The second of two locks: the first judges the text of each expression (expressions.py). A function
that is not on the list of allowed ones does not exist here, so no spelling can call it.
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
    # A value that does not fit is null: an exception would end the job that all events are in.
    "spark.sql.ansi.enabled": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.legacy.sizeOfNull": "false",
    # An event with a step takes 16 µs, and 38 if nothing is compiled; small jobs take 20 ms more.
    "spark.sql.codegen.factoryMode": "FALLBACK",
    # Otherwise each of the 250 calls that make a plan asks the JVM five times for its call site.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Member names are case-sensitive.
    "spark.sql.caseSensitive": "true",
    # No file is a table, and text within double quotes is text.
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
    """.split()  # noqa: SIM905 - a list of such words would be read by nobody
)


def lock(session: SparkSession) -> None:
    """Drop every function that is on no list from the session's registries."""
    state = session._jsparkSession.sessionState()  # noqa: SLF001 - nothing else reaches them
    kept = FUNCTIONS.keys() | _OF_PLANS
    for registry in (state.functionRegistry(), state.tableFunctionRegistry()):
        listed = registry.listFunction()
        for at in range(listed.size()):
            function = listed.apply(at)
            if function.funcName() not in kept:
                registry.dropFunction(function)
    # A refusal is shown to the author of the expression, and is no error of ours.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


# Without this, Spark refuses a heap below 450 MB, of which it leaves 300 alone.
_SMALL_HEAP: Mapping[str, str] = {"spark.testing.reservedMemory": str(32 * 1024 * 1024)}


@contextmanager
def trial_session(
    folder: Path, cache: Path | None = None, heap_mb: int = 512
) -> Iterator[SparkSession]:
    """Open a session for trials, like the running one for pipelines: no job of it is large."""
    settings = SparkSettings(
        name="hifi-pipelines-trial",
        worker_daemon="pipelines.worker_daemon",
        folder=folder,
        cache=cache,
        slots=1,
        heap_mb=heap_mb,
        more={**OPTIONS, **_SMALL_HEAP},
    )
    with running_spark(settings) as session:
        lock(session)
        yield session
