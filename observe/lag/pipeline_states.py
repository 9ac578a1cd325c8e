"""Looks up the states of pipelines' replacements. Pure."""

from shared.config.configuration import Configuration
from shared.config.pipeline_state import PipelineStates, state_of
from shared.proof.overview import BuiltAnew


def built_anew(name: str, configuration: Configuration, states: PipelineStates) -> BuiltAnew | None:
    """Return the state of a pipeline's replacement; None if there is none."""
    if (document := configuration.replacement_of(name)) is None:
        return None
    state = state_of(document, states)
    return BuiltAnew(document.generation, state.standing, state.why, state.behind)
