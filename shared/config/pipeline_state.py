"""The state of a pipeline's document, as reported by the process that runs it."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import DecodeError, Struct, json

from shared.config.pipeline import Pipeline

# Spark checks it; it runs; it does not run; it is built beside the pipeline that it replaces.
Standing: TypeAlias = Literal["checking", "running", "refused", "replacing"]


class PipelineState(Struct, frozen=True):
    """A record's value in the topic of states; the key is the pipeline's name and generation."""

    # The fingerprint of the document with this state; a newer document is still being checked.
    fingerprint: str
    standing: Standing
    # Why it is refused or waits, and the JSON pointer to that place in the document.
    why: str = ""
    pointer: str = ""
    at_ms: int = 0
    # For a replacement: its distance in events from the pipeline that it replaces.
    behind: int | None = None
    # Whether it has come within seconds of that pipeline, and stored its results up to there.
    has_caught_up: bool = False
    # The number of windows or keys that it keeps, and their bytes of memory.
    kept: int | None = None
    kept_bytes: int = 0
    # The number of offsets that Kafka deleted before the pipeline read them, and the last of these.
    lost: int = 0
    lost_last: str = ""
    # How often it killed the executor while running there alone, and when last.
    executors_ended: int = 0
    executor_ended_at_ms: int = 0
    # The events that it reads from an archive, because Kafka lacks them; empty if there are none.
    note: str = ""

    @property
    def is_level(self) -> bool:
        """Whether it is close enough to its predecessor to take over."""
        return self.standing == "replacing" and self.has_caught_up

    def to_json(self) -> bytes:
        return json.encode(self)


PipelineStates: TypeAlias = Mapping[str, PipelineState]


def state_of(pipeline: Pipeline, states: PipelineStates) -> PipelineState:
    """Return this document's state; a document without a record is being checked."""
    state = states.get(pipeline.title)
    if state is None or state.fingerprint != pipeline.fingerprint:
        return PipelineState(pipeline.fingerprint, "checking")
    return state


def with_state(known: PipelineStates, key: bytes, value: bytes | None) -> PipelineStates:
    """Return the states after one more record; ValueError if the record is invalid."""
    name = key.decode()
    others = {each: state for each, state in known.items() if each != name}
    try:
        return {**others, name: json.decode(value, type=PipelineState)} if value else others
    except DecodeError as error:
        raise ValueError(f"not a pipeline's state: {error}") from error
