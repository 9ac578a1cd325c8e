"""Requests for trials, sent to other services, and their answers.

Processes that run pipelines answer with the results of events; observers answer with the response
of a channel.
"""

from typing import TypeAlias

import msgspec

# Nobody waits for a later answer. This is shorter than the console's wait for a gateway. Spark
# starts within 10 s and runs a trial within 5 s, and a channel answers within 20 s.
ANSWER_WITHIN_S = 25.0


class TrialAsked(msgspec.Struct, frozen=True, tag="asked"):
    """Asks for a pipeline's results for some events."""

    tenant: str
    # The pipeline's document in its stored form.
    document: msgspec.Raw
    # The events. If there are none, this many of the newest events of the pipeline's stream.
    events: tuple[msgspec.Raw, ...] = ()
    newest: int = 0

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)


class TrialRow(msgspec.Struct, frozen=True):
    """One row made from an event."""

    # The event's number, counted from 1. None for a window, which is made from several events.
    of: int | None
    outcome: str
    reason: str
    # Its stream or table; empty if it goes nowhere or to another output.
    target: str
    key: str | None
    value: str


class TrialAnswer(msgspec.Struct, frozen=True, tag="answer"):
    """The results, or the reason why the pipeline cannot run and its place in the document."""

    why: str = ""
    pointer: str = ""
    # The events, in the order of processing.
    given: tuple[str, ...] = ()
    rows: tuple[TrialRow, ...] = ()
    # The number of further rows, for which the answer has no room.
    left_out: int = 0
    # The trial was cut off, so `why` may be due to the machine instead of the pipeline.
    is_unfinished: bool = False

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)


class ChannelAsked(msgspec.Struct, frozen=True, tag="channel"):
    """Asks for a channel's answer to a trial message."""

    # The channel's document in its stored form.
    document: msgspec.Raw

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)


class ChannelAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="channel answer"):
    """Says whether a channel accepted the message."""

    is_taken: bool
    # The answer, or the reason for the failure, without addresses and secrets.
    says: str

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)


Asked: TypeAlias = TrialAsked | ChannelAsked
Answered: TypeAlias = TrialAnswer | ChannelAnswer


def read_trial(raw: bytes) -> Asked | Answered:
    """Read a question or an answer; ValueError if it is invalid."""
    read: Asked | Answered = msgspec.json.decode(raw, type=Asked | Answered)
    return read
