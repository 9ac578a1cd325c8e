"""The state of a pipeline's document since it was put, as the process that runs it reports it."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import DecodeError, Struct, json

from shared.config.pipeline import Pipeline

# Spark judges it; it runs; it does not run, and why; it is built beside the one it replaces.
Standing: TypeAlias = Literal["checking", "running", "refused", "replacing"]


class PipelineState(Struct, frozen=True):
    """The value of a record of its topic; the key is the pipeline's name, with its generation."""

    # The fingerprint of the document that this is about: a newer one is being checked.
    fingerprint: str
    standing: Standing
    # Why it is refused or waits, and where in the document that is, as a JSON pointer.
    why: str = ""
    pointer: str = ""
    at_ms: int = 0
    # While it is being built: how many events it is behind the pipeline that it replaces.
    behind: int | None = None
    # Whether it has come within seconds of that, and has stored its results up to there.
    has_caught_up: bool = False
    # With windows or keys: how many it keeps, and how many bytes of memory they take.
    kept: int | None = None
    kept_bytes: int = 0
    # How many offsets Kafka had deleted before it came to them, and which these were last.
    lost: int = 0
    lost_last: str = ""
    # How often it has ended the executor that works on events, all by itself, and when last.
    executors_ended: int = 0
    executor_ended_at_ms: int = 0
    # In words, what it reads that Kafka no longer has; empty: nothing.
    note: str = ""

    @property
    def is_level(self) -> bool:
        """Whether it is near enough to the pipeline that it replaces to take its place."""
        return self.standing == "replacing" and self.has_caught_up

    def to_json(self) -> bytes:
        return json.encode(self)


PipelineStates: TypeAlias = Mapping[str, PipelineState]


def state_of(pipeline: Pipeline, states: PipelineStates) -> PipelineState:
    """How this document stands; one without a record is being checked."""
    state = states.get(pipeline.title)
    if state is None or state.fingerprint != pipeline.fingerprint:
        return PipelineState(pipeline.fingerprint, "checking")
    return state


def with_state(known: PipelineStates, key: bytes, value: bytes | None) -> PipelineStates:
    """The states after one more record; ValueError when it makes no sense."""
    name = key.decode()
    others = {each: state for each, state in known.items() if each != name}
    try:
        return {**others, name: json.decode(value, type=PipelineState)} if value else others
    except DecodeError as error:
        raise ValueError(f"no state of a pipeline: {error}") from error
