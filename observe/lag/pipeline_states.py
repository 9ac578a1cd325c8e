"""Reads the states of pipelines' documents, and of the rebuilds to take their places. Pure."""

from shared.config.configuration import Configuration
from shared.config.pipeline_state import PipelineStates, state_of
from shared.proof.overview import BuiltAnew


def built_anew(name: str, configuration: Configuration, states: PipelineStates) -> BuiltAnew | None:
    """The rebuild that will take a pipeline's place; None if there is none."""
    if (document := configuration.replacement_of(name)) is None:
        return None
    state = state_of(document, states)
    return BuiltAnew(document.generation, state.standing, state.why, state.behind)
