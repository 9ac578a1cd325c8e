"""Says whether a Spark task is another try of one that died: nobody knows what that one sent."""

from pyspark import TaskContext

# Under this name Spark tells its tasks (MicroBatchExecution.BATCH_ID_KEY).
_MICRO_BATCH = "streaming.sql.batchId"


def is_another_try() -> bool:
    """False outside Spark, and for the first try of a task."""
    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


def micro_batch() -> int | None:
    """The number of the micro-batch that the task belongs to; None outside of a stream."""
    context = TaskContext.get()
    number = None if context is None else context.getLocalProperty(_MICRO_BATCH)
    return None if number is None else int(number)
