"""Reads a lane's position, and what may already have been sent, from Spark's checkpoint.

Spark writes `offsets/N` before micro-batch N and `commits/N` after it. If the newest plan has no
commit, the driver died in between, and Spark will run that very range of offsets again.
"""

import json
from pathlib import Path

from shared.event.record import KafkaPartition
from shared.runtime.kafka.spark_options import by_partition


def replayed_micro_batch(checkpoint: Path) -> int | None:
    """The number of the micro-batch that will be run again; None when there is none."""
    planned = _newest(checkpoint / "offsets")
    return None if planned == _newest(checkpoint / "commits") else planned


def position(checkpoint: Path) -> dict[KafkaPartition, int]:
    """Where the newest committed micro-batch ended, by Kafka partition; empty if there is none."""
    number = _newest(checkpoint / "commits")
    if number is None:
        return {}
    ends: dict[KafkaPartition, int] = {}
    # Line 1 is the format, line 2 Spark's own, then one a source.
    for line in (checkpoint / "offsets" / str(number)).read_text().splitlines()[2:]:
        ends |= by_partition(json.loads(line))
    return ends


def sweep(checkpoint: Path) -> None:
    """Remove what a writer that was killed has left half written, before the next one begins.

    Spark never does, and refuses to plan its first micro-batch beside any: a driver that died while
    it wrote the first plan of a lane would have stopped that lane for good.
    """
    for half in checkpoint.rglob(".*.tmp"):
        half.unlink(missing_ok=True)


def _newest(folder: Path) -> int | None:
    """The highest micro-batch number in a log folder of Spark's."""
    numbers = [int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit()]
    return max(numbers, default=None)
