"""Decimals are exact, and no text takes hours to become one."""

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pipelines.judging.judge import judge
from pipelines.parts.bounded import bounded
from pipelines.parts.numbers import expression
from pipelines.plan import RECORDS, planned
from shared.event.envelope import event_headers
from tests.support.pipelines.trial_spark import a_pipeline

pytestmark = pytest.mark.integration

OURS = event_headers(event_id="e", event_time_ms=1, accepted_at_ms=2)
# Java would write out a hundred million digits of each.
HOURS = ["1e100000000", "1e-100000000", "-1E+99999999", "0.1e999999999", "9" * 900_000]


def come(spark: SparkSession, values: list[str], **document: Any) -> list[tuple[str, Any]]:
    """Return the outcome of each event, and its output."""
    steps = document.pop("steps", [{"select": {"x": "x"}}])
    pipeline = a_pipeline(*steps, **document)
    records = [
        ("hifi.stream.orders", 0, nth, None, None, text.encode(), list(OURS))
        for nth, text in enumerate(values)
    ]
    with bounded(spark.sparkContext, "test", 60):
        rows = planned(pipeline, spark.createDataFrame(records, RECORDS)).collect()
    return [
        (row["outcome"], _written(row["value"]) if row["outcome"] == "passed" else None)
        for row in sorted(rows, key=lambda row: row["offset"])
    ]


def _written(value: bytes) -> Any:
    return json.loads(value, parse_float=str).get("x")


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("DECIMAL(38, 20)", "123.45678901234567890123", "123.45678901234567890123"),
        ("DECIMAL(38, 0)", "9" * 38, int("9" * 38)),
        ("DECIMAL(10, 2)", "-1.005e2", "-100.50"),
        ("DECIMAL(10, 2)", '"1.5"', "1.50"),
        ("DECIMAL(10, 2)", "null", None),
        ("ARRAY<DECIMAL(5, 1)>", "[1, null, 2.25]", ["1.0", None, "2.3"]),
        ("MAP<STRING, DECIMAL(5, 1)>", '{"a": 1.1}', {"a": "1.1"}),
        ("STRUCT<a: DECIMAL(5, 1), b: STRING>", '{"a": 1.1, "b": "c"}', {"a": "1.1", "b": "c"}),
        ("ARRAY<STRUCT<a: DECIMAL(5, 1)>>", '[{"a": 1}, {}]', [{"a": "1.0"}, {}]),
        ("STRUCT<a: DECIMAL(5, 1)>", "null", None),
    ],
)  # fmt: skip
def test_decimals_of_events_are_exact_wherever_they_stand(
    locked_spark: SparkSession, kind: str, given: str, expected: Any
) -> None:
    (found,) = come(locked_spark, [f'{{"x": {given}}}'], schema=f"x {kind}")
    assert found == ("passed", expected)


@pytest.mark.parametrize(
    "number",
    [
        *HOURS,
        *(f'"{number}"' for number in HOURS),
        # The same, with characters written as their numbers.
        *(r'"1\u0065100000000"', r'"\u0031e-100000000"'),
        # These numbers do not fit.
        "1e300",
        *('"many"', "true", '{"no": "number"}'),
    ],
)
@pytest.mark.parametrize(
    ("kind", "within"),
    [("DECIMAL(38, 0)", "{}"), ("ARRAY<STRUCT<a: DECIMAL(38, 0)>>", '[{{"a": {}}}]')],
)
def test_what_is_no_decimal_or_takes_hours_to_be_one_cannot_be_read(
    locked_spark: SparkSession, kind: str, within: str, number: str
) -> None:
    bad, good = within.format(number), within.format(1)
    texts = [f'{{"x": {bad}}}', rf'{{"a": "\"", "x": {bad}, "b": "\\"}}', f'{{"x": {good}}}']
    found = come(locked_spark, texts, schema=f"a STRING, x {kind}, b STRING")
    assert [outcome for outcome, _ in found] == ["dead", "dead", "passed"]


@pytest.mark.parametrize("number", ["1e-100000000", "1e100000000"])
@pytest.mark.parametrize(
    "hidden",
    [
        # The number would be inside a text if single quotes could begin one, too.
        """{'"': 1, "x": NUMBER, '"': 2}""",
        """{'a': '"', "x": NUMBER, 'b': '"'}""",
        r"""{"a": "\\\"", "x": NUMBER, "b": "\\"}""",
    ],
)
def test_no_text_hides_a_number(locked_spark: SparkSession, hidden: str, number: str) -> None:
    event = hidden.replace("NUMBER", number)
    (found,) = come(locked_spark, [event], schema="a STRING, x DECIMAL(38, 0), b STRING")
    assert found == ("dead", None)


@pytest.mark.parametrize("text", ["7e12345", r"\"1e100000000\"", "9" * 200, "ä\\u00e4 1e99999"])
def test_what_stands_in_other_members_is_nobodys_number(
    locked_spark: SparkSession, text: str
) -> None:
    event = f'{{"id": "{text}", "x": 12345678901234567890.12, "1e10000": "{text}"}}'
    (found,) = come(locked_spark, [event], schema="id STRING, x DECIMAL(30, 2)")
    assert found == ("passed", "12345678901234567890.12")


@pytest.mark.parametrize(
    "made",
    [
        "CAST(id AS DECIMAL(10, 2))",
        "decimal(id)",
        "CAST(id AS NUMERIC(10, 2))",
        "element_at(transform(array(id), t -> CAST(t AS DEC(10, 2))), 1)",
        "CASE WHEN ok THEN 1 ELSE CAST(concat(id, '') AS DECIMAL(10, 2)) END",
    ],
)
def test_a_text_that_takes_hours_is_null_in_an_expression(
    locked_spark: SparkSession, made: str
) -> None:
    steps = [{"select": {"x": made}}]
    texts = [json.dumps({"id": text}) for text in [*HOURS, "17"]]
    found = come(locked_spark, texts, steps=steps)
    assert [outcome for outcome, _ in found] == ["passed"] * len(texts)
    assert [value for _, value in found[:-1]] == [None] * len(HOURS)
    assert float(found[-1][1]) == 17


@pytest.mark.parametrize(
    "made",
    [
        "CAST(price AS DECIMAL(10, 2))",
        "CAST(n AS DECIMAL(5, 1)) + 1",
        "CAST(at AS DECIMAL(20, 3))",
        "CAST(ok AS DECIMAL(3, 1))",
        "CAST(id AS DECIMAL(10, 2)) * 2",
        "CAST(CAST(id AS DECIMAL(10, 2)) AS STRING)",
        "CAST(who.name AS DECIMAL(5, 1))",
        "transform(tags, t -> CAST(t AS DECIMAL(5, 1)))",
        "filter(items, it -> CAST(it.sku AS DECIMAL(5, 1)) > 1)",
        "n > 1 AND decided",
    ],
)
def test_all_else_comes_to_what_it_did(locked_spark: SparkSession, made: str) -> None:
    given = locked_spark.sql(
        "VALUES (1.255D, 7L, TIMESTAMP'2026-01-02 03:04:05.678', true, '12.345', struct('1.26'),"
        " array('1', '2.26', 'x', NULL), array(struct('2', 1), struct('0.5', 2)), true),"
        " (NULL, NULL, NULL, NULL, ' 1', NULL, NULL, NULL, false),"
        " (-1e300D, -7L, TIMESTAMP'1969-01-02 03:04:05', false, '1e3', struct(''), array(),"
        " array(), NULL) AS rows(price, n, at, ok, id, who, tags, items, decided)"
    )
    given = given.withColumns(
        {"who": F.expr("named_struct('name', who.col1)"),
         "items": F.expr("transform(items, it -> named_struct('sku', it.col1, 'n', it.col2))")}
    )  # fmt: skip
    ours = given.select(expression(made).alias("x")).collect()
    assert ours == given.select(F.expr(made).alias("x")).collect()


def test_so_often_no_decimal_is_made_of_what_is_made_of_one(locked_spark: SparkSession) -> None:
    def document(count: int) -> Any:
        text = "id"
        for _ in range(count):
            text = f"CAST(CAST({text} AS DECIMAL(10, 2)) AS STRING)"
        return a_pipeline({"select": {"x": text}})

    assert judge(locked_spark, document(3)) is None
    refused = judge(locked_spark, document(4))
    assert refused is not None
    assert (refused.pointer, "DECIMAL" in refused.why) == ("/steps/0/select/x", True)
    made = "from_json(id, 'a DECIMAL(38, 0)').a"
    refused = judge(locked_spark, a_pipeline({"select": {"x": made}}))
    assert refused is not None
    assert "from_json cannot make a DECIMAL" in refused.why
