"""A pipeline that ended an executor stays known: in its state, as a metric, to its next process."""

import pytest
from prometheus_client import generate_latest

from pipelines.documents import Documents, EndedExecutors
from pipelines.lanes import culprits as culprits_module
from pipelines.lanes.culprits import Culprits, remembered, with_ended
from pipelines.metrics import PipelineMetrics
from shared.config.pipeline import Pipeline
from shared.config.pipeline_state import PipelineState
from shared.event.times import DAY_MS

AT_MS = 1_790_000_000_000


def document(to: str = "t") -> Pipeline:
    made = {"name": "p", "from": {"stream": "s"}, "to": [{"stream": to}]}
    return Pipeline.of(made)


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(culprits_module, "now_ms", lambda: AT_MS)


def runs(documents: Documents, pipeline: Pipeline) -> None:
    documents.take([pipeline], now_ms=1)
    documents.judged(pipeline, now_ms=2)


def told(documents: Documents) -> tuple[int, int, str, str]:
    state = documents.states["p"]
    return state.executors_ended, state.executor_ended_at_ms, state.standing, state.why


def test_it_is_told_with_how_often_and_when_and_stays_when_all_is_well_again() -> None:
    documents, metrics = Documents(), PipelineMetrics()
    culprits, pipeline = Culprits(documents, metrics), document()
    culprits.blame(pipeline, "it is not ours any more")
    runs(documents, pipeline)
    documents.untold.clear()
    for _ in range(2):
        culprits.blame(pipeline, "it has ended")
    assert told(documents) == (2, AT_MS, "running", "it has ended")
    assert documents.untold == {"p"}
    documents.held_up("p", "", now_ms=3)
    assert told(documents) == (2, AT_MS, "running", "")
    # A new version of a document belongs to the same pipeline.
    changed = document(to="another")
    assert documents.take([changed], now_ms=4) == [changed]
    assert told(documents) == (2, AT_MS, "checking", "")
    documents.judged(changed, why="wrong", now_ms=5)
    assert told(documents) == (2, AT_MS, "refused", "wrong")
    shown = generate_latest(metrics.registry).decode()
    assert 'hifi_pipelines_executor_ended_total{pipeline="p",tenant="default"} 3.0' in shown


def test_who_runs_it_next_goes_on_counting() -> None:
    known = with_ended({}, b"q", PipelineState("f", "running").to_json())
    assert known == {}
    state = PipelineState("f", "running", executors_ended=2, executor_ended_at_ms=AT_MS - DAY_MS)
    known = with_ended(known, b"p", state.to_json())
    documents = Documents(ended_before=lambda title: remembered(known, title))
    runs(documents, document())
    assert told(documents) == (2, AT_MS - DAY_MS, "running", "")
    Culprits(documents, PipelineMetrics()).blame(document(), "it has ended")
    assert told(documents)[:2] == (3, AT_MS)
    # Once the pipeline is gone here, other processes' reports count.
    documents.take([], now_ms=6)
    runs(documents, document())
    assert told(documents)[:2] == (2, AT_MS - DAY_MS)


def test_what_is_long_ago_or_taken_back_is_forgotten() -> None:
    state = PipelineState("f", "running", executors_ended=2, executor_ended_at_ms=AT_MS - DAY_MS)
    known = with_ended({}, b"p", state.to_json())
    assert remembered(known, "p") == EndedExecutors(2, AT_MS - DAY_MS)
    assert remembered(known, "q") == EndedExecutors()
    assert with_ended(known, b"p", None) == {}
    assert with_ended(known, b"p", PipelineState("f", "running").to_json()) == {}
    assert with_ended(known, b"q", None) == known
    assert remembered({"p": EndedExecutors(2, AT_MS - 31 * DAY_MS)}, "p") == EndedExecutors()
