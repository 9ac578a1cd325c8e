"""Defines a function: the members that it reads of events, and the columns that it returns."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

Work: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Function:
    """A function takes a batch of events, and returns as many rows, in the same order."""

    work: Work
    # Columns with their types, as a pipeline's schema has them.
    reads: str
    returns: str


def function(*, reads: str, returns: str) -> Callable[[Work], Function]:
    """Make a Function of a Python function over Arrow batches.

    It reads members of the event, and `value`, the event's original bytes unless a member has that
    name. The same events must give the same answers: an event that is read again, after a crash,
    must have the same result.
    """

    def made(work: Work) -> Function:
        return Function(work, reads, returns)

    return made
