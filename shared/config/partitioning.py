"""How a stream lays its events into Kafka partitions by a name that each of them holds.

A Kafka partition then holds the events of one shard only, so its reader, such as the writer of a
database, can be bound to that shard.
"""

import json
import re
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from shared.config.model import CONFIG
from shared.config.values import MemberPointer, check

# As many as a stream has Kafka partitions.
SHARDS_MAX = 1000
_SHARD_PATTERN = "[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}"
_SHARD = re.compile(_SHARD_PATTERN)


def _is_shard(text: str) -> bool:
    """Whether an event can say it in one way only, as a text or as a whole number."""
    try:
        value = json.loads(text)
    except ValueError:
        value = 0
    return bool(_SHARD.fullmatch(text)) and type(value) is int


Shard = Annotated[
    str,
    check(
        _is_shard,
        "{!r} is not a shard; use 1 to 100 of a-z, A-Z, 0-9, _, ., : and -, starting with a letter"
        " or digit, and nothing that JSON has other than a text or a whole number (true, 1.5)",
    ),
    Field(json_schema_extra={"pattern": f"^{_SHARD_PATTERN}$"}),
]


def _check_once(shards: tuple[str, ...]) -> tuple[str, ...]:
    seen: set[str] = set()
    for shard in shards:
        if shard in seen:
            raise ValueError(f"{shard!r} is there twice")
        seen.add(shard)
    return shards


@dataclass(frozen=True, slots=True, config=CONFIG)
class Partitioning:
    """The first shard is Kafka partition 0, the second 1, and so on; what names none is refused."""

    # Where an event names its shard, as a JSON pointer.
    pointer: MemberPointer
    shards: Annotated[
        tuple[Shard, ...],
        Field(min_length=1, max_length=SHARDS_MAX),
        AfterValidator(_check_once),
    ]

    def keeps(self, other: "Partitioning") -> bool:
        """Whether what was laid by the other lies where it would be laid by this one."""
        is_longer = self.shards[: len(other.shards)] == other.shards
        return is_longer and self.pointer == other.pointer
