"""Documents call functions that an operator has installed: judged, tested, run, and bounded."""

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from pyspark.sql import Row, SparkSession

from pipelines.functions.installed import installed, loaded_of
from pipelines.functions.states import FoldedState, ToFold
from pipelines.jobs.job import JobFailedError, fold_of
from pipelines.judging.judge import Refusal, judge, typed
from pipelines.plan import RECORDS, planned
from pipelines.settings import PipelinesSettings
from shared.config.access import Tenant
from shared.config.pipeline import Pipeline
from shared.event.envelope import LAST_DETAIL, REASON, event_headers
from shared.event.times import rfc3339
from shared.event.topics import stream_topic
from shared.runtime.clock import now_ms
from tests.support.deploy.stack_fixtures import RunningHifi, wait_until
from tests.support.kafka.config_records import write_config
from tests.support.pipelines.installed_functions import install
from tests.support.pipelines.pipeline_runs import (
    START_S,
    document,
    post_all,
    wait_for_state,
    wait_until_all_is_done,
    written,
)
from tests.support.pipelines.pipeline_runs import put as put_all
from tests.support.pipelines.trial_spark import a_pipeline
from tests.support.pipelines.window_runs import history, put_table

pytestmark = pytest.mark.integration

REDUCERS = ("fraud.spread", "fraud.touchy", "fraud.newest")
ALL = (
    *("fraud.score", "fraud.country", "fraud.moody", "fraud.broken", "fraud.no_function"),
    *REDUCERS,
)
SCHEMA = "id STRING, price DOUBLE, usual DOUBLE, iban STRING, n BIGINT"


@pytest.fixture(scope="module")
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """Start a session with the package installed for this process and for Spark's workers."""
    folder = str(install(tmp_path_factory.mktemp("packages")))
    with pytest.MonkeyPatch.context() as patched:
        paths = [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
        patched.setenv("PYTHONPATH", os.pathsep.join(paths))
        patched.syspath_prepend(folder)
        installed.cache_clear()
        loaded_of.cache_clear()
        yield request.getfixturevalue("locked_spark")
    installed.cache_clear()
    loaded_of.cache_clear()


def calling(*steps: dict[str, Any], **more: Any) -> Pipeline:
    return a_pipeline(*steps, **{"schema": SCHEMA, **more})


def rows_of(spark: SparkSession, pipeline: Pipeline, *events: Mapping[str, Any]) -> list[Row]:
    at = datetime.fromtimestamp(0, tz=UTC)
    headers = list(event_headers(event_id="e", event_time_ms=1, accepted_at_ms=1))
    records = [
        (stream_topic("orders"), 0, offset, at, None, json.dumps(event).encode(), headers)
        for offset, event in enumerate(events)
    ]
    return planned(pipeline, spark.createDataFrame(records, RECORDS)).collect()


def came(rows: list[Row]) -> list[Any]:
    return [json.loads(row["value"]) if row["outcome"] == "passed" else None for row in rows]


def test_what_a_function_says_are_members_of_the_event(spark: SparkSession) -> None:
    pipeline = calling(
        {"where": "price > 0"},
        {"call": "fraud.score"},
        {"call": "fraud.country"},
        {"where": "score IS NULL OR score >= 2"},
        {"select": {"id": "id", "score": "score", "country": "country"}},
    )
    events: list[dict[str, Any]] = [
        {"id": "a", "price": 10.0, "usual": 4.0, "iban": "DE12"},
        {"id": "b", "price": 10.0, "usual": 8.0, "iban": "FR12"},
        {"id": "c", "price": -1.0, "usual": 8.0},
        {"id": "d", "price": 10.0, "usual": 0.0},
        {"id": "e", "price": "much"},
        {"id": "f", "price": 9.0},
    ]
    assert came(rows_of(spark, pipeline, *events)) == [
        {"id": "a", "score": 2.5, "country": "DE"},
        None,
        None,
        {"id": "d"},
        None,
        {"id": "f"},
    ]


def test_without_a_select_the_bytes_stay_and_none_at_all_is_fine(spark: SparkSession) -> None:
    pipeline = calling({"call": "fraud.country"}, {"key": "country"}, schema="")
    (row,) = rows_of(spark, pipeline, {"iban": "NO93", "z": 1})
    assert (bytes(row["value"]), bytes(row["key"])) == (b'{"iban": "NO93", "z": 1}', b"NO")
    nobody = calling({"where": "price < 0"}, {"call": "fraud.score"})
    assert [row["outcome"] for row in rows_of(spark, nobody, {"price": 1.0})] == ["filtered"]


def test_each_row_of_an_exploded_event_is_asked_for(spark: SparkSession) -> None:
    pipeline = calling(
        {"explode": {"price": "prices"}},
        {"call": "fraud.score"},
        {"select": {"score": "score"}},
        schema="prices ARRAY<DOUBLE>, usual DOUBLE",
    )
    rows = rows_of(spark, pipeline, {"prices": [1.0, 2.0], "usual": 2.0}, {"prices": []})
    assert came(rows) == [{"score": 0.5}, {"score": 1.0}, None]


REFUSED = [
    ({"call": "fraud.scor"}, "there is no function 'fraud.scor'; there are: fraud.broken, "),
    ({"call": "fraud.broken"}, "'fraud.broken' cannot be loaded: AttributeError"),
    ({"call": "fraud.no_function"}, "hifi_fraud:json is not made by `@function"),
    ({"call": "fraud.spread"}, "hifi_fraud:spread is a reducer, which windows call"),
]


@pytest.mark.parametrize(("step", "why"), REFUSED)
def test_one_that_cannot_be_had_is_refused_where_it_is_named(
    spark: SparkSession, step: dict[str, Any], why: str
) -> None:
    found = judge(spark, calling({"where": "price > 0"}, step), ALL)
    assert found is not None
    assert found.pointer == "/steps/1/call"
    assert found.why.startswith(why)


def test_only_what_is_granted_is_there(spark: SparkSession) -> None:
    pipeline = calling({"call": "fraud.score"})
    assert judge(spark, pipeline, ["fraud.score"]) is None
    found = judge(spark, pipeline, ())
    assert found is not None
    assert found.why == (
        "there is no function 'fraud.score'; there are: none (an operator installs them, and"
        " grants them)"
    )


def test_what_it_reads_must_be_there_as_it_says(spark: SparkSession) -> None:
    missing = judge(spark, calling({"call": "fraud.score"}, schema="price DOUBLE"), ALL)
    assert missing is not None
    assert missing == ("it reads 'usual', which the event does not have", "/steps/0/call")
    other = judge(spark, calling({"call": "fraud.score"}, schema="price INT, usual DOUBLE"), ALL)
    assert other is not None
    assert other.why == "it reads 'price' as double, but it is int: CAST it before"


def test_a_step_is_typed_with_what_it_adds(spark: SparkSession) -> None:
    (step,) = typed(spark, calling({"call": "fraud.country"}, schema="n BIGINT"), ALL)
    assert step.members == (("n", "bigint"), ("country", "string"), ("bytes", "bigint"))


def test_the_tests_of_a_document_run_it(spark: SparkSession) -> None:
    pipeline = calling(
        {"call": "fraud.score"},
        {"select": {"score": "score"}},
        tests=[{"given": [{"price": 6.0, "usual": 2.0}], "expect": [{"score": 3.0}]}],
    )
    assert judge(spark, pipeline, ALL) is None
    (test,) = pipeline.tests
    wrong = judge(spark, replace(pipeline, tests=(replace(test, expect=({"score": 4.0},)),)), ALL)
    assert wrong is not None
    assert wrong.pointer == "/tests/0"


def test_one_that_throws_in_a_test_says_why(spark: SparkSession) -> None:
    seen = {"select": {"seen": "seen"}}
    pipeline = calling({"call": "fraud.moody"}, seen, tests=[{"given": [{"id": "throws"}]}])
    found = judge(spark, pipeline, ALL)
    assert found is not None
    assert found.pointer == "/steps/0/call"
    assert found.why == (
        "it fails on an event: fraud.moody: ValueError: org.apache.kafka says: cancelled"
    )


def reducing(what: str = "call(fraud.spread)", **more: Any) -> Pipeline:
    window = {"every": "1 hour", "by": ["iban"], "compute": {"it": what, "n": "count(*)"}}
    return calling({"window": window}, **more)


def test_a_window_has_what_a_reducer_makes_of_its_events(spark: SparkSession) -> None:
    given = [
        {"iban": "DE", "price": 4.0},
        {"iban": "DE", "price": 4.0},
        {"iban": "DE"},
        {"iban": "DE", "price": 9.5},
        {"iban": "FR", "price": 1.0},
        {"iban": "NO"},
    ]
    expect = [
        {"iban": "DE", "it": 5.5, "n": 4},
        {"iban": "FR", "it": 0, "n": 1},
        {"iban": "NO", "n": 1},
    ]
    pipeline = reducing(tests=[{"given": given, "expect": expect}])
    assert judge(spark, pipeline, ALL) is None
    (step,) = typed(spark, pipeline, ALL)
    assert ("it", "call") in step.members


REDUCERS_REFUSED = [
    ("call(fraud.nobody)", "there is no function 'fraud.nobody'; there are: fraud.broken, "),
    ("call(fraud.score)", "hifi_fraud:score is not made by `Reducer(...)`"),
    ("call(Score)", "call names an installed reducer: call(fraud.worst)"),
    ("call(fraud.touchy)", "it fails on an event: fraud.touchy: ValueError: org.apache.kafka says"),
    ("call(fraud.newest)", "it fails on an event: fraud.newest: ValueError: its result is "),
]


@pytest.mark.parametrize(("what", "why"), REDUCERS_REFUSED)
def test_a_reducer_that_cannot_be_had_or_goes_wrong_in_a_test_is_refused_where_it_is_named(
    spark: SparkSession, what: str, why: str
) -> None:
    given = [{"id": "a", "iban": "DE"}, {"id": "throws", "iban": "DE"}]
    found = judge(spark, reducing(what, tests=[{"given": given}]), ALL)
    assert found is not None
    assert found.pointer == "/steps/0/window/compute/it"
    assert found.why.startswith(why)


SLOW = [
    [{"call": "fraud.moody"}, {"select": {"seen": "seen"}}],
    [{"window": {"every": "1 hour", "compute": {"it": "call(fraud.touchy)"}}}],
]


@pytest.mark.parametrize("steps", SLOW, ids=["a function", "a reducer"])
def test_a_document_on_whose_tests_it_does_not_come_to_an_end_is_refused(
    spark: SparkSession, steps: list[dict[str, Any]]
) -> None:
    pipeline = calling(*steps, tests=[{"given": [{"id": "sleeps"}]}])
    assert judge(spark, pipeline, ALL, try_s_max=4) == Refusal(
        "in a run with its tests and with odd events: it took longer than 4 s", "/steps"
    )


def test_a_reducer_that_does_not_come_to_an_end_is_cut_off_and_one_that_ends_its_process_told(
    spark: SparkSession,
) -> None:
    with pytest.raises(JobFailedError, match="it took longer than 3 s"):
        fold_of(spark, PipelinesSettings(job_s_max=3), "slow")(
            [ToFold("fraud.touchy", {'["a"]': 1, '["sleeps"]': 1})]
        )
    with pytest.raises(JobFailedError, match="the process of a function has ended"):
        fold_of(spark, PipelinesSettings(), "slow")([ToFold("fraud.touchy", {'["dies"]': 1})])
    (come,) = fold_of(spark, PipelinesSettings(), "slow")(
        [ToFold("fraud.touchy", {'["a"]': 1, '["b"]': 2})]
    )
    assert come == FoldedState('["a","b"]', '["a","b"]')


def test_what_a_reducer_reads_must_be_there(spark: SparkSession) -> None:
    found = judge(spark, reducing(schema="price INT, iban STRING"), ALL)
    assert found is not None
    assert found.why == "it reads 'price' as double, but it is int: CAST it before"


def test_an_event_that_a_reducer_cannot_bear_rests_and_its_window_is_what_others_come_to(
    hifi: RunningHifi,
) -> None:
    table = put_table(hifi.kafka, "touchy", written_by="touchy")
    window = {"every": "1 hour", "time": "at", "compute": {"ids": "call(fraud.touchy)"}}
    pipeline = document(
        "touchy",
        "touchy-in",
        schema="id STRING, at TIMESTAMP",
        steps=[{"window": {**window, "late": "1 day"}}],
        to=[{"table": table.name}],
    )
    granted = Tenant(pipeline.tenant, functions=REDUCERS)
    asyncio.run(write_config(hifi.kafka, [granted]))
    put_all(hifi.kafka, pipeline)
    wait_for_state(hifi.kafka, pipeline, "running", within_s=START_S)
    bad, good = "cannot be merged", ["e1", "e2"]
    at = rfc3339(now_ms())
    ids = [good[0], bad, good[1]]
    post_all(hifi, "touchy-in", [{"id": each, "at": at} for each in ids])
    wait_until_all_is_done(hifi, pipeline, len(ids))
    ((*_, newest),) = history(hifi.kafka, table).values()
    assert newest["ids"] == good
    letters = {each.value: dict(each.headers) for each in hifi.dead_letters(pipeline.lane_id)}
    assert {headers[REASON] for headers in letters.values()} == {b"step_failed"}
    assert {json.loads(value)["id"] for value in letters} == {bad}


def test_an_event_that_a_function_cannot_bear_rests_and_no_other_waits(hifi: RunningHifi) -> None:
    def put(path: str, body: dict[str, Any]) -> httpx.Response:
        return httpx.put(f"{hifi.gateway}/v1/{path}", json=body, timeout=30)

    pipeline = document(
        "calls-all",
        "calls-in",
        schema="id STRING",
        steps=[{"call": "fraud.moody"}, {"select": {"id": "id", "seen": "seen"}}],
        to=[{"stream": "calls-out"}],
    )
    for stream in ("calls-in", "calls-out"):
        assert put(f"streams/{stream}", {"partition_count": 1}).status_code == 201
    assert put("pipelines/calls-all", pipeline.known_fields(with_defaults=False)).status_code == 201

    def state() -> dict[str, str]:
        shown = httpx.get(f"{hifi.gateway}/v1/pipelines/calls-all?wait=5", timeout=30).json()
        found: dict[str, str] = shown["state"]
        return found

    wait_until(lambda: state()["standing"] == "refused", what="not granted", timeout_s=START_S)
    assert state()["pointer"] == "/steps/0/call"
    assert put("tenants/default", {"functions": ["fraud.moody"]}).status_code in {200, 201}
    wait_until(lambda: state()["standing"] == "running", what="granted", timeout_s=START_S)
    events = [{"id": f"e{n}"} for n in range(8)]
    events[2], events[5] = {"id": "throws"}, {"id": "dies"}
    post_all(hifi, "calls-in", events)
    wait_until_all_is_done(hifi, pipeline, len(events))
    rows = [row.value for row in written(hifi.kafka, "calls-out")]
    good = [event["id"] for event in events if event["id"].startswith("e")]
    assert list(dict.fromkeys(row["id"] for row in rows)) == good
    assert all(row["seen"] for row in rows)
    letters = {each.value: dict(each.headers) for each in hifi.dead_letters(pipeline.lane_id)}
    assert {headers[REASON] for headers in letters.values()} == {b"step_failed"}
    said = {json.loads(value)["id"]: headers[LAST_DETAIL] for value, headers in letters.items()}
    assert said.keys() == {"throws", "dies"}
    assert b"fraud.moody: ValueError: org.apache.kafka says" in said["throws"]
    assert b"the process of a function has ended" in said["dies"]
    # Once its permission is withdrawn, the function no longer runs.
    assert put("tenants/default", {}).status_code == 200
    wait_until(
        lambda: state()["standing"] == "refused", what="permission withdrawn", timeout_s=START_S
    )
