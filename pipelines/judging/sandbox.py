"""Takes out of a Spark session what no pipeline may use, whatever its expressions say.

The second of two locks: the first judges the text of each expression (expressions.py). What is not
on the list of allowed functions is not there to be called, in whatever way it may be written.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from pipelines.judging.allowed import FUNCTIONS
from shared.runtime.spark.session import SparkSettings, running_spark

# What a session that runs pipelines is started with.
OPTIONS: Mapping[str, str] = {
    # A value that does not fit is null: an exception would end the job that all events are in.
    "spark.sql.ansi.enabled": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.legacy.sizeOfNull": "false",
    # An event with a step takes 16 µs, and 38 if nothing is compiled; small jobs take 20 ms more.
    "spark.sql.codegen.factoryMode": "FALLBACK",
    # Or each of the 250 calls that a plan is made with asks the JVM five times for its call site.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # A member is called as it is written.
    "spark.sql.caseSensitive": "true",
    # No file is a table, and text within double quotes is text.
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.variable.substitute": "false",
    # What jobs bring back to the driver is in its heap; of fewer events it is less.
    "spark.driver.maxResultSize": "64m",
}
# What plans are made of themselves (plan.py), and what the engine counts with.
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
    # What is refused is told to whoever wrote it, and is no error of ours.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


# Spark takes no heap below 450 MB otherwise, of which it leaves 300 alone.
_SMALL_HEAP: Mapping[str, str] = {"spark.testing.reservedMemory": str(32 * 1024 * 1024)}


@contextmanager
def trial_session(
    folder: Path, cache: Path | None = None, heap_mb: int = 512
) -> Iterator[SparkSession]:
    """One that is to pipelines as the running one, to try them out in: no job of it is large."""
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
