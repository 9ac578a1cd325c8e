"""Questions to other services when something is tried, and their answers.

Processes that run pipelines say what would come of events; observers say what a channel answers.
"""

from typing import TypeAlias

import msgspec

# The asker has gone by then. Below what the console waits for a gateway: Spark starts within 10 s
# and tries within 5, and a channel has its say within 20.
ANSWER_WITHIN_S = 25.0


class TrialAsked(msgspec.Struct, frozen=True, tag="asked"):
    """Asks for the results that some events would have in a pipeline."""

    tenant: str
    # The pipeline's document as it would be stored.
    document: msgspec.Raw
    # The events; without any, this many of the newest of the pipeline's stream.
    events: tuple[msgspec.Raw, ...] = ()
    newest: int = 0

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)


class TrialRow(msgspec.Struct, frozen=True):
    """One row that came of an event."""

    # The event's number, counted from 1. None for a window, which several events make.
    of: int | None
    outcome: str
    reason: str
    # The stream or table that it goes to; empty if it goes nowhere, or to neither of these.
    target: str
    key: str | None
    value: str


class TrialAnswer(msgspec.Struct, frozen=True, tag="answer"):
    """The results, or why the pipeline could not be run and where in the document that is."""

    why: str = ""
    pointer: str = ""
    # The events, in the order in which they were taken.
    given: tuple[str, ...] = ()
    rows: tuple[TrialRow, ...] = ()
    # This many more rows came than there is room for.
    left_out: int = 0
    # It was cut off: `why` tells of the machine as well as of the pipeline.
    is_unfinished: bool = False

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)


class ChannelAsked(msgspec.Struct, frozen=True, tag="channel"):
    """Asks how a channel answers a message for a try."""

    # The channel's document as it is stored.
    document: msgspec.Raw

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)


class ChannelAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="channel answer"):
    """Says whether a channel took the message."""

    is_taken: bool
    # The answer, or why it was not taken: no address, and no secret.
    says: str

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)


Asked: TypeAlias = TrialAsked | ChannelAsked
Answered: TypeAlias = TrialAnswer | ChannelAnswer


def read_trial(raw: bytes) -> Asked | Answered:
    """Read a question or an answer; ValueError when it makes no sense."""
    read: Asked | Answered = msgspec.json.decode(raw, type=Asked | Answered)
    return read
