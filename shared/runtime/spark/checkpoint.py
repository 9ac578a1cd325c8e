"""Reads a lane's position, and what may already have been sent, from Spark's checkpoint.

Spark writes `offsets/N` before micro-batch N and `commits/N` after it. If the newest plan has no
commit, the driver died in between, and Spark will run that very range of offsets again.
"""

import json
import shutil
from pathlib import Path

from shared.event.record import KafkaPartition
from shared.runtime.kafka.spark_options import by_partition


def replay_until(checkpoint: Path) -> dict[KafkaPartition, int]:
    """The end of the uncommitted micro-batch, by Kafka partition; empty if there is none."""
    return _ends(checkpoint, replayed_micro_batch(checkpoint))


def replayed_micro_batch(checkpoint: Path) -> int | None:
    """The number of the micro-batch that will be run again; None when there is none."""
    planned = _newest(checkpoint / "offsets")
    return None if planned == _newest(checkpoint / "commits") else planned


def position(checkpoint: Path) -> dict[KafkaPartition, int]:
    """Where the newest committed micro-batch ended, by Kafka partition; empty if there is none."""
    return _ends(checkpoint, _newest(checkpoint / "commits"))


def is_behind(own: Path, other: Path) -> bool:
    """Whether a lane that had another latency meanwhile must not go on from its own checkpoint."""
    ours = position(own)
    return any(offset > ours.get(where, -1) for where, offset in position(other).items())


def set_aside(checkpoint: Path) -> None:
    """Keep an outdated checkpoint for a person to look at; only the last such one."""
    aside = checkpoint.with_name(f"{checkpoint.name}.outdated")
    shutil.rmtree(aside, ignore_errors=True)
    if checkpoint.exists():
        checkpoint.rename(aside)


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


def _ends(checkpoint: Path, number: int | None) -> dict[KafkaPartition, int]:
    """Offsets that a plan reaches: line 1 is the format, line 2 Spark's own, then one a source."""
    ends: dict[KafkaPartition, int] = {}
    if number is None:
        return ends
    for line in (checkpoint / "offsets" / str(number)).read_text().splitlines()[2:]:
        ends |= by_partition(json.loads(line))
    return ends
