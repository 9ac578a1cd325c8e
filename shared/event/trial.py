"""What is asked of whoever runs pipelines when one is tried, and what they answer."""

import msgspec


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


def read_trial(raw: bytes) -> TrialAsked | TrialAnswer:
    """ValueError when it makes no sense."""
    read: TrialAsked | TrialAnswer = msgspec.json.decode(raw, type=TrialAsked | TrialAnswer)
    return read
