"""Documents as people write them: the docs' own run, and mistakes are named in words."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines.judging import judge as judge_module
from pipelines.judging.allowed import FUNCTIONS
from pipelines.judging.judge import NotTriedError, Refusal, judge
from shared.config.pipeline import Pipeline
from tests.support.pipelines.trial_spark import a_pipeline

pytestmark = pytest.mark.integration

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "pipelines.md").read_text()
EXAMPLES = [
    example
    for page in (
        PAGE,
        *((DOCS / f"{it}.md").read_text() for it in ("tables", "database", "archive")),
    )
    for example in re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
]


@pytest.mark.parametrize("text", EXAMPLES, ids=lambda text: text.split()[1])
def test_the_examples_of_the_docs_do_what_their_tests_say(
    locked_spark: SparkSession, tmp_path: Path, text: str
) -> None:
    from deploy.cli.control.pipeline_files import read_document  # noqa: PLC0415

    file = tmp_path / "pipeline.yaml"
    file.write_text(text)
    pipeline = read_document(file).pipeline()
    assert pipeline.tests
    assert judge(locked_spark, pipeline) is None


def test_the_docs_list_the_functions_there_are() -> None:
    listed = re.search(r"^Functions: (.*?)\n\n", PAGE, re.MULTILINE | re.DOTALL)
    assert listed is not None
    assert set(re.findall(r"`(\w+)`", listed[1])) == FUNCTIONS.keys()


def test_what_the_machine_does_is_no_fault_of_the_document(
    locked_spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise PySparkException("Job aborted: java.io.IOException: No space left on device")

    monkeypatch.setattr(judge_module, "came_of", fail)
    with pytest.raises(NotTriedError, match="No space left"):
        judge(locked_spark, a_pipeline())


TOLD: list[tuple[dict[str, Any], str, str]] = [
    (
        {"steps": [{"where": "prise > 1"}]},
        "/steps/0/where",
        "no column 'prise' here; there are: id, type",
    ),
    (
        {"steps": [{"select": {"a": "id"}}, {"where": "id = 'x'"}]},
        "/steps/1/where",
        "there are: a, hifi",
    ),
    ({"steps": [{"where": "price"}]}, "/steps/0/where", "it is double, but must be true or false"),
    ({"steps": [{"where": "price >"}]}, "/steps/0/where", "Syntax error"),
    ({"steps": [{"where": "who.nome = 'x'"}]}, "/steps/0/where", "No such struct field `nome`"),
    ({"steps": [{"where": "year(tags) = 1"}]}, "/steps/0/where", "requires the"),
    ({"steps": [{"explode": {"x": "id"}}]}, "/steps/0/explode/x", "it is string, not a list"),
    ({"steps": [{"key": "who"}]}, "/steps/0/key", "but a key is a single value"),
    ({"steps": [{"select": {"x": "NULL"}}]}, "/steps/0/select/x", "CAST it"),
    (
        {"steps": [{"select": {"x": "at - at"}}]},
        "/steps/0/select/x",
        "interval day to second: CAST",
    ),
    ({"steps": [{"where": "id RLIKE '.*a'"}]}, "/steps/0/where", "left(line, 1000) RLIKE"),
    (
        {"steps": [{"enrich": {"table": "t", "key": "who", "as": "c", "schema": "a INT"}}]},
        "/steps/0/enrich/key",
        "but a key is a single value",
    ),
    (
        {"steps": [{"enrich": {"table": "t", "key": "id", "as": "c", "schema": "a"}}]},
        "/steps/0/enrich/schema",
        "it cannot be read",
    ),
    (
        {
            "steps": [
                {"enrich": {"table": "t", "key": "id", "as": "c", "schema": "a INT"}},
                {"select": {"x": "c.b"}},
            ]
        },
        "/steps/1/select/x",
        "No such struct field `b`",
    ),
    (
        {"to": [{"database": {"url": "sqlite:x", "table": "t", "key": ["nome"]}}]},
        "/to/0/database/key/0",
        "there is no column 'nome' among the written columns: id, type",
    ),
    ({"to": [{"stream": "a", "when": "id"}]}, "/to/0/when", "it is string, but must be"),
    ({"schema": "id STRNG"}, "/schema", "it cannot be read"),
    ({"schema": "id"}, "/schema", "it cannot be read"),
    ({"schema": "id STRING NOT NULL"}, "/schema", "NOT NULL is not enforced"),
    ({"schema": "id STRING DEFAULT 'x'"}, "/schema", "it cannot be read"),
    ({"schema": "id STRING COLLATE UNICODE"}, "/schema", "id"),
    ({"schema": "id STRING, id INT"}, "/schema", "two members have the same name"),
    ({"schema": "hifi STRING"}, "/schema", "hifi is the column with Hifi's"),
    ({"schema": "`hifi:fate` STRING"}, "/schema", "hifi is the column with Hifi's"),
    ({"schema": "m MAP<INT, STRING>"}, "/schema", "the keys of a map are STRING"),
    ({"schema": "i INTERVAL"}, "/schema", "a member cannot have the type"),
    ({"schema": "v VARIANT"}, "/schema", "a member cannot have the type"),
    ({"schema": "a " + "ARRAY<" * 20 + "INT" + ">" * 20}, "/schema", "nested deeper than"),
    ({"schema": ", ".join(f"c{nth} INT" for nth in range(501))}, "/schema", "at most 500 are"),
    (
        {"steps": [{"select": {f"c{nth}": "id" for nth in range(40)}}]},
        "/steps/0/select",
        "all members together: it may make 40 times",
    ),
]


@pytest.mark.parametrize(("changed", "pointer", "said"), TOLD)
def test_what_is_wrong_is_told_where_it_is(
    locked_spark: SparkSession, changed: dict[str, Any], pointer: str, said: str
) -> None:
    found = judge(locked_spark, a_pipeline(**changed))
    assert found is not None
    assert found.pointer == pointer
    assert said in found.why
    assert "SQLSTATE" not in found.why


def test_what_comes_otherwise_than_a_test_expects_is_shown_side_by_side(
    locked_spark: SparkSession,
) -> None:
    given = [{"id": "a", "n": 1}, {"id": "b", "n": -1}, {"id": 5, "n": "x"}]
    tests = [
        {"given": [{"id": "a", "n": 1, "price": None}], "expect": [{"id": "a", "n": 1.0}]},
        {"given": given, "expect": [{"id": "a", "n": 2}], "dead": []},
    ]
    steps: list[dict[str, Any]] = [{"where": "n > 0"}, {"select": {"id": "id", "n": "n"}}]
    found = judge(locked_spark, a_pipeline(*steps, tests=tests))
    assert found == Refusal(
        "results are not as expected:\n"
        "to sales, event 1:\n"
        '  - expected {"id": "a", "n": 2}\n'
        '  + got      {"id": "a", "n": 1}\n'
        "in dead letters, event 1:\n"
        "  - expected nothing\n"
        '  + got      {"id": 5, "n": "x"}\n'
        "given 2 was filtered\n"
        "given 3 was dead: not_readable",
        "/tests/1",
    )


def test_a_name_may_be_any_that_json_has(locked_spark: SparkSession) -> None:
    schema = "`user-id` STRING, `a.b` INT, `say ``hi``` STRING, `x, y` INT, `Id` INT, id INT"
    steps: list[dict[str, Any]] = [
        {"where": "`user-id` = 'u' AND `a.b` = 1 AND `say ``hi``` = 'h' AND Id = 1 AND id = 2"}
    ]
    event = {"user-id": "u", "a.b": 1, "say `hi`": "h", "x, y": 2, "Id": 1, "id": 2}
    kept = a_pipeline(*steps, schema=schema, tests=[{"given": [event], "expect": [event]}])
    assert judge(locked_spark, kept) is None
    # An explode writes the event out again, with all its members under their own names.
    exploded: list[dict[str, Any]] = [*steps, {"explode": {"one": "array(1)"}}]
    tests = [{"given": [event], "expect": [event | {"one": 1}]}]
    assert judge(locked_spark, a_pipeline(*exploded, schema=schema, tests=tests)) is None


def test_numbers_are_compared_as_numbers(locked_spark: SparkSession) -> None:
    tests = [{"given": [{"price": 10}], "expect": [{"gross": 11.9}]}]
    pipeline = a_pipeline({"select": {"gross": "price * 1.19"}}, tests=tests)
    assert judge(locked_spark, pipeline) is None


def test_large_numbers_stay_what_they_are(locked_spark: SparkSession) -> None:
    big = 2**63 - 1
    tests = [{"given": [{"n": big}], "expect": [{"n": big}]}]
    pipeline = Pipeline.of(a_pipeline({"select": {"n": "n"}}, tests=tests).to_fields())
    assert judge(locked_spark, pipeline) is None
