"""Pipelines processes try a pipeline, even before it exists; nothing is written."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.deploy.cli_runs import Run
from tests.support.deploy.stack_fixtures import RunningHifi, wait_until
from tests.support.pipelines.pipeline_runs import document, post_all, put, written

pytestmark = pytest.mark.integration

# This includes the start of Spark, beside other tests.
START_S = 120.0


def sales(name: str, **more: Any) -> dict[str, Any]:
    fields = document(
        name,
        "tried",
        schema="type STRING, n BIGINT",
        steps=[{"where": "type = 'sale'"}, {"select": {"twice": "n * 2"}}],
        to=[{"stream": "tried-out", "when": "twice > 10"}, {"dead": True}],
        match="first",
    ).known_fields(with_defaults=False)
    return {member: value for member, value in (fields | more).items() if member != "tenant"}


def try_out(hifi: RunningHifi, name: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{hifi.gateway}/v1/pipelines/{name}/try", json=body, timeout=40)


def test_a_pipeline_that_is_not_made_yet_is_tried_on_events_that_are_given(
    hifi: RunningHifi,
) -> None:
    put(hifi.kafka, document("tried-first", "tried", to=[{"stream": "tried-out"}]))
    answers: list[httpx.Response] = []

    def is_tried() -> bool:
        events = [{"type": "sale", "n": 6}, {"type": "visit"}, {"type": "sale", "n": 1}, 7]
        answers.append(try_out(hifi, "sales", document=sales("sales"), events=events))
        return answers[-1].status_code != 503

    wait_until(is_tried, what="Spark is up", timeout_s=START_S)
    answer = answers[-1]
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["given"][1] == '{"type": "visit"}'
    rows = {row["of"]: (row["outcome"], row["target"], row["value"]) for row in found["rows"]}
    assert rows[1] == ("passed", "tried-out", '{"twice":12}')
    assert rows[2][0] == "filtered"
    assert rows[3][:2] == ("dead", "")
    assert rows[4][0] == "dead"
    assert not written(hifi.kafka, "tried-out")
    known = httpx.get(f"{hifi.gateway}/v1/pipelines", timeout=30).json()["pipelines"]
    assert "sales" not in {each["name"] for each in known}
    # The newest events of the pipeline's stream, in order.
    post_all(hifi, "tried", [{"type": "sale", "n": n} for n in range(20)])
    newest = try_out(hifi, "sales", document=sales("sales"), newest=3).json()
    assert len(newest["given"]) == 3
    assert {row["of"] for row in newest["rows"]} == {1, 2, 3}
    # The pipeline as it is, as the request has no document.
    assert try_out(hifi, "tried-first", events=[{"a": 1}]).json()["rows"][0]["outcome"] == "passed"


def test_what_is_wrong_is_said_with_its_place(hifi: RunningHifi) -> None:
    put(hifi.kafka, document("tried-first", "tried", to=[{"stream": "tried-out"}]))
    wrong = sales("sales", steps=[{"where": "kind = 'sale'"}])
    answers: list[httpx.Response] = []

    def is_tried() -> bool:
        answers.append(try_out(hifi, "sales", document=wrong, events=[{}]))
        return answers[-1].status_code != 503

    wait_until(is_tried, what="Spark is up", timeout_s=START_S)
    problem = answers[-1].json()
    assert (problem["status"], problem["code"]) == (422, "bad_pipeline")
    assert problem["pointer"] == "/steps/0/where"
    assert "kind" in problem["detail"]


def test_a_person_tries_it_with_a_gateway_alone(hifi: RunningHifi, tmp_path: Path) -> None:
    put(hifi.kafka, document("tried-first", "tried", to=[{"stream": "tried-out"}]))
    file = tmp_path / "sales.json"
    given = [{"type": "sale", "n": 6}, {"type": "visit"}, {"type": "sale", "n": "x"}]
    events = [part for each in given for part in ("--event", json.dumps(each))]

    def typed(fields: dict[str, Any], *more: str) -> tuple[int, str, str]:
        file.write_text(json.dumps({"name": "sales", **fields}))
        ran = Run("pipelines", "try", str(file), "--gateway", hifi.gateway, *more, folder=tmp_path)
        return ran.wait(), ran.out, ran.err.replace(f"{tmp_path}/", "")

    ends: list[tuple[int, str, str]] = []

    def is_tried() -> bool:
        ends.append(typed(sales("sales"), *events))
        return "not_tried" not in ends[-1][2]

    wait_until(is_tried, what="Spark is up", timeout_s=START_S)
    code, said, talk = ends[-1]
    assert code == 0, talk
    lines = said.splitlines()
    assert lines[:4] == [
        '1  {"type": "sale", "n": 6}',
        '   tried-out  {"twice":12}',
        '2  {"type": "visit"}',
        "   filtered (by step 1, where: type = 'sale')",
    ]
    assert lines[5].startswith("   dead (")
    assert "3 events: 1 passed, 1 filtered, 1 dead. Nothing was written." in talk
    code, _, talk = typed(sales("sales", steps=[{"where": "kind = 'sale'"}]), *events)
    assert code == 2
    assert "hifi: sales.json:1: steps.0.where: " in talk
    code, _, talk = typed(sales("sales"), "--event", "{oops")
    assert code == 2
    assert "--event '{oops' is not JSON" in talk
    code, _, talk = typed(sales("sales") | {"from": {"stream": "never-made"}})
    assert (code, "never-made" in talk) == (6, True)
