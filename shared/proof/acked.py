"""The gateway's ledger: which offsets were acknowledged, when, and the ids of their events.

A row covers the events that one Kafka partition stored within a second. Its first line is JSON; the
ids follow, a line each, so that readers that only count never touch them. Rows are written after
the answer, so a gateway that dies may leave events without a row: the audit then reads the log.

Each slice names its request, so that a caller finds the events of an answer by its request id.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from zlib import crc32

import msgspec

from shared.event.times import DAY_MS, MINUTE_MS, minute_of
from shared.proof.log_buckets import LogBuckets

# Events whose own time is further off belong to no minute that anybody watches: minutes stay open
# to late events for a day, and clocks of healthy machines differ by no more than 5 min.
LATE_MS_MAX = DAY_MS
EARLY_MS_MAX = 5 * MINUTE_MS
# The bucket of these events; no minute starts there, as minutes are multiples of 60,000.
WILD = -1
# The maximum number of events in a row: with the longest ids (256 characters of 4 bytes) the row
# stays under a record's 1 MB, even if each event came in a request of its own.
ROW_EVENTS_MAX = 900
# A row's hash of an ordering key: by the hashes, a search finds the rows that may have the key.
key_hash = crc32
# A UUID of version 7 as the gateway writes it; its first 48 bits are milliseconds (RFC 9562).
REQUEST_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def audited_minute(event_time_ms: int, accepted_at_ms: int) -> int:
    """The minute an event is counted in, or WILD."""
    if not -LATE_MS_MAX <= event_time_ms - accepted_at_ms <= EARLY_MS_MAX:
        return WILD
    return minute_of(event_time_ms)


def runs_of(minutes: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """(count, minute) of each stretch of equal minutes."""
    return tuple((len(list(group)), minute) for minute, group in groupby(minutes))


def request_time_ms(request_id: str) -> int | None:
    """When a request arrived, according to its id; None if that is not a request id."""
    if REQUEST_ID.fullmatch(request_id) is None:
        return None
    return int(request_id[:8] + request_id[9:13], 16)


class AckedSlice(msgspec.Struct, frozen=True):
    """Consecutive offsets that one request's events were given."""

    first: int
    runs: tuple[tuple[int, int], ...]
    accepted_at_ms: int
    # The request, and how many of its events Hifi took in all; old rows do not have them.
    request_id: str = ""
    request_count: int = 0

    @property
    def count(self) -> int:
        return sum(count for count, _ in self.runs)

    def claims(self) -> Iterator[tuple[int, int, int]]:
        """(minute, first, end) of each stretch of offsets."""
        at = self.first
        for count, minute in self.runs:
            yield minute, at, at + count
            at += count


@dataclass(frozen=True, slots=True)
class AckedRow:
    """The events that one Kafka partition of a stream acknowledged within about a second."""

    topic: str
    partition: int
    slices: tuple[AckedSlice, ...]
    # In the order of the slices; no id holds a line break.
    ids: tuple[str, ...]
    value_bytes: int = 0
    # How old the events were when they arrived, and how long Kafka took to store them.
    ingest: LogBuckets = field(default_factory=LogBuckets)
    process: LogBuckets = field(default_factory=LogBuckets)
    # The most frequent of their ordering keys, and how many events each has.
    keys: tuple[tuple[str, int], ...] = ()
    # The hashes of all of their ordering keys.
    key_hashes: tuple[int, ...] = ()

    def to_bytes(self) -> bytes:
        head = _AckedHead(
            topic=self.topic,
            partition=self.partition,
            slices=[[s.first, s.accepted_at_ms, *chain.from_iterable(s.runs)] for s in self.slices],
            requests=[(s.request_id, s.request_count) for s in self.slices],
            value_bytes=self.value_bytes,
            ingest=self.ingest.to_list(),
            process=self.process.to_list(),
            keys=self.keys,
            key_hashes=self.key_hashes,
        )
        return "\n".join((msgspec.json.encode(head).decode(), *self.ids)).encode()

    @classmethod
    def from_bytes(cls, value: bytes, *, with_ids: bool = True) -> "AckedRow":
        """Read a row; ValueError if it is not one."""
        line, _, rest = value.partition(b"\n")
        head = _HEAD.decode(line)
        requests = head.requests or [("", 0)] * len(head.slices)
        return cls(
            topic=head.topic,
            partition=head.partition,
            slices=tuple(
                AckedSlice(
                    first, tuple(zip(flat[::2], flat[1::2], strict=True)), accepted_at_ms, *asked
                )
                for (first, accepted_at_ms, *flat), asked in zip(head.slices, requests, strict=True)
            ),
            ids=tuple(rest.decode().split("\n")) if with_ids and rest else (),
            value_bytes=head.value_bytes,
            ingest=LogBuckets.from_list(head.ingest),
            process=LogBuckets.from_list(head.process),
            keys=head.keys,
            key_hashes=head.key_hashes,
        )

    @property
    def count(self) -> int:
        return sum(part.count for part in self.slices)

    def claims(self) -> Iterator[tuple[int, int, int]]:
        """(minute, first, end) of each stretch of offsets."""
        for part in self.slices:
            yield from part.claims()

    def named(self) -> Iterator[tuple[int, int, str]]:
        """(minute, offset, id) of each event."""
        ids = iter(self.ids)
        for minute, first, end in self.claims():
            for offset in range(first, end):
                yield minute, offset, next(ids)

    def of_request(self, request_id: str) -> Iterator[tuple[int, str, AckedSlice]]:
        """(offset, id, slice) of each event that came with a request."""
        at = 0
        for part in self.slices:
            if part.request_id == request_id:
                for number, event_id in enumerate(self.ids[at : at + part.count]):
                    yield part.first + number, event_id, part
            at += part.count


class _AckedHead(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The first line of a row."""

    topic: str
    partition: int
    # For each slice: first offset, accepted-at, then count and minute of each run in turn.
    slices: list[list[int]]
    # A separate member, not part of the slices: readers that do not know it ignore it.
    requests: list[tuple[str, int]] = []
    value_bytes: int
    ingest: list[int]
    process: list[int]
    # Not in the slices either.
    keys: tuple[tuple[str, int], ...] = ()
    key_hashes: tuple[int, ...] = ()


_HEAD = msgspec.json.Decoder(_AckedHead)


@dataclass(slots=True)
class AckedRequest:
    """The ledger's entries of one request, as far as it was read."""

    request_id: str
    topic: str = ""
    accepted_at_ms: int = 0
    # How many of its events Hifi took; some of them may not be in the ledger yet.
    count: int = 0
    # Their ids, by Kafka partition and offset.
    ids: dict[tuple[int, int], str] = field(default_factory=dict)
    # Rows up to this time were read; None when all were.
    read_until_ms: int | None = None

    @property
    def is_complete(self) -> bool:
        return 0 < self.count <= len(self.ids)

    def take(self, value: bytes) -> None:
        """Record a row of the ledger, if it is about the request; doing so twice does no harm."""
        # Nearly all rows are about other requests, and are not even decoded.
        if self.request_id.encode() not in value:
            return
        try:
            row = AckedRow.from_bytes(value)
        except ValueError:
            return
        for offset, event_id, acked_slice in row.of_request(self.request_id):
            self.topic, self.accepted_at_ms = row.topic, acked_slice.accepted_at_ms
            self.count = max(self.count, acked_slice.request_count)
            self.ids[row.partition, offset] = event_id
