"""Reads a lane's position, and what may already have been sent, from Spark's checkpoint.

Spark writes `offsets/N` before micro-batch N and `commits/N` after it. If the newest plan has no
commit, the driver died in between, and Spark will run that very range of offsets again.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from shared.event.record import KafkaPartition, Position


def replay_until(checkpoint: Path) -> dict[KafkaPartition, int]:
    """The end of the uncommitted micro-batch, by Kafka partition; empty if there is none."""
    planned = replayed_micro_batch(checkpoint)
    return {} if planned is None else _ends(checkpoint / "offsets" / str(planned))


def replayed_micro_batch(checkpoint: Path) -> int | None:
    """The number of the micro-batch that will be run again; None when there is none."""
    planned = _newest(checkpoint / "offsets")
    return None if planned == _newest(checkpoint / "commits") else planned


def position(checkpoint: Path) -> dict[KafkaPartition, int]:
    """Where the newest committed micro-batch ended, by Kafka partition; empty if there is none."""
    committed = _newest(checkpoint / "commits")
    return {} if committed is None else _ends(checkpoint / "offsets" / str(committed))


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


def by_topic(position: Position) -> dict[str, dict[str, int]]:
    """A position as Spark's Kafka source writes it, and ours: {topic: {partition: offset}}."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in position.items():
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def by_partition(topics: Mapping[str, Mapping[str, int]]) -> dict[KafkaPartition, int]:
    """The other way round."""
    return {
        KafkaPartition(topic, int(number)): offset
        for topic, offsets in topics.items()
        for number, offset in offsets.items()
    }


def starting_offsets(ends: Position) -> str:
    """A position as an option of Spark's Kafka source."""
    return json.dumps(by_topic(ends))


def _newest(folder: Path) -> int | None:
    """The highest micro-batch number in a log folder of Spark's."""
    numbers = [int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit()]
    return max(numbers, default=None)


def _ends(plan: Path) -> dict[KafkaPartition, int]:
    """Offsets that a plan reaches: line 1 is the format, line 2 Spark's own, then one a source."""
    ends: dict[KafkaPartition, int] = {}
    for line in plan.read_text().splitlines()[2:]:
        ends |= by_partition(json.loads(line))
    return ends
