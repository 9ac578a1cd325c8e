"""Detects repeated tries of Spark tasks: nobody knows which events the dead try has sent."""

from pyspark import TaskContext


def is_another_try() -> bool:
    """Return whether the current task is a repeated try; False outside Spark."""
    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0
