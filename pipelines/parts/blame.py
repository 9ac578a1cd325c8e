"""Tells, of a job that failed, whether it was an event that could not be worked on. Pure.

What Kafka or the cluster did not do is tried again as it was; it says nothing of events.
"""

import re

from pipelines.functions.faults import fault_of_a_function


class ExecutorEndedError(Exception):
    """An executor has ended, or has had no memory left: any of its jobs may be why."""


_ENDED = re.compile(r"\bExecutorLostFailure\b")
# Those of the JVM, of Spark, of Arrow (an exception) and of Netty (of memory beside the heap).
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
    """ExecutorEndedError if a job has failed as its executor did, by the words of its error."""
    if fault_of_a_function(says) is not None:
        return
    if _ENDED.search(says):
        raise ExecutorEndedError("the process that works on its events has ended")
    if _NO_MEMORY.search(says):
        raise ExecutorEndedError("the process that works on its events has no memory left")


def fault_of_an_event(says: str) -> str | None:
    """What went wrong with it, by the words of the job's error; None if it was none's fault."""
    if (why := fault_of_a_function(says)) is not None:
        return why
    if is_fault_of_others(says):
        return None
    lines = (line.strip() for line in says.splitlines())
    return next((line for line in lines if _OF_AN_EVENT.search(line)), None)


def is_fault_of_others(says: str) -> bool:
    """Whether it was Kafka, Spark or the machine: then it says nothing of what was to be done."""
    return fault_of_a_function(says) is None and _OF_OTHERS.search(says) is not None
