"""`hifi doctor` says whether the documents of pipelines run, and which state they keep."""

import pytest

from deploy.cli.doctor import examine_pipeline
from shared.config.pipeline import Pipeline
from shared.config.pipeline_state import PipelineState

PIPELINE = Pipeline.of(
    {
        "name": "p",
        "from": {"stream": "s"},
        "steps": [{"window": {"every": "1 minute", "compute": {"n": "count(*)"}}}],
        "to": [{"stream": "t"}],
    }
)


def state(**fields: object) -> PipelineState:
    return PipelineState(PIPELINE.fingerprint, "running", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("known", "grade", "says"),
    [
        (None, "note", "its document is not judged yet"),
        (state(), "good", "running"),
        (state(kept=7), "good", "keeps 7 windows"),
        (state(kept=90_000), "note", "90,000 of at most 100,000"),
        (PipelineState("of another", "running"), "note", "its document is not judged yet"),
    ],
)
def test_what_is_said_of_a_pipeline(known: PipelineState | None, grade: str, says: str) -> None:
    found = examine_pipeline(PIPELINE, known)
    assert (found.grade, says in found.says) == (grade, True), found
