"""Says how the documents of pipelines stand, and what is being built in their places. Pure."""

from shared.config.configuration import Configuration
from shared.config.pipeline import Pipeline
from shared.config.pipeline_state import PipelineState, PipelineStates
from shared.proof.overview import BuiltAnew


def state_of(pipeline: Pipeline, states: PipelineStates) -> PipelineState:
    """How its document stands; one that nobody has told of is being checked."""
    state = states.get(pipeline.title)
    if state is None or state.fingerprint != pipeline.fingerprint:
        return PipelineState(pipeline.fingerprint, "checking")
    return state


def built_anew(name: str, configuration: Configuration, states: PipelineStates) -> BuiltAnew | None:
    """What is being built to take a pipeline's place; None if nothing is."""
    if (document := configuration.replacement_of(name)) is None:
        return None
    state = state_of(document, states)
    return BuiltAnew(document.generation, state.standing, state.why, state.behind)
