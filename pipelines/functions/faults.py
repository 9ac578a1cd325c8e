"""Tells, of a job that failed, whether it was a function that failed it. Pure."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

# Whatever else is said there: what a function throws says what it likes.
_OF_A_FUNCTION = re.compile(
    r"^(pipelines\.functions\.\w+\.)?FunctionFailedError: (?P<why>.*)"
    r"|\bPython worker exited unexpectedly\b"
)


class FunctionFailedError(Exception):
    """A function has thrown, or has given what it has not promised."""


@contextmanager
def blaming(name: str) -> Iterator[None]:
    """Whatever goes wrong meanwhile is told as the function's, also that it ends its process."""
    try:
        yield
    except BaseException as error:
        raise FunctionFailedError(f"{name}: {type(error).__name__}: {_said(error)}") from error


def _said(error: BaseException) -> str:
    """In a line: those after the first are Spark's."""
    try:
        return " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - it cannot even say what it is
        return "it cannot be said"


def fault_of_a_function(says: str) -> str | None:
    """What a function has thrown, or that its process has ended; None if none did."""
    for line in says.splitlines():
        if found := _OF_A_FUNCTION.search(line):
            return found["why"] or "the process of a function has ended"
    return None
