"""Says how the documents of pipelines stand, and what is being built in their places. Pure."""

from shared.config.configuration import Configuration
from shared.config.pipeline_state import PipelineStates, state_of
from shared.proof.overview import BuiltAnew


def built_anew(name: str, configuration: Configuration, states: PipelineStates) -> BuiltAnew | None:
    """What is being built to take a pipeline's place; None if nothing is."""
    if (document := configuration.replacement_of(name)) is None:
        return None
    state = state_of(document, states)
    return BuiltAnew(document.generation, state.standing, state.why, state.behind)
