"""The generation distinguishes a pipeline's replacement from the running pipeline."""

from dataclasses import replace

from observe.lag.pipeline_states import built_anew
from shared.config.configuration import Configuration, Replacement
from shared.config.pipeline import Pipeline
from shared.config.pipeline_state import PipelineState, state_of
from shared.proof.overview import BuiltAnew

VISITS = Pipeline.of(
    {
        "name": "visits",
        "from": {"stream": "clicks"},
        "steps": [{"window": {"every": "1 hour", "compute": {"n": "count(*)"}}}],
        "to": [{"stream": "visits"}],
    }
)
ANEW = replace(VISITS, generation=2)
KNOWN = Configuration(pipelines={"visits": VISITS})


def test_how_far_it_is_is_of_its_own_document_alone() -> None:
    states = {
        VISITS.title: PipelineState(VISITS.fingerprint, "running"),
        ANEW.title: PipelineState(ANEW.fingerprint, "replacing", behind=1_204),
    }
    assert built_anew("visits", KNOWN, states) is None
    known = replace(KNOWN, replacements={"visits": Replacement("visits", 2, ANEW)})
    assert built_anew("visits", known, states) == BuiltAnew(2, "replacing", "", 1_204)
    # The state of an older document is ignored.
    older = {**states, ANEW.title: PipelineState("older", "replacing", behind=7)}
    assert built_anew("visits", known, older) == BuiltAnew(2, "checking")
    assert state_of(VISITS, states).standing == "running"
    # The replacement has taken the pipeline's place.
    there = replace(known, pipelines={"visits": ANEW})
    assert built_anew("visits", there, states) is None
