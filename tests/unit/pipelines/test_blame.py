"""Whose fault a failed job is: an event is given up only for a fault of its own."""

import pytest

from pipelines.functions.faults import fault_of_a_function
from pipelines.jobs.runner import short
from pipelines.parts.blame import (
    ExecutorEndedError,
    check_executor,
    fault_of_an_event,
    is_fault_of_others,
)

FRAME = "\tat org.apache.spark.sql.execution.WholeStageCodegenEvaluatorFactory.hasNext(X.scala:1)"


@pytest.mark.parametrize(
    "cause",
    [
        "org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero.",
        "org.apache.spark.SparkRuntimeException: [INVALID_ARRAY_INDEX] Index 9 is out of bounds.",
        "java.lang.StackOverflowError",
        "java.lang.ArrayIndexOutOfBoundsException: Index 3 out of bounds for length 1",
        "java.time.format.DateTimeParseException: Text 'x' could not be parsed",
        "java.util.regex.PatternSyntaxException: Dangling meta character",
    ],
)
def test_what_an_expression_throws_is_the_events(cause: str) -> None:
    says = f"Job aborted due to stage failure: Task 0 in stage 3.0 failed\n{cause}\n{FRAME}"
    assert fault_of_an_event(says) == cause


@pytest.mark.parametrize(
    "says",
    [
        f"org.apache.kafka.common.errors.TimeoutException: no topic\n{FRAME}\njava.lang.Exception",
        "java.net.ConnectException: Connection refused",
        "java.io.IOException: No space left on device",
        "Job 3 cancelled because SparkContext was shut down",
        "ExecutorLostFailure (executor 1 exited): java.lang.RuntimeException: gone",
        "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext",
        "An error occurred while calling o123.write",
    ],
)
def test_what_kafka_or_the_cluster_does_is_no_events_fault(says: str) -> None:
    assert fault_of_an_event(says) is None
    # Nobody knows whose fault the last one is.
    assert is_fault_of_others(says) == (says != "An error occurred while calling o123.write")


def test_what_a_function_throws_is_the_events_whatever_it_says() -> None:
    why = "fraud.score: ValueError: org.apache.kafka says: cancelled"
    says = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        f"pipelines.functions.calls.FunctionFailedError: {why}\n{FRAME}\njava.io.EOFException"
    )
    assert fault_of_an_event(says) == why
    assert not is_fault_of_others(says)
    assert fault_of_a_function("java.io.EOFException") is None


def test_a_worker_that_ended_is_of_a_function() -> None:
    says = "SparkException: Python worker exited unexpectedly (crashed)\njava.io.EOFException"
    assert fault_of_an_event(says) == "the process of a function has ended"


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("ExecutorLostFailure (executor 1 exited caused by one of the running tasks)", "has ended"),
        (f"java.lang.OutOfMemoryError: Java heap space\n{FRAME}", "has no memory left"),
        (f"org.apache.arrow.memory.OutOfMemoryException: Failure\n{FRAME}", "has no memory left"),
        (f"io.netty.util.internal.OutOfDirectMemoryError: no\n{FRAME}", "has no memory left"),
        (f"org.apache.spark.memory.SparkOutOfMemoryError: no\n{FRAME}", "has no memory left"),
    ],
)
def test_an_executor_that_ended_or_has_no_memory_may_be_anybodys_doing(says: str, why: str) -> None:
    with pytest.raises(ExecutorEndedError, match=why):
        check_executor(says)
    check_executor(f"org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO]\n{FRAME}")
    # The error of a function may contain any text.
    check_executor(f"pipelines.functions.calls.FunctionFailedError: a.b: ValueError: {says}")


def test_what_went_wrong_in_a_task_is_told_in_its_own_words() -> None:
    says = (
        "An error occurred while calling z:org.apache.spark.sql.kafka010.KafkaWriter.write.\n:"
        " org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0"
        " failed 1 times, most recent failure: Lost task 0.0 in stage 1.0 (TID 5) (127.0.0.1"
        " executor 1): java.io.IOException: no room"
    )
    assert short(ValueError(says)) == "ValueError: java.io.IOException: no room"
    assert short(ValueError("no room")) == "ValueError: no room"
