"""Finds out whether an event made a job fail. Pure.

After a fault of Kafka or the cluster, the job is retried unchanged, and no event is blamed.
"""

import re

from pipelines.functions.faults import fault_of_a_function


class ExecutorEndedError(Exception):
    """An executor has ended, or has run out of memory: any of its jobs may be the cause."""


_ENDED = re.compile(r"\bExecutorLostFailure\b")
# Out of memory in the JVM, Spark, Arrow (an exception) and Netty (memory beside the heap).
_NO_MEMORY = re.compile(r"\bSparkOutOfMemoryError\b|\bOutOf(Direct)?Memory(Error|Exception)\b")
_OF_AN_EVENT = re.compile(
    r"\bSpark(Arithmetic|ArrayIndexOutOfBounds|ClassCast|DateTime|IllegalArgument|NoSuchElement"
    r"|NumberFormat|Runtime|UnsupportedOperation)Exception\b"
    r"|\bjava\.lang\.(StackOverflowError|OutOfMemoryError)\b"
    r"|\bjava\.(lang|util|time)\.(\w+\.)*\w+Exception\b"
)
_OF_OTHERS = re.compile(
    r"\borg\.apache\.kafka\b|\bjava\.(net|io|nio)\."
    r"|\bjava\.lang\.(InterruptedException|IllegalStateException)\b|ExecutorLostFailure"
    r"|\bTableNotReadyError\b"
    r"|\bcancelled\b|SparkContext was shut down"
)


def check_executor(says: str) -> None:
    """Raise ExecutorEndedError if the error's text says that the executor failed."""
    if fault_of_a_function(says) is not None:
        return
    if _ENDED.search(says):
        raise ExecutorEndedError("the process that handles its events has ended")
    if _NO_MEMORY.search(says):
        raise ExecutorEndedError("the process that handles its events has no memory left")


def fault_of_an_event(says: str) -> str | None:
    """Return the line of the error that blames an event; None if no event is at fault."""
    if (why := fault_of_a_function(says)) is not None:
        return why
    if is_fault_of_others(says):
        return None
    lines = (line.strip() for line in says.splitlines())
    return next((line for line in lines if _OF_AN_EVENT.search(line)), None)


def is_fault_of_others(says: str) -> bool:
    """Whether Kafka, Spark or the machine failed: then the work is not at fault."""
    return fault_of_a_function(says) is None and _OF_OTHERS.search(says) is not None
