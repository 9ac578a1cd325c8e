"""Decides how a Spark query ends: between two micro-batches if that can be had in time.

`StreamingQuery.stop` interrupts whatever runs. A query that merely believes that it has ended
finishes its micro-batch, commits it and leaves its loop, so that is what it is told first.
"""

import contextlib

from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery


def end_query(query: StreamingQuery, *, drain_s: float) -> bool:
    """End the query; False when its micro-batch had to be cut off after `drain_s`."""
    is_drained = False
    with contextlib.suppress(PySparkException):
        if query.isActive:
            execution = query._jsq.streamingQuery()  # noqa: SLF001 - see above; pyspark is pinned
            execution.state().set(_terminated(query))
            # Zero would be refused, and a second is enough for an idle query.
            is_drained = bool(query.awaitTermination(max(round(drain_s), 1)))
    with contextlib.suppress(PySparkException):
        query.stop()
    return is_drained


def _terminated(query: StreamingQuery) -> object:
    """Spark's own word for a query that has ended, a Scala object."""
    states = query._jsq.streamingQuery().getClass().getPackageName()  # noqa: SLF001 - as above
    loader = query._jsq.getClass().getClassLoader()  # noqa: SLF001 - as above
    kind = loader.loadClass(f"{states}.TERMINATED$")
    return kind.getField("MODULE$").get(None)
