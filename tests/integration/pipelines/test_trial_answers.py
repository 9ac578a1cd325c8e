"""A trial's answers: each event's fate, windows' rows, reasons for refusals, within the limits."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from pipelines.judging.apart.judge_client import JudgeClient, JudgeDiedError, JudgeTookTooLongError
from pipelines.judging.apart.judge_process import JudgeQuestion
from pipelines.judging.apart.trial_answer import tried_on
from pipelines.judging.apart.trials import Trials
from pipelines.judging.trial import given_records
from pipelines.parts.bounded import TookTooLongError
from pipelines.shards import NO_SHARDS
from pipelines.tables.look_ups import NO_TABLES
from shared.config.configuration import Configuration
from shared.config.pipeline import Pipeline
from shared.config.pipeline_tests import PipelineTest
from shared.event.record import Origin, RecordIn, RecordOut
from shared.event.topics import TRIALS
from shared.event.trial import TrialAnswer, TrialAsked, read_trial
from shared.runtime.clock import now_ms
from tests.support.pipelines.trial_spark import a_pipeline

pytestmark = pytest.mark.integration


def answer_to(session: SparkSession, pipeline: Pipeline, *events: Any) -> TrialAnswer:
    records = given_records(pipeline, PipelineTest(given=events), 0)
    return tried_on(
        session, pipeline, records, streams=NO_SHARDS, tables=NO_TABLES, functions=frozenset()
    )


def test_each_event_has_its_row(locked_spark: SparkSession) -> None:
    pipeline = a_pipeline({"where": "n > 1"}, {"select": {"n": "n"}}, {"key": "n"})
    answer = answer_to(locked_spark, pipeline, {"n": 1}, {"n": 2}, "nonsense")
    assert answer.rows[0].reason == "by step 1, where: n > 1"
    assert [(row.of, row.outcome, row.target, row.key) for row in answer.rows] == [
        (1, "filtered", "", None),
        (2, "passed", "sales", "2"),
        (3, "dead", "", None),
    ]
    assert answer.rows[1].value == '{"n":2}'
    assert answer.rows[2].reason
    assert answer.given == ('{"n": 1}', '{"n": 2}', '"nonsense"')


def test_each_step_that_drops_events_is_named(locked_spark: SparkSession) -> None:
    pipeline = a_pipeline(
        {"where": "n > 0"},
        {"select": {"id": "id", "n": "n", "tags": "tags"}},
        {"explode": {"tag": "tags"}},
        {"dedupe": {"key": "id", "within": "1 hour"}},
        to=[{"stream": "sales", "when": "n > 1"}],
    )
    good = {"id": "a", "n": 2, "tags": ["x"]}
    answer = answer_to(
        locked_spark, pipeline, good, {**good, "n": 0}, {**good, "id": "b", "tags": []}, good,
        {**good, "id": "c", "n": 1},
    )  # fmt: skip
    assert {row.of: row.reason for row in answer.rows if row.outcome == "filtered"} == {
        2: "by step 1, where: n > 0",
        3: "by step 3, explode",
        4: "by step 4, dedupe",
        5: "no output takes it",
    }
    assert [row.of for row in answer.rows if row.outcome == "passed"] == [1]


def test_rows_of_windows_are_of_no_event(locked_spark: SparkSession) -> None:
    window = {"every": "1 minute", "by": ["id"], "compute": {"sum": "sum(n)"}}
    pipeline = a_pipeline({"window": window})
    answer = answer_to(locked_spark, pipeline, {"id": "a", "n": 1}, {"id": "a", "n": 2})
    (row,) = answer.rows
    assert (row.of, row.outcome, row.target) == (None, "passed", "sales")
    assert json.loads(row.value)["sum"] == 3


def test_what_cannot_be_run_is_said_with_its_place(locked_spark: SparkSession) -> None:
    answer = answer_to(locked_spark, a_pipeline({"where": "no_such > 1"}), {"n": 1})
    assert "no_such" in answer.why
    assert answer.pointer == "/steps/0/where"
    assert answer.rows == ()


def test_what_takes_too_long_is_cut_off(
    locked_spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never_ends(*_: Any, **__: Any) -> Any:
        raise TookTooLongError("it took longer than 15 s")

    monkeypatch.setattr("pipelines.judging.apart.trial_answer.came_of", never_ends)
    answer = answer_to(locked_spark, a_pipeline({"where": "n > 1"}), {"n": 1})
    assert answer.is_unfinished
    assert answer.why.startswith("it took longer than 15 s")


def test_an_answer_fits_into_a_record(locked_spark: SparkSession) -> None:
    pipeline = a_pipeline({"explode": {"tag": "tags"}}, {"select": {"tag": "tag", "id": "id"}})
    event = {"id": "\u0001" * 5_000, "tags": [str(nth) for nth in range(20)]}
    answer = answer_to(locked_spark, pipeline, *[event] * 100)
    assert len(answer.given) == 100
    assert len(answer.given[0]) == 1_001
    assert answer.left_out == 2_000 - len(answer.rows) > 0
    assert len(answer.to_bytes()) < 1_000_000


class JudgeHere(JudgeClient):
    """A judge that answers in this process, or with the error of one that has ended."""

    def __init__(self, session: SparkSession, error: Exception | None) -> None:
        self.session, self.error = session, error

    async def ask(self, tenant: str, question: JudgeQuestion, **_: float) -> Any:
        assert tenant == "acme"
        if self.error is not None:
            raise self.error
        return question.work(self.session, *question.given, **question.named)


def test_only_what_is_ours_and_fresh_is_tried_and_what_fails_is_answered_by_nobody(
    locked_spark: SparkSession,
) -> None:
    answers: list[RecordOut] = []
    pipeline = a_pipeline({"where": "n > 1"}, tenant="acme")
    asked = TrialAsked("acme", msgspec.Raw(pipeline.to_json()), (msgspec.Raw(b'{"n": 2}'),))

    unreadable = TrialAsked("acme", msgspec.Raw(b"{}"), newest=1)

    async def answer(key: str, row: RecordOut) -> None:
        assert key == b"ours".hex()
        answers.append(row)

    def record(key: bytes, raw: bytes, *, ago_ms: int = 0) -> RecordIn:
        return RecordIn(Origin(TRIALS, 0, 0), now_ms() - ago_ms, key, raw, ())

    async def scenario(tables: Any, error: Exception | None = None) -> None:
        trials = Trials(
            bootstrap_servers="localhost:1",
            judge=JudgeHere(locked_spark, error),
            configuration=Configuration,
            tables=lambda _, __: tables,
            is_ours=lambda key: key == b"ours".hex(),
            answer=answer,
        )
        trials._take(
            [
                record(b"ours", b"nonsense"),
                record(b"ours", TrialAnswer().to_bytes()),
                record(b"theirs", asked.to_bytes()),
                record(b"ours", asked.to_bytes(), ago_ms=60_000),
                record(b"ours", unreadable.to_bytes()),
                record(b"ours", asked.to_bytes()),
            ]
        )
        await asyncio.gather(*trials._tasks)

    asyncio.run(scenario(NO_TABLES))
    (row,) = answers
    told = read_trial(row.value)
    assert isinstance(told, TrialAnswer)
    assert (row.topic, [each.outcome for each in told.rows]) == (TRIALS, ["passed"])
    # The document names a table that does not exist yet.
    asyncio.run(scenario(None))
    told = read_trial(answers[1].value)
    assert isinstance(told, TrialAnswer)
    assert "not available here" in told.why
    for error, is_unfinished in (
        (JudgeTookTooLongError("more than 17 s"), True),
        (JudgeDiedError(), False),
    ):
        asyncio.run(scenario(NO_TABLES, error))
        told = read_trial(answers[-1].value)
        assert isinstance(told, TrialAnswer)
        assert "the trial takes more" in told.why
        assert told.is_unfinished == is_unfinished
