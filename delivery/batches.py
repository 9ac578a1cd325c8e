"""Decides what a batch on its way to a destination is: fresh events by column, or tried ones.

Both answer the same questions. Fresh events share one history and stay columns until one of them
fails; events that wait, or of which a destination asks for more than bytes, are opened one by one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from delivery.arrow_events import EventColumns
from delivery.body import chunks, join_body
from shared.config.destination import Destination
from shared.event.envelope import Envelope, History
from shared.proof.receipt import Facts, facts_of


@dataclass(frozen=True, slots=True)
class Tried:
    """An event with its history on the way to one destination."""

    envelope: Envelope
    history: History


class Batch(Protocol):
    """The events of one HTTP call."""

    @property
    def event_count(self) -> int: ...

    @property
    def facts(self) -> Facts: ...

    @property
    def histories(self) -> Sequence[History]:
        """Those of its events; one, if they all have the same."""

    def body(self, destination: Destination) -> bytes: ...

    def tried(self) -> Sequence[Tried]: ...

    def with_histories(self, histories: Sequence[History]) -> "Batch":
        """The same events, after one more attempt."""

    def split_at(self, count: int) -> "tuple[Batch, Batch]":
        """The first so many events, and the others."""


@dataclass(frozen=True, slots=True)
class FreshBatch:
    """Consecutive events of a stream that are tried for the first time, as a JSON array."""

    columns: EventColumns
    first: int
    end: int
    history: History

    @property
    def event_count(self) -> int:
        return self.end - self.first

    @property
    def facts(self) -> Facts:
        return self.columns.facts(self.first, self.end)

    @property
    def histories(self) -> Sequence[History]:
        return (self.history,)

    def body(self, destination: Destination) -> bytes:
        assert is_plain(destination), "other destinations get their events opened"
        return self.columns.json_body(self.first, self.end)

    def tried(self) -> Sequence[Tried]:
        envelopes = self.columns.envelopes(self.first, self.end)
        return [Tried(envelope, self.history) for envelope in envelopes]

    def with_histories(self, histories: Sequence[History]) -> "FreshBatch":
        return replace(self, history=histories[0])

    def split_at(self, count: int) -> "tuple[FreshBatch, FreshBatch]":
        middle = self.first + count
        return replace(self, end=middle), replace(self, first=middle)


@dataclass(frozen=True, slots=True)
class TriedBatch:
    """Events that were opened, each with its own history."""

    events: Sequence[Tried]

    @property
    def event_count(self) -> int:
        return len(self.events)

    @property
    def facts(self) -> Facts:
        return facts_of([tried.envelope for tried in self.events])

    @property
    def histories(self) -> Sequence[History]:
        return [tried.history for tried in self.events]

    def body(self, destination: Destination) -> bytes:
        envelopes = [tried.envelope for tried in self.events]
        return join_body(envelopes, destination.body_format, fields=destination.fields)

    def tried(self) -> Sequence[Tried]:
        return self.events

    def with_histories(self, histories: Sequence[History]) -> "TriedBatch":
        events = [
            Tried(tried.envelope, history)
            for tried, history in zip(self.events, histories, strict=True)
        ]
        return TriedBatch(events)

    def split_at(self, count: int) -> "tuple[TriedBatch, TriedBatch]":
        return TriedBatch(self.events[:count]), TriedBatch(self.events[count:])


def is_plain(destination: Destination) -> bool:
    """Whether a destination takes a stream's events as they are, so that none must be opened."""
    return (
        destination.body_format == "json"
        and destination.order == "none"
        and not destination.filter
        and not destination.fields
    )


def fresh_batches(
    columns: EventColumns, history: History, destination: Destination
) -> Iterator[FreshBatch]:
    """Batches of a destination's size, cut where `tried_batches` would cut them."""
    for first, end in columns.cut(
        count_max=destination.batch_count_max, bytes_max=destination.batch_bytes_max
    ):
        yield FreshBatch(columns, first, end, history)


def tried_batches(tried: Sequence[Tried], destination: Destination) -> Iterator[TriedBatch]:
    """Batches of a destination's size; `chunks` decides where, by the events alone."""
    at = 0
    for chunk in chunks(
        [each.envelope for each in tried],
        count_max=destination.batch_count_max,
        bytes_max=destination.batch_bytes_max,
        body_format=destination.body_format,
    ):
        yield TriedBatch(tried[at : at + len(chunk)])
        at += len(chunk)
