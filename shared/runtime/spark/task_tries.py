"""Says whether a Spark task is another try of one that died: nobody knows what that one sent."""

from pyspark import TaskContext


def is_another_try() -> bool:
    """False outside Spark, and for the first try of a task."""
    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0
