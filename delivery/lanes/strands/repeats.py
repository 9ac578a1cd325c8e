"""Reads and writes the ranges of a log that were sent again because their outcomes were unknown.

A range is written before it is sent, because copies of its events may already wait in a tier: these
must be labelled as possible repeats.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from delivery.lanes.units import Strand
from shared.event.record import KafkaPartition, RecordOut
from shared.event.topics import LANES
from shared.proof.intervals import Offsets

# The first offset of a range, and its end. Listed ranges ascend, and no two of them touch.
Stretch: TypeAlias = tuple[int, int]

_SUFFIX = b":repeats"
# A strand keeps this many; the oldest are joined, as nothing that old still waits.
_RANGES_MAX = 16


class RepeatedRanges(NamedTuple):
    """The ranges of a strand that were sent again, and when they were last written."""

    ranges: tuple[Stretch, ...]
    at_ms: int


class RepeatsRecord(msgspec.Struct, frozen=True):
    """The content of a record."""

    ranges: tuple[Stretch, ...]


_DECODER = msgspec.json.Decoder(RepeatsRecord)


def unsaid(
    known: Mapping[Strand, RepeatedRanges], begun: Mapping[Strand, Stretch]
) -> dict[Strand, tuple[Stretch, ...]]:
    """Return the ranges to write for strands whose records do not cover these new ranges."""
    news: dict[Strand, tuple[Stretch, ...]] = {}
    for strand, (begin, end) in begun.items():
        ranges = Offsets.of(known[strand].ranges if strand in known else ())
        if ranges.reach(begin) < end:
            ranges.add(begin, end)
            first, last = (all_of := list(ranges))[: 1 - _RANGES_MAX], all_of[1 - _RANGES_MAX :]
            news[strand] = (*((first[0][0], until) for _, until in first[-1:]), *last)
    return news


def repeats_record(strand: Strand, ranges: tuple[Stretch, ...]) -> RecordOut:
    return RecordOut(LANES, repeats_key(strand), msgspec.json.encode(RepeatsRecord(ranges)))


def repeats_key(strand: Strand) -> bytes:
    """Return a key that no mark has."""
    reader, (topic, partition) = strand
    return f"{reader}:{topic}:{partition}".encode() + _SUFFIX


def open_repeats(key: bytes, value: bytes | None) -> tuple[Strand, tuple[Stretch, ...]] | None:
    """Return a record's strand and its ranges, or None if it cannot be read."""
    if not key.endswith(_SUFFIX):
        return None
    try:
        reader, topic, number = key.removesuffix(_SUFFIX).decode().split(":")
        strand = Strand(reader, KafkaPartition(topic, int(number)))
        return strand, _DECODER.decode(value).ranges if value else ()
    except ValueError:
        return None
