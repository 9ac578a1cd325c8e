"""Tells, of a job that failed, whether it was a function that failed it. Pure."""

import re

# Whatever else is said there: what a function throws says what it likes.
_OF_A_FUNCTION = re.compile(
    r"^(pipelines\.functions\.calls\.)?FunctionFailedError: (?P<why>.*)"
    r"|\bPython worker exited unexpectedly\b"
)


def fault_of_a_function(says: str) -> str | None:
    """What a function has thrown, or that its process has ended; None if none did."""
    for line in says.splitlines():
        if found := _OF_A_FUNCTION.search(line):
            return found["why"] or "the process of a function has ended"
    return None
