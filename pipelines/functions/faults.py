"""Finds out whether a function made a job fail. Pure."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

# These match whatever follows: a function's exception may have any text.
_OF_A_FUNCTION = re.compile(
    r"^(pipelines\.functions\.\w+\.)?FunctionFailedError: (?P<why>.*)"
    r"|\bPython worker exited unexpectedly\b"
)


class FunctionFailedError(Exception):
    """A function has thrown, or has returned something that it has not promised."""


@contextmanager
def blaming(name: str) -> Iterator[None]:
    """Blame the function for any error meanwhile, also for the end of its process."""
    try:
        yield
    except BaseException as error:
        raise FunctionFailedError(f"{name}: {type(error).__name__}: {_said(error)}") from error


def _said(error: BaseException) -> str:
    """The error on one line: later lines are Spark's."""
    try:
        return " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - it cannot even say what it is
        return "it cannot be said"


def fault_of_a_function(says: str) -> str | None:
    """Return a function's error, or that its process has ended; None if neither happened."""
    for line in says.splitlines():
        if match := _OF_A_FUNCTION.search(line):
            return match["why"] or "the process of a function has ended"
    return None
