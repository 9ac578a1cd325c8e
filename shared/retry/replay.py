"""A replay: its request, its progress, and its next step. Pure."""

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from shared.event.derived import restore_of
from shared.event.envelope import Envelope, open_stream_record
from shared.event.record import RecordIn, RecordOut
from shared.event.rights import REPLAY_WRITER_PREFIX
from shared.event.topics import destination_id
from shared.retry.resend import resent_rows
from shared.retry.routing import in_sheets
from shared.retry.schedule import RetrySchedule

ReplayState = Literal["running", "done", "cancelled", "failed"]
# Keyed by the number of a Kafka partition.
Offsets: TypeAlias = Mapping[int, int]
Spans: TypeAlias = Mapping[int, tuple[int, int]]

_ORDER, _PROGRESS = "order", "progress"


class ReplayOrder(Struct, frozen=True, omit_defaults=True):
    """A replay request: the events to send again, as the gateway has found and written them.

    If only an archive has the events, a command writes the request, and carries it out.
    """

    id: str
    stream: str
    # The destination's name within the stream.
    destination: str
    tenant: str
    # The offsets of each Kafka partition: from the first, up to but not including the second.
    spans: Spans
    created_at_ms: int
    from_ms: int | None = None
    to_ms: int | None = None
    # Only events with this ordering key, or this id.
    key: str | None = None
    event: str | None = None
    rate_per_s: float = 0.0
    cancelled_at_ms: int = 0
    is_archived: bool = False

    @property
    def destination_id(self) -> str:
        return destination_id(self.stream, self.destination)

    @property
    def count(self) -> int:
        """The number of events of the spans, whatever their keys."""
        return sum(end - begin for begin, end in self.spans.values())

    @property
    def writer(self) -> str:
        """The writer's id for the tiers: a process that begins under it ends the previous one."""
        return f"{REPLAY_WRITER_PREFIX}{self.stream}/{self.id}"

    def takes(self, event: Envelope) -> bool:
        """Whether the request is for this event."""
        is_of_key = self.key is None or event.key == self.key.encode()
        return is_of_key and self.event in {None, event.event_id}

    def is_same_as(self, other: "ReplayOrder") -> bool:
        """Whether both requests ask for the same."""
        return _asked(self) == _asked(other)


class ReplayProgress(Struct, frozen=True, omit_defaults=True):
    """The progress of a replay; only the process that carries it out writes this."""

    # By Kafka partition, the offset up to which it has been read; absent at its beginning.
    at: Offsets = {}
    # How many events were put into the first tier, to be sent.
    sent: int = 0
    # How many events Kafka had deleted before they were read.
    gone: int = 0
    # When the newest event that was read had been stored in Kafka.
    reached_ms: int = 0
    updated_at_ms: int = 0
    state: ReplayState = "running"
    # Why it waits, or has failed.
    why: str = ""


class Replay(Struct, frozen=True):
    """The known records of a replay."""

    order: ReplayOrder | None = None
    progress: ReplayProgress = ReplayProgress()

    @property
    def state(self) -> ReplayState:
        if self.progress.state == "running" and self.order and self.order.cancelled_at_ms:
            return "cancelled"
        return self.progress.state

    @property
    def position(self) -> dict[int, int]:
        """The offset at which each Kafka partition continues."""
        spans = {} if self.order is None else self.order.spans
        return {where: self.progress.at.get(where, begin) for where, (begin, _) in spans.items()}

    @property
    def read_count(self) -> int:
        """The number of events of the spans that it has passed."""
        spans = {} if self.order is None else self.order.spans
        return sum(at - spans[where][0] for where, at in self.position.items())

    def next_span(self, events_max: int) -> tuple[int, int, int] | None:
        """The Kafka partition with the least progress, and its next offsets to read."""
        if self.order is None:
            return None
        spans, position = self.order.spans, self.position
        left = {where: at for where, at in position.items() if at < spans[where][1]}
        if not left:
            return None

        def part_done(where: int) -> float:
            begin, end = spans[where]
            return (left[where] - begin) / (end - begin)

        where = min(left, key=lambda each: (part_done(each), each))
        return where, left[where], min(left[where] + events_max, spans[where][1])


# By stream and id.
Replays: TypeAlias = dict[tuple[str, str], Replay]


def order_row(order: ReplayOrder) -> tuple[bytes, bytes]:
    """The key and value of the record with a request."""
    return f"{_ORDER}:{order.stream}/{order.id}".encode(), msgspec.json.encode(order)


def progress_row(order: ReplayOrder, progress: ReplayProgress) -> tuple[bytes, bytes]:
    return f"{_PROGRESS}:{order.stream}/{order.id}".encode(), msgspec.json.encode(progress)


def with_replay(known: Replays, key: bytes, value: bytes | None) -> Replays:
    """Add one more record; ValueError if that makes no sense."""
    what, _, name = key.decode().partition(":")
    stream, _, replay_id = name.partition("/")
    if what not in {_ORDER, _PROGRESS}:
        raise ValueError(f"{what!r} is not a record of a replay")
    replay = known.get((stream, replay_id), Replay())
    if what == _ORDER:
        order = None if value is None else msgspec.json.decode(value, type=ReplayOrder)
        replay = msgspec.structs.replace(replay, order=order)
    else:
        progress = msgspec.json.decode(value or b"{}", type=ReplayProgress)
        replay = msgspec.structs.replace(replay, progress=progress)
    known[stream, replay_id] = replay
    return known


def _asked(order: ReplayOrder) -> tuple[object, ...]:
    asked = order.stream, order.destination, order.from_ms, order.to_ms, order.key, order.event
    return (*asked, order.rate_per_s, order.is_archived)


def queued_rows(
    order: ReplayOrder, records: Iterable[RecordIn], *, schedule: RetrySchedule, now_ms: int
) -> list[RecordOut]:
    """Return the records that put a replay's events into the first tier, and their receipts."""
    return in_sheets(
        [
            row
            for record in records
            for row in resent_rows(
                open_stream_record(record),
                order.destination_id,
                schedule=schedule,
                resend_id=order.id,
                restore_id=restore_of(record.headers),
                now_ms=now_ms,
            )
        ]
    )
