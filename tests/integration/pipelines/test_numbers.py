"""A number that does not fit is null, and never another one."""

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.judging.judge import judge
from pipelines.plan import RECORDS, planned
from tests.integration.pipelines.test_decimals import OURS, come
from tests.support.pipelines.trial_spark import a_pipeline

pytestmark = pytest.mark.integration

MOST, LEAST = 2**63 - 1, -(2**63)
SCHEMA = (
    "n BIGINT, i INT, d DOUBLE, t STRING, b BOOLEAN, m DECIMAL(38, 0), s STRUCT<n: BIGINT>,"
    " l ARRAY<BIGINT>, at TIMESTAMP"
)


CASES: list[tuple[str, dict[str, Any], Any]] = [
    *(("n + 1", {"n": MOST}, None), ("n + 1", {"n": MOST - 1}, MOST)),
    *(("n - 1", {"n": LEAST}, None), ("n - 1", {"n": LEAST + 1}, LEAST)),
    *(("n * 2", {"n": 2**62}, None), ("n * 2", {"n": -(2**62)}, LEAST)),
    *(("i + i", {"i": 2**30}, None), ("i + i", {"i": 2**30 - 1}, 2**31 - 2)),
    *(("s.n + 1", {"s": {"n": MOST}}, None), ("s.n + 1", {"s": {"n": 1}}, 2)),
    ("transform(l, it -> it + 1)", {"l": [1, MOST, None]}, [2, None, None]),
    ("filter(l, it -> it * 2 > 0)", {"l": [1, MOST]}, [1]),
    *(("int(n)", {"n": 3_000_000_000}, None), ("int(n)", {"n": -(2**31)}, -(2**31))),
    *(("tinyint(300)", {}, None), ("tinyint(-128)", {}, -128)),
    *(("CAST(n AS SMALLINT)", {"n": 32_768}, None), ("n::smallint", {"n": -32_768}, -32_768)),
    *(("CAST(n AS INTEGER)", {"n": MOST}, None), ("n::tinyint", {"n": 128}, None)),
    *(("bigint(n)", {"n": MOST}, MOST), ("bigint(m)", {"m": MOST}, MOST)),
    *(("bigint(m)", {"m": MOST + 1}, None), ("int(m)", {"m": 2**40}, None)),
    *(("bigint(d)", {"d": 1e300}, None), ("bigint(d)", {"d": -1.9}, -1)),
    *(("int(d)", {"d": 2_147_483_647.5}, 2**31 - 1), ("int(d)", {"d": 2**31}, None)),
    *(("int(t)", {"t": "1.7"}, 1), ("int(t)", {"t": " 12 "}, 12)),
    *(("int(t)", {"t": "3000000000"}, None), ("int(t)", {"t": "x"}, None)),
    *(("int(b)", {"b": True}, 1), ("int(NULL)", {}, None)),
    ("bigint(at)", {"at": "2026-11-29T00:00:00Z"}, 1_795_910_400),
    *(("ceil(d)", {"d": 1e30}, None), ("ceil(d)", {"d": 1.2}, 2)),
    *(("floor(d)", {"d": -1e30}, None), ("floor(m)", {"m": 10**30}, 10**30)),
    *(("-n", {"n": LEAST}, None), ("-n", {"n": MOST}, -MOST), ("-i", {"i": -(2**31)}, None)),
    *(("negative(n)", {"n": LEAST}, None), ("negative(n)", {"n": 2}, -2)),
    *(("abs(n)", {"n": LEAST}, None), ("abs(n)", {"n": -3}, 3), ("abs(i)", {"i": -(2**31)}, None)),
    *(("n div -1", {"n": LEAST}, None), ("n div -1", {"n": 7}, -7)),
    *(("round(i, -1)", {"i": 2**31 - 1}, None), ("round(i, -1)", {"i": 14}, 10)),
    *(("bround(i, -1)", {"i": 2**31 - 1}, None), ("bround(i, -1)", {"i": 25}, 20)),
    *(("year(timestamp(n))", {"n": MOST}, None), ("year(timestamp(n))", {"n": LEAST}, None)),
    *(
        ("year(timestamp(d))", {"d": 1e300}, None),
        ("year(CAST(n AS TIMESTAMP))", {"n": MOST}, None),
    ),
    ("year(timestamp(n))", {"n": 1_795_910_400}, 2026),
    ("transform(l, it -> abs(it))", {"l": [-1, LEAST]}, [1, None]),
    ("CASE WHEN n + 1 > n THEN 'more' ELSE 'less' END", {"n": MOST}, "less"),
    ("coalesce(n + 1, 0)", {"n": MOST}, 0),
    ("int(int(int(d)))", {"d": 7.5}, 7),
]
OTHERS: list[tuple[str, dict[str, Any], Any]] = [
    ("d + 1", {"d": 0.5}, "1.5"),
    ("t || '+' || t", {"t": "a-b"}, "a-b+a-b"),
    (
        "date_format(at - INTERVAL 1 DAY, 'yyyy-MM-dd')",
        {"at": "2026-11-29T12:00:00Z"},
        "2026-11-28",
    ),
    ("year(timestamp(t))", {"t": "2026-11-29T00:00:00Z"}, 2026),
    ("year(CAST(at AS TIMESTAMP))", {"at": "2026-11-29T00:00:00Z"}, 2026),
    ("year(timestamp(to_date(t)))", {"t": "2026-11-29"}, 2026),
    ("m * m", {"m": 10**20}, None),
    ("-d", {"d": 0.5}, "-0.5"),
    ("abs(d)", {"d": -0.5}, "0.5"),
    ("abs(m)", {"m": -7}, 7),
    ("round(d, 1)", {"d": 0.25}, "0.3"),
    ("-n", {"n": 5}, -5),
    ("1 / 0", {}, None),
    ("n div 0", {"n": 1}, None),
    ("n div -2", {"n": LEAST}, 2**62),
    ("n % 7", {"n": 9}, 2),
    ("concat_ws('*', t, 'int')", {"t": "a"}, "a*int"),
]


def test_what_does_not_fit_is_null_and_all_else_comes_to_what_it_did(
    locked_spark: SparkSession,
) -> None:
    cases = CASES + OTHERS
    columns = {f"x{nth}": text for nth, (text, *_) in enumerate(cases)}
    pipeline = a_pipeline({"select": columns}, schema=SCHEMA)
    records = [
        ("hifi.stream.orders", 0, nth, None, None, json.dumps(event).encode(), list(OURS))
        for nth, (_, event, _) in enumerate(cases)
    ]
    rows = planned(pipeline, locked_spark.createDataFrame(records, RECORDS)).collect()
    assert {row["outcome"] for row in rows} == {"passed"}
    told = {row["offset"]: json.loads(row["value"], parse_float=str) for row in rows}
    found = [(text, told[nth].get(f"x{nth}")) for nth, (text, *_) in enumerate(cases)]
    assert found == [(text, expected) for text, _, expected in cases]


def test_where_and_keys_read_numbers_in_the_same_way(locked_spark: SparkSession) -> None:
    steps = [
        {"where": "n + 1 > 0 OR n + 1 IS NULL"},
        {"select": {"x": "n"}},
    ]
    found = come(locked_spark, [json.dumps({"n": MOST})], schema=SCHEMA, steps=steps)
    assert found == [("passed", MOST)]


def test_numbers_made_of_numbers_have_an_end(locked_spark: SparkSession) -> None:
    text = "int(" * 4 + "n" + ")" * 4
    refused = judge(locked_spark, a_pipeline({"select": {"x": text}}, schema=SCHEMA))
    assert refused is not None
    assert "more than 3 times" in refused[0]
