"""Running documents: the last accepted one, until its successor has been judged."""

from dataclasses import replace
from typing import Any

from pipelines.documents import Documents
from shared.config.pipeline import Pipeline
from shared.event.topics import lane_group, pipeline_of


def document(name: str = "p", stream: str = "s", **fields: Any) -> Pipeline:
    return Pipeline.of(
        {"name": name, "from": {"stream": stream}, "to": [{"stream": "t"}], **fields}
    )


FIRST, SECOND = document(), document(steps=[{"where": "true"}])


def standing(documents: Documents) -> tuple[str, str]:
    state = documents.states["p"]
    return state.standing, state.fingerprint


def test_a_new_document_is_judged_once_and_runs_when_it_is_good() -> None:
    documents = Documents()
    assert documents.take([FIRST], now_ms=1) == [FIRST]
    assert standing(documents) == ("checking", FIRST.fingerprint)
    assert documents.running == {}
    assert documents.take([FIRST], now_ms=2) == []
    assert documents.judged(FIRST, now_ms=3)
    assert documents.by_lane() == {"s/pipeline:p": FIRST}
    assert standing(documents) == ("running", FIRST.fingerprint)
    assert documents.take([FIRST], now_ms=4) == []
    assert documents.untold == {"p"}


def test_the_old_one_runs_until_the_new_one_is_judged_and_not_after_it_is_refused() -> None:
    documents = Documents()
    documents.take([FIRST], now_ms=1)
    documents.judged(FIRST, now_ms=1)
    assert documents.take([SECOND], now_ms=2) == [SECOND]
    assert documents.running == {"p": FIRST}
    assert documents.judged(SECOND, why="no such column", pointer="/steps/0/where", now_ms=3)
    assert documents.running == {}
    state = documents.states["p"]
    assert (state.standing, state.why, state.pointer) == (
        "refused",
        "no such column",
        "/steps/0/where",
    )
    assert documents.take([FIRST], now_ms=4) == [FIRST], "a mended document is judged again"


def test_a_judgement_of_what_does_not_count_any_more_is_no_news() -> None:
    documents = Documents()
    documents.take([FIRST], now_ms=1)
    documents.take([SECOND], now_ms=2)
    assert not documents.judged(FIRST, why="it is bad", now_ms=3)
    assert standing(documents) == ("checking", SECOND.fingerprint)
    documents.take([], now_ms=4)
    assert not documents.judged(SECOND, now_ms=5)
    assert (documents.states, documents.running, documents.untold) == ({}, {}, set())


def test_a_pipeline_that_reads_another_stream_is_another_lane_and_no_destination_is_called_so() -> (
    None
):
    assert FIRST.lane_id == "s/pipeline:p"
    assert document(stream="other").lane_id == "other/pipeline:p"
    assert lane_group(FIRST.lane_id) == "hifi.lane.s.pipeline:p"
    assert replace(FIRST, generation=2).lane_id == "s/pipeline:p.2"
    assert pipeline_of("s/pipeline:p") == pipeline_of("s/pipeline:p.2") == "p"
    assert pipeline_of("s/p") is None


def test_what_holds_it_up_is_told_once_and_taken_back() -> None:
    documents = Documents()
    pipeline = document("a")
    documents.take([pipeline], now_ms=1)
    documents.held_up("a", "nobody is there", now_ms=2)
    assert documents.states["a"].why == ""
    documents.judged(pipeline, now_ms=2)
    documents.untold.clear()
    documents.held_up("a", "nobody is there", now_ms=3)
    documents.held_up("no-such", "nobody is there", now_ms=3)
    assert (documents.states["a"].why, documents.untold) == ("nobody is there", {"a"})
    documents.untold.clear()
    documents.held_up("a", "nobody is there", now_ms=4)
    assert documents.untold == set()
    documents.held_up("a", "", now_ms=5)
    assert (documents.states["a"].why, documents.states["a"].standing) == ("", "running")


def test_what_does_not_hold_any_more_is_judged_again_and_runs_meanwhile() -> None:
    documents = Documents()
    (pipeline,) = documents.take([document()], now_ms=1)
    documents.judged(pipeline, now_ms=2)
    assert documents.take([pipeline], now_ms=3) == []
    documents.judge_again(["p", "unheard-of"])
    assert documents.take([pipeline], now_ms=4) == [pipeline]
    assert list(documents.by_lane()) == [pipeline.lane_id]


def test_what_is_built_is_another_than_what_it_replaces_and_is_told_how_far_it_is() -> None:
    documents, built = Documents(), document(generation=2)
    assert documents.take([FIRST, built], now_ms=1) == [FIRST, built]
    documents.built("p.2", 5, now_ms=2)
    assert documents.states["p.2"].standing == "checking", "the document has not been judged"
    for each in (FIRST, built):
        documents.judged(each, now_ms=3)
    assert documents.by_lane().keys() == {"s/pipeline:p", "s/pipeline:p.2"}
    documents.untold.clear()
    documents.built("p.2", 5, now_ms=4)
    state = documents.states["p.2"]
    assert (state.standing, state.behind, documents.untold) == ("replacing", 5, {"p.2"})
    documents.untold.clear()
    documents.built("p.2", 5, now_ms=5)
    assert not documents.untold
    assert documents.take([built], now_ms=6) == []
    documents.built("p.2", None, now_ms=7)
    state = documents.states["p.2"]
    assert (state.standing, state.behind) == ("running", None)
    assert documents.by_lane() == {"s/pipeline:p.2": built}


def test_what_it_keeps_is_told_when_it_changes() -> None:
    documents = Documents()
    documents.keeps("p", 5, 100, now_ms=1)
    assert documents.states == {}
    documents.take([FIRST], now_ms=1)
    documents.judged(FIRST, now_ms=2)
    for is_told in (True, False):
        documents.untold.clear()
        documents.keeps("p", 5, 100, now_ms=3)
        assert bool(documents.untold) is is_told
    state = documents.states["p"]
    assert (state.standing, state.kept, state.kept_bytes) == ("running", 5, 100)


def test_what_is_lost_adds_up_and_stays_while_it_goes_on() -> None:
    documents = Documents()
    documents.lost("p", 1, "of nobody", now_ms=1)
    documents.take([FIRST], now_ms=1)
    documents.judged(FIRST, now_ms=1)
    documents.untold.clear()
    documents.lost("p", 7, "0 to 6", now_ms=2)
    documents.lost("p", 2, "9 to 10", now_ms=3)
    documents.held_up("p", "away", now_ms=4)
    documents.held_up("p", "", now_ms=5)
    state = documents.states["p"]
    assert (state.lost, state.lost_last, state.standing) == (9, "9 to 10", "running")
    assert documents.untold == {"p"}
