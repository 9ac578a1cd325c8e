"""Describes how a job changes a pipeline's kept state, stored with its position. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple, TypeAlias

from shared.event.record import KafkaPartition, Position

# The record with the shape of the state's step, and the broker's time up to which all was read.
HEAD = b"head"
# The record with the position that the state belongs to: the group's own may be lost.
POSITION = b"position"
# `quiet_ms` while a pipeline is being built beside another: it writes nothing to streams.
ALL_QUIET_MS = 2**62

Record: TypeAlias = tuple[bytes, bytes | None]


class TooMuchKeptError(Exception):
    """There is no room for the state of these events."""


class TooManyChangedError(Exception):
    """These events change too much at once: the next job must have fewer."""


class WindowRow(NamedTuple):
    """The row that is written for a window."""

    group: str
    start_ms: int
    end_ms: int
    version: int
    event_time_ms: int
    accepted_at_ms: int
    value: bytes


@dataclass(frozen=True, slots=True)
class KeptChange:
    """A change of the kept state, which counts once all of it is stored."""

    frontier_ms: int
    records: Sequence[Record] = ()
    rows: Sequence[WindowRow] = ()
    # The new or changed entries by their keys, and the keys that are removed.
    opened: Mapping[Any, Any] = field(default_factory=dict)
    gone: frozenset[Any] = frozenset()
    # Whether more windows are over than were written.
    has_more: bool = False
    # The events that are repeats, by Kafka partition and offset.
    repeats: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class Head:
    """The head of state that is kept for a step of this shape."""

    shape: str = ""
    frontier_ms: int = 0
    # No stream gets windows that had ended by then: the predecessor has written them.
    quiet_ms: int = 0
    # The generation of the predecessor, if there was one.
    before: int = 0

    @property
    def is_quiet(self) -> bool:
        return self.quiet_ms == ALL_QUIET_MS

    @property
    def record(self) -> Record:
        return HEAD, json.dumps(asdict(self)).encode()


class KeptPosition(NamedTuple):
    """The position that kept state belongs to, in the topic with this id."""

    offsets: Position
    # Empty if Kafka had not named it. A topic that is recreated has another one.
    topic_id: str = ""

    @property
    def record(self) -> Record:
        offsets: dict[str, dict[int, int]] = {}
        for where, at in sorted(self.offsets.items()):
            offsets.setdefault(where.topic, {})[where.partition] = at
        return POSITION, json.dumps({"topic_id": self.topic_id, "offsets": offsets}).encode()

    @classmethod
    def of(cls, value: bytes | None) -> "KeptPosition":
        stored = json.loads(value or b"{}")
        offsets = {
            KafkaPartition(topic, int(partition)): at
            for topic, places in stored.get("offsets", {}).items()
            for partition, at in places.items()
        }
        return cls(offsets, stored.get("topic_id", ""))


def head_of(value: bytes | None) -> Head:
    """The head that a HEAD record holds."""
    stored = json.loads(value or b"{}")
    return Head(**{each.name: stored[each.name] for each in fields(Head) if each.name in stored})
