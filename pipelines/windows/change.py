"""Says what a job changes of what a pipeline keeps, which is stored with its position. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

# The record that says of which step all of it is, and how far the broker's time had been read.
HEAD = b"head"

Record: TypeAlias = tuple[bytes, bytes | None]


class TooMuchKeptError(Exception):
    """There is no room for what these events would have kept."""


class TooManyChangedError(Exception):
    """Fewer events have to be worked on at once."""


class WindowRow(NamedTuple):
    """What is written of a window."""

    group: str
    start_ms: int
    end_ms: int
    version: int
    event_time_ms: int
    accepted_at_ms: int
    value: bytes


@dataclass(frozen=True, slots=True)
class KeptChange:
    """It counts once all of it is stored."""

    frontier_ms: int
    records: Sequence[Record] = ()
    rows: Sequence[WindowRow] = ()
    # What is kept besides, by its key, and what is not any more.
    opened: Mapping[Any, Any] = field(default_factory=dict)
    gone: frozenset[Any] = frozenset()
    # Whether more is over than was written.
    has_more: bool = False
    # The events that have come before, by Kafka partition and offset.
    repeats: frozenset[tuple[int, int]] = frozenset()


def head(shape: str, frontier_ms: int) -> Record:
    """Of what is kept for a step of this shape."""
    return HEAD, json.dumps({"shape": shape, "frontier_ms": frontier_ms}).encode()


def frontier_of(value: bytes | None) -> int:
    return int(json.loads(value or b"{}").get("frontier_ms", 0))


def shape_of_head(value: bytes | None) -> str:
    return str(json.loads(value or b"{}").get("shape", ""))
