"""Decides which events may already have been sent: those of a micro-batch without its commit.

Spark writes `offsets/N` before micro-batch N and `commits/N` after it. If the newest plan has no
commit, the driver died in between, and Spark will run that very range of offsets again.
"""

import json
from pathlib import Path


def replay_until(checkpoint: Path) -> dict[tuple[str, int], int]:
    """The end of the uncommitted micro-batch, by Kafka partition; empty if there is none."""
    planned = _newest(checkpoint / "offsets")
    if planned is None or planned == _newest(checkpoint / "commits"):
        return {}
    return _ends(checkpoint / "offsets" / str(planned))


def _newest(folder: Path) -> int | None:
    """The highest micro-batch number in a log folder of Spark's."""
    numbers = [int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit()]
    return max(numbers, default=None)


def _ends(plan: Path) -> dict[tuple[str, int], int]:
    """Offsets that a plan reaches: line 1 is the format, line 2 Spark's own, then one a source."""
    ends: dict[tuple[str, int], int] = {}
    for line in plan.read_text().splitlines()[2:]:
        for topic, partitions in json.loads(line).items():
            ends.update(
                {(topic, int(partition)): offset for partition, offset in partitions.items()}
            )
    return ends
