"""Finds out whether a function made a job fail. Pure."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

# Match whatever text follows: a function's exception may have any text.
_OF_A_FUNCTION = re.compile(
    r"^(pipelines\.functions\.\w+\.)?FunctionFailedError: (?P<why>.*)"
    r"|\bPython worker exited unexpectedly\b"
)


class FunctionFailedError(Exception):
    """A function raised an error, or returned something other than what it declares."""


@contextmanager
def blaming(name: str) -> Iterator[None]:
    """Blame the function for any error in this block, including SystemExit."""
    try:
        yield
    except BaseException as error:
        raise FunctionFailedError(f"{name}: {type(error).__name__}: {_said(error)}") from error


def _said(error: BaseException) -> str:
    """The error's message on one line: later lines are Spark's."""
    try:
        return " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - its message may fail as well
        return "its message cannot be read"


def fault_of_a_function(says: str) -> str | None:
    """Return a function's error, or a note that its process has ended; None if neither happened."""
    for line in says.splitlines():
        if match := _OF_A_FUNCTION.search(line):
            return match["why"] or "the process of a function has ended"
    return None
