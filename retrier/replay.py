"""Decides which micro-batch may already have been sent: the one that died without its commit.

Spark writes `offsets/N` before micro-batch N and `commits/N` after it. A newest plan without its
commit is run again, with the same events, when the query starts: all of it may be a repeat.
"""

from pathlib import Path


def replayed_micro_batch(checkpoint: Path) -> int | None:
    """The number of the micro-batch that will be run again; None when there is none."""
    planned = _newest(checkpoint / "offsets")
    return None if planned == _newest(checkpoint / "commits") else planned


def _newest(folder: Path) -> int | None:
    """The highest micro-batch number in a log folder of Spark's."""
    numbers = [int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit()]
    return max(numbers, default=None)
