"""Settings that assign a stream's events to Kafka partitions by a shard name in each event.

Each Kafka partition then holds the events of one shard only, so a reader of it, such as the writer
of a database, can be bound to that shard.
"""

import json
import re
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from shared.config.model import CONFIG
from shared.config.values import MemberPointer, check

# The most Kafka partitions of a stream.
SHARDS_MAX = 1000
_SHARD_PATTERN = "[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}"
_SHARD = re.compile(_SHARD_PATTERN)


def _is_shard(text: str) -> bool:
    """Whether this name, as a JSON value in an event, can only be a string or a whole number."""
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
        " or digit, and not a JSON value such as true or 1.5",
    ),
    Field(json_schema_extra={"pattern": f"^{_SHARD_PATTERN}$"}),
]


def _check_once(shards: tuple[str, ...]) -> tuple[str, ...]:
    seen: set[str] = set()
    for shard in shards:
        if shard in seen:
            raise ValueError(f"{shard!r} is listed twice")
        seen.add(shard)
    return shards


@dataclass(frozen=True, slots=True, config=CONFIG)
class Partitioning:
    """Shards in order: the first is Kafka partition 0. Events that name no shard are refused."""

    # JSON pointer to the name of an event's shard.
    pointer: MemberPointer
    shards: Annotated[
        tuple[Shard, ...],
        Field(min_length=1, max_length=SHARDS_MAX),
        AfterValidator(_check_once),
    ]

    def keeps(self, other: "Partitioning") -> bool:
        """Whether this one places all events where the other placed them."""
        is_longer = self.shards[: len(other.shards)] == other.shards
        return is_longer and self.pointer == other.pointer
