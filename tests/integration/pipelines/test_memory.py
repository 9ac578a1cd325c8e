"""No event, from any sender, becomes more objects than there is memory for."""

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import ArrayType, MapType

from pipelines.judging.expressions import Scope, judged
from pipelines.judging.judge import judge, typed
from pipelines.judging.objects import of_event
from pipelines.judging.patterns import PatternBudget
from pipelines.judging.trees import node_of
from pipelines.members import members_of
from pipelines.parts.heap import brackets_max
from pipelines.plan import RECORDS, opened, planned
from pipelines.tables.look_ups import GivenRows, Tables
from shared.config.pipeline import Pipeline
from shared.event.envelope import EVENT_BYTES_MAX, event_headers
from tests.integration.pipelines.test_functions import calls
from tests.support.pipelines.trial_spark import a_pipeline

# The session that these tests share has a heap of 512 MB, and ends once that is full.
pytestmark = pytest.mark.integration

OURS = event_headers(event_id="e", event_time_ms=1, accepted_at_ms=2)
INTS = ", ".join(f"c{nth}: INT" for nth in range(490))
WIDE = f"id STRING, a ARRAY<STRUCT<{INTS}>>"
# An expression may have 4 KiB.
FEWER = ", ".join(f"c{nth}: INT" for nth in range(250))
MEGABYTE = 1_000_000


def come(
    spark: SparkSession, pipeline: Pipeline, *texts: str, tables: Tables | None = None
) -> list[tuple[str, str | None]]:
    """Return the outcome of each event, and why."""
    records = [
        ("hifi.stream.orders", 0, nth, None, None, text.encode(), list(OURS))
        for nth, text in enumerate(texts)
    ]
    more = {} if tables is None else {"tables": tables}
    rows = planned(pipeline, spark.createDataFrame(records, RECORDS), **more)  # type: ignore[arg-type]
    rows = rows.select("offset", "outcome", "reason").orderBy("offset")
    return [(row["outcome"], row["reason"]) for row in rows.collect()]


def empty(count: int, *, more: str = "") -> str:
    return '{"a":[' + ",".join(["{}"] * count) + f"]{more}}}"


def most_of(schema: str) -> int:
    """Return how many brackets an event may have."""
    return int(brackets_max(members_of(schema)))


PASSED, DEAD = ("passed", None), ("dead", "not_readable")


@pytest.mark.parametrize(
    "schema",
    [
        WIDE,
        f"id STRING, a ARRAY<STRUCT<x: STRUCT<{INTS}>>>",
        "id STRING, a ARRAY<MAP<STRING, STRING>>",
        "id STRING, a ARRAY<STRUCT<x: INT, y: INT, z: INT, u: INT, v: INT>>",
    ],
)
def test_an_event_with_too_many_objects_for_its_schema_cannot_be_read(
    locked_spark: SparkSession, schema: str
) -> None:
    # The event itself has one pair of brackets, too.
    most = most_of(schema) - 1
    pipeline = a_pipeline({"where": "size(a) > 0"}, schema=schema)
    texts = [empty(345_000), empty(most + 1), empty(most), empty(1)]
    assert come(locked_spark, pipeline, *texts) == [DEAD, DEAD, PASSED, PASSED]


def test_so_it_is_with_maps(locked_spark: SparkSession) -> None:
    schema = f"a MAP<STRING, STRUCT<{INTS}>>"
    pipeline = a_pipeline({"where": "size(a) > 0"}, schema=schema)
    texts = [
        '{"a":{' + ",".join(f'"{nth}":{{}}' for nth in range(count)) + "}}"
        for count in (60_000, most_of(schema) - 1, most_of(schema) - 2)
    ]
    assert come(locked_spark, pipeline, *texts) == [DEAD, DEAD, PASSED]


def test_brackets_in_texts_are_no_objects_and_no_text_hides_any(locked_spark: SparkSession) -> None:
    most = most_of(WIDE)
    pipeline = a_pipeline(schema=WIDE)
    many = empty(most + 1)[1:-1]
    text = json.dumps({"id": '{"' * 100_000, "a": [{}]})
    hidden = [
        f"""{{'"':1,{many},'"':1}}""",
        f"""{{"id":"'",{many},"b":"'"}}""",
        rf"""{{"id":"\"",{many},"b":"\\\""}}""",
        f"""{{"id":"\\",{many},"b":""}}""",
    ]
    assert come(locked_spark, pipeline, text, *hidden) == [PASSED, *[DEAD] * 4]


def test_members_that_stand_once_may_be_any_number(locked_spark: SparkSession) -> None:
    schema = INTS.replace(":", "") + ", items ARRAY<STRUCT<a: INT>>"
    event = '{"items":[' + ",".join(["{}"] * 330_000) + "]}"
    whole = "[" + ",".join(["{}"] * 300_000) + "]"
    pipeline = a_pipeline({"where": "size(items) > 0"}, schema=schema)
    assert come(locked_spark, pipeline, event, whole) == [PASSED, DEAD]


def test_a_row_with_too_many_objects_is_as_good_as_none(locked_spark: SparkSession) -> None:
    asked = {"table": "t", "key": "id", "as": "c", "schema": WIDE}
    pipeline = a_pipeline({"enrich": asked}, {"where": "c.a IS NULL"}, schema="id STRING")
    rows = GivenRows({0: {"large": empty(300_000), "small": empty(2)}})
    found = come(
        locked_spark,
        pipeline,
        '{"id":"large"}',
        '{"id":"small"}',
        tables=Tables(written={}, look_ups={"t": rows}),
    )
    assert found == [PASSED, ("filtered", None)]


# Each of these takes more memory in a step than there is.
TOO_MANY: dict[str, dict[str, Any]] = {
    "three lists": {"select": {name: f"split(id, '{name}')" for name in "abc"}},
    "a list of its own": {"select": {"x": f"from_json(id, 'ARRAY<STRUCT<{FEWER}>>')"}},
    "in a list": {"explode": {"x": f"from_json(id, 'a ARRAY<STRUCT<{FEWER}>>').a"}},
    "in vain": {"where": f"size(from_json(id, 'ARRAY<STRUCT<{FEWER}>>')) = 1"},
    "in a condition": {
        "where": "exists(split(id, ','), x -> array(x, x) = array(upper(x), lower(x)))"
    },
    "lists of lists": {"select": {"x": "transform(split(id, ';'), t -> array(split(t, ',')))"}},
    "a window's": {
        "window": {
            "every": "1 hour",
            "compute": {f"m{nth}": f"first(split(id, '{nth}'))" for nth in range(3)},
        }
    },
}  # fmt: skip


@pytest.mark.parametrize("step", TOO_MANY.values(), ids=TOO_MANY.keys())
def test_a_step_that_makes_too_many_objects_is_refused_and_told_what_to_write(
    locked_spark: SparkSession, step: dict[str, Any]
) -> None:
    found = judge(locked_spark, a_pipeline(step))
    assert found is not None
    assert "bytes of memory for each byte of an event" in found.why
    assert "split(text, ',', 1000)" in found.why
    assert "left(text, 100000)" in found.why


WHOLE = {"a": "items", "b": "filter(items, i -> i.n > 0)", "c": "filter(items, i -> i.n < 1)"}
ORDINARY: dict[str, dict[str, Any]] = {
    "a line's parts": {"select": {f"m{nth}": f"split(id, ' ')[{nth}]" for nth in range(20)}},
    "by their number": {
        "select": {f"m{nth}": f"element_at(split(id, ','), {nth + 1})" for nth in range(20)}
    },
    "lists of lists": {"select": {"x": "transform(split(id, ';'), t -> split(t, ','))"}},
    "two lists": {"select": {"x": "split(id, ',')", "y": "split(id, ' ')"}},
    "as it is advised": {
        "select": {
            "x": "transform(split(left(id, 100000), '&'), x -> struct(split_part(x, '=', 1),"
            " split_part(x, '=', 2)))",
            "y": "transform(split(id, '&', 1000), x -> struct(split_part(x, '=', 1), upper(x)))",
            "z": f"from_json(left(id, 10000), 'ARRAY<STRUCT<{FEWER}>>')",
        }
    },
    "rebuilt lists": {
        "select": {
            "x": "transform(items, i -> named_struct('sku', upper(trim(i.sku)), 'n', i.n * 2,"
            " 'more', i.n > 1, 'cents', CAST(i.n AS DECIMAL(10, 2))))"
        }
    },
    "lists several times": {
        "select": {**WHOLE, "d": "size(items)", "e": "items[0].sku", "f": "items.sku"}
    },
    "members of parsed JSON": {
        "select": {f"m{n}": "from_json(id, 'a ARRAY<STRUCT<b: STRING>>').a[0].b" for n in range(9)}
    },
    "members of a struct": {"select": {f"m{nth}": "concat(who.name, 'x')" for nth in range(20)}},
}  # fmt: skip


@pytest.mark.parametrize("step", ORDINARY.values(), ids=ORDINARY.keys())
def test_ordinary_documents_stay_as_they_are(
    locked_spark: SparkSession, step: dict[str, Any]
) -> None:
    assert typed(locked_spark, a_pipeline(step))


def test_an_element_that_was_made_is_one_by_itself(locked_spark: SparkSession) -> None:
    made = "named_struct('sku', i.sku, 'twice', i.n * 2, 'tags', array(i.sku))"
    steps: list[dict[str, Any]] = [
        {"explode": {"item": f"transform(items, i -> {made})"}},
        {"select": {"x": "concat(item.sku, item.twice)", "y": "item.sku", "z": "item.twice"}},
    ]
    assert typed(locked_spark, a_pipeline(*steps))


@pytest.mark.parametrize(
    ("schema", "step", "event"),
    [
        ("a STRING", {"select": {"x": "split(a, ',')", "y": "split(a, '')"}}, "," * MEGABYTE),
        ("a STRING", {"select": {"x": "split(a, 'x')", "y": "split(a, '')"}}, "xy" * 500_000),
        (WIDE, {"select": {"x": "a", "y": "filter(a, i -> i.c0 IS NULL)", "z": "a"}}, None),
    ],
)
def test_the_most_that_is_allowed_leaves_room(
    locked_spark: SparkSession, schema: str, step: dict[str, Any], event: str | None
) -> None:
    pipeline = a_pipeline(step, schema=schema)
    typed(locked_spark, pipeline)
    text = empty(most_of(schema) - 1) if event is None else json.dumps({"a": event})
    assert len(text) <= EVENT_BYTES_MAX
    ((outcome, reason),) = come(locked_spark, pipeline, text)
    assert (outcome, reason) in {("passed", None), ("dead", "too_large")}


def test_what_a_list_has_in_it_is_known_of_each_function(locked_spark: SparkSession) -> None:
    """Otherwise the next function would create objects for each of its elements unseen."""
    pipeline = a_pipeline()
    rows = opened(pipeline, locked_spark.createDataFrame([], RECORDS))
    scope = Scope(of_event(rows.schema, members_of(pipeline.schema)))
    parser: Any = locked_spark._jsparkSession.sessionState().sqlParser()
    kinds = rows.select(*(F.expr(call).alias(call) for call in calls())).schema
    for call in calls():
        growth = judged(node_of(parser.parseExpression(call)), call, scope, PatternBudget())
        has_elements = any(size.elements for size in growth.values())
        assert has_elements == isinstance(kinds[call].dataType, ArrayType | MapType), call
