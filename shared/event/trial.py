"""What is asked of other services when something is tried, and what they answer.

Those who run pipelines are asked what would come of events, observers what a channel says.
"""

from typing import TypeAlias

import msgspec

# Then whoever asks has gone. Below what the console waits for a gateway: Spark starts within 10 s
# and tries within 5, and a channel has its say within 20.
ANSWER_WITHIN_S = 25.0


class TrialAsked(msgspec.Struct, frozen=True, tag="asked"):
    """What would come of some events, were the pipeline so."""

    tenant: str
    # The pipeline's document as it would be stored.
    document: msgspec.Raw
    # The events; without any, so many of the newest of the pipeline's stream.
    events: tuple[msgspec.Raw, ...] = ()
    newest: int = 0

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)


class TrialRow(msgspec.Struct, frozen=True):
    """One row that came of an event."""

    # Of which, counted from 1; None: of a window, which several events make.
    of: int | None
    outcome: str
    reason: str
    # Which stream or table it goes to; empty: nowhere, or to no stream and no table.
    target: str
    key: str | None
    value: str


class TrialAnswer(msgspec.Struct, frozen=True, tag="answer"):
    """What came of them, or why the pipeline could not be run and where in the document that is."""

    why: str = ""
    pointer: str = ""
    # The events, in the order in which they were taken.
    given: tuple[str, ...] = ()
    rows: tuple[TrialRow, ...] = ()
    # So many more rows came than there is room for.
    left_out: int = 0
    # It was cut off: what `why` says is of the machine as well as of the pipeline.
    is_unfinished: bool = False

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)


class ChannelAsked(msgspec.Struct, frozen=True, tag="channel"):
    """What a channel says to a message for a try."""

    # The channel's document as it is stored.
    document: msgspec.Raw

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)


class ChannelAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="channel answer"):
    """What became of a message."""

    is_taken: bool
    # What was answered, or why it was not taken: no address, and no secret.
    says: str

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)


Asked: TypeAlias = TrialAsked | ChannelAsked
Answered: TypeAlias = TrialAnswer | ChannelAnswer


def read_trial(raw: bytes) -> Asked | Answered:
    """ValueError when it makes no sense."""
    read: Asked | Answered = msgspec.json.decode(raw, type=Asked | Answered)
    return read
