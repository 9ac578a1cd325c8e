"""Says what a function reads of events, and what it makes of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

Work: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Function:
    """It is given a batch of events, and gives as many rows, in their order."""

    work: Work
    # Columns with their types, as a pipeline's schema has them.
    reads: str
    returns: str


def function(*, reads: str, returns: str) -> Callable[[Work], Function]:
    """Makes one of a Python function over Arrow batches.

    What it reads are members of the event, and `value`, its bytes as they came, where no member is
    called so. The same events must give the same answers: an event that is read again, after a
    crash, must become the same.
    """

    def made(work: Work) -> Function:
        return Function(work, reads, returns)

    return made
