"""Ends a Spark query between two micro-batches, if that can be had in time.

`StreamingQuery.stop` interrupts whatever runs. A query that merely believes that it has ended
finishes its micro-batch, commits it and leaves its loop, so that is what it is told first.
"""

import contextlib
import time

from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

# How often a query that was asked to end is looked at.
_LOOK_S = 0.05


def end_query(query: StreamingQuery, *, drain_s: float) -> bool:
    """End the query; False when its micro-batch had to be cut off after `drain_s`."""
    until_s = time.monotonic() + drain_s
    ask_to_end(query)
    while not (is_drained := end_if_between(query)) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
    with contextlib.suppress(PySparkException):
        query.stop()
    return is_drained


def ask_to_end(query: StreamingQuery) -> None:
    """Let the query begin no other micro-batch; it need not be told twice."""
    with contextlib.suppress(PySparkException):
        if query.isActive:
            execution = query._jsq.streamingQuery()  # noqa: SLF001 - see above; pyspark is pinned
            execution.state().set(_terminated(query))


def end_if_between(query: StreamingQuery) -> bool:
    """End a query that was asked to; False while its last micro-batch is under way."""
    with contextlib.suppress(PySparkException):
        if query.status["isTriggerActive"]:
            return False
        # It may be asleep until its next trigger, or have left its loop already.
        query.stop()
    return True


def _terminated(query: StreamingQuery) -> object:
    """Spark's own word for a query that has ended, a Scala object."""
    states = query._jsq.streamingQuery().getClass().getPackageName()  # noqa: SLF001 - as above
    loader = query._jsq.getClass().getClassLoader()  # noqa: SLF001 - as above
    kind = loader.loadClass(f"{states}.TERMINATED$")
    return kind.getField("MODULE$").get(None)
