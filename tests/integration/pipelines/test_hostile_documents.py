"""Malicious documents: each refusal names the place, and a document would find nothing to call."""

from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines.judging.judge import Refusal, judge
from pipelines.plan import RECORDS, planned
from shared.config.model import ConfigError
from tests.support.pipelines.trial_spark import a_pipeline

pytestmark = pytest.mark.integration

# These reach out of the sandbox: the check of the tree refuses them, and the session lacks them.
REACHES_OUT = [
    # Java, by any name.
    "reflect('java.lang.System', 'exit', 1)",
    "java_method('java.lang.Runtime', 'getRuntime')",
    "try_reflect('java.lang.System', 'getenv', 'PATH')",
    "REFLECT('java.util.UUID', 'randomUUID')",
    "`reflect`('java.util.UUID', 'randomUUID')",
    "reflect/* a comment */('java.util.UUID', 'randomUUID')",
    "reflect -- a comment\n('java.util.UUID', 'randomUUID')",
    "system.builtin.reflect('java.util.UUID', 'randomUUID')",
    "builtin.java_method('java.util.UUID', 'randomUUID')",
    "`system`.`builtin`.`reflect`('java.util.UUID', 'randomUUID')",
    "IDENTIFIER('reflect')('java.util.UUID', 'randomUUID')",
    "upper(reflect('java.util.UUID', 'randomUUID'))",
    "transform(tags, t -> reflect('java.util.UUID', 'randomUUID'))",
    "CASE WHEN ok THEN reflect('java.util.UUID', 'randomUUID') END",
    # Files and tables.
    "(SELECT count(*) FROM text.`/etc/passwd`)",
    "(SELECT first(value) FROM text.`/etc/passwd`)",
    "EXISTS (SELECT * FROM csv.`/etc/passwd`)",
    "id IN (SELECT value FROM text.`/etc/passwd`)",
    "(SELECT count(*) FROM json.`/`)",
    "(SELECT count(*) FROM binaryFile.`/etc`)",
    "(TABLE text.`/etc/passwd`)",
    "(SELECT count(*) FROM read_files('/etc/passwd'))",
    "(SELECT max(id) FROM range(1000000000000))",
    "(SELECT TRANSFORM(1) USING 'id' AS (a))",
    "(SELECT count(*) FROM read_kafka('x'))",
    "input_file_name()",
    "input_file_block_start()",
    "xpath_string(id, '/a')",
    "xpath(id, '//*')",
    "from_avro(id, '{}')",
    "schema_of_csv('a')",
    "from_xml(id, 'a STRING')",
    # The user and the place.
    "current_user()",
    "current_database()",
    "current_catalog()",
    "version()",
    "spark_partition_id()",
    "monotonically_increasing_id()",
    # Secrets, and keys that the document makes up.
    "aes_encrypt(id, '0000111122223333')",
    "aes_decrypt(id, '0000111122223333')",
    # Another answer each time.
    "rand()",
    "randn()",
    "random()",
    "uuid()",
    "shuffle(tags)",
    "randstr(10)",
    "uniform(0, 10)",
    "now()",
    "current_timestamp()",
    "current_date()",
    "localtimestamp()",
    # These would end the job that all events are in.
    "raise_error('no')",
    "assert_true(ok)",
    "make_interval(n)",
    # More output than input.
    "stack(1000000, id)",
    "inline(items)",
    "explode(tags)",
    "posexplode(tags)",
    "json_tuple(id, 'a')",
    "str_to_map(id)",
    "format_string('%1000000000d', n)",
    "printf('%1000000000d', n)",
    "format_number(price, 1000000000)",
    "levenshtein(id, type)",
    "aggregate(tags, '', (a, t) -> a || a || t)",
    "reduce(tags, '', (a, t) -> a || a || t)",
    "zip_with(tags, tags, (a, b) -> a || b)",
    "array_sort(tags, (a, b) -> 1)",
    "array_distinct(items)",
    "array_union(items, items)",
    # Over all events.
    "count(id)",
    "sum(n)",
    "percentile(n, 0.5)",
    "collect_set(id)",
    "row_number() OVER (ORDER BY id)",
    "window(at, '1 minute')",
    # Scripts of another kind.
    "session_user()",
    "bitmap_count(id)",
    "hll_sketch_estimate(id)",
    "parse_json(id)",
    "try_variant_get(id, '$', 'string')",
]
# The harm shows only in the expression: each function is harmless by itself.
TOO_MUCH = [
    "current_date",
    "unix_timestamp()",
    "current_timestamp",
    "current_user",
    "localtimestamp",
    "timestamp 'now' < at",
    "DATE 'today' = day",
    "timestamp/**/'yesterday' < at",
    r"timestamp 'n\u006fw' < at",
    "repeat(id, 1000000000)",
    "repeat(id, n)",
    "repeat(repeat(repeat(id, 1000), 1000), 1000)",
    # The result is small, but its input was not.
    "length(" + "hex(" * 40 + "id" + ")" * 40 + ") > 0",
    "size(flatten(array_repeat(array_repeat(id, 1000), 1000))) > 0",
    "length(repeat(id, 100)) = 5",
    # The same from literals, with any event.
    "repeat(repeat(repeat('x', 1000), 1000), 1000)",
    "length(repeat(repeat('x', 1000), 1000))",
    "repeat(space(1000), 1000)",
    "repeat(lpad('', 1000, 'x'), 1000)",
    "array_repeat(array_repeat(array_repeat(1, 1000), 1000), 1000)",
    "array_repeat(array_repeat(array_repeat(array(), 1000), 1000), 1000)",
    "flatten(array_repeat(sequence(1, 1000), 1000))",
    # Objects take memory even if no bytes of an event are in them.
    "transform(split(id, ''), c -> struct(c, length(c), ascii(c)))",
    "transform(split(id, ','), c -> array(split(c, ';'), split(c, '')))",
    "transform(items, i -> array(" + ", ".join(["hash(i)"] * 16) + "))",
    "arrays_zip(split(id, ''), split(id, 'a'))",
    "array_repeat(split(id, ','), 5)",
    "size(array(split(id, ''), split(id, ' '), split(id, 'x'))) > 0",
    "size(array_repeat(json_object_keys(id), 3)) > 0",
    "from_json(id, 'ARRAY<STRUCT<" + ", ".join(f"c{nth}: INT" for nth in range(100)) + ">>')",
    "from_json(id, 'a MAP<STRING, STRUCT<" + ", ".join(f"c{n}: INT" for n in range(100)) + ">>').a",
    "size(from_json(repeat(id, 10), 'ARRAY<ARRAY<STRING>>')) > 0",
    # A missing member is shown as null.
    "concat(CAST(items AS STRING), string(items), items::string)",
    "lpad(id, 1000000000, 'x')",
    "rpad(id, n, 'x')",
    "space(2000000000)",
    "array_repeat(id, 1000000000)",
    "sequence(1, 1000000000)",
    "sequence(1, n)",
    "transform(sequence(1, 1000), x -> sequence(1, 1000))",
    "transform(tags, t -> transform(tags, u -> t || u))",
    "exists(tags, t -> array_contains(tags, t))",
    "replace(id, 'a', '" + "x" * 250 + "')",
    "replace(id, type, id)",
    "concat_ws(id, tags)",
    "concat(" + ", ".join(["id"] * 33) + ")",
    "contains(id, type)",
    "instr(id, type) > 0",
    "id RLIKE '(a+)+$'",
    "id RLIKE type",
    "id RLIKE '" + "a?" * 30 + "a" * 30 + "'",
    "left(id, 1000) RLIKE '(a|aa)+$'",
    "left(id, 1000) RLIKE '(.*)(.*)(.*)(.*)x'",
    "left(id, 1000) RLIKE '(?=a)b'",
    "left(id, 1000) RLIKE '" + "a" * 600 + "'",
    "left(id, 1000) RLIKE '['",
    "left(id, 1024) RLIKE 'a*a*(aA|aB|aC|aD|aE)'",
    " OR ".join(["left(id, 1024) RLIKE '.*a.*'"] * 3),
    "regexp_replace(id, '(x+x+)+y', '')",
    "split(id, '(a*)*')",
    "id LIKE '%a%b%c%d%e%'",
    "id LIKE type",
    "date_format(at, id)",
    "date_format(at, 'QQQQQQ')",
    "to_timestamp(id, '" + "y" * 300 + "')",
    "element_at(tags, 0)",
    "element_at(tags, n)",
    "split_part(id, ',', 0)",
    "round(price, 1000000000)",
    "from_json(id, 'a INT DEFAULT 5')",
    "from_json(id, 'a INT', map('mode', 'FAILFAST'))",
    "get_json_object(id, type)",
    "CAST(id AS INTERVAL)",
    "CAST(id AS VARIANT)",
    "id COLLATE UNICODE_CI",
    "id COLLATE UTF8_LCASE = 'x'",
    "upper(DISTINCT id)",
    "upper(id) FILTER (WHERE ok)",
    "id AS other",
    "id:a.b",
    "*",
    "who.*",
    ":parameter",
    "?",
    "${spark.master}",
    "id; DROP TABLE x",
    "id) FROM x --",
    "SELECT 1",
    "id, type",
    "`hifi:value`",
    "`hifi:fate`",
    "_metadata.file_path",
    "\N{FULLWIDTH LATIN SMALL LETTER U}pper(id)",
    "upper\N{CYRILLIC SMALL LETTER A}(id)",
    "uppe\N{LATIN SMALL LETTER R WITH ACUTE}(id)",
    "X'" + "00" * 100 + "'",
    "(" * 2000 + "id" + ")" * 2000,
    "(" * 70 + "id" + ")" * 70,
    "NOT " * 1000 + "ok",
    "-" * 100 + "n",
    "- " * 2000 + "n",
    "n" + " + n" * 1000,
    "CASE WHEN ok THEN " * 100 + "n" + " END" * 100,
    "CASE WHEN ok THEN " * 13 + "rand()" + " END" * 13,
    "upper(" * 600 + "id" + ")" * 600,
    "named_struct(" + "'a', " * 300 + "id)",
]


def refusal(spark: SparkSession, *steps: dict[str, Any], **more: Any) -> Refusal | None:
    try:
        return judge(spark, a_pipeline(*steps, **more))
    except ConfigError as error:
        # Refused by its form alone, before Spark is asked.
        return Refusal(error.wrong, "/" + error.setting.replace(".", "/"))


@pytest.mark.parametrize("text", REACHES_OUT + TOO_MUCH)
def test_it_is_refused_with_a_pointer_to_the_step(locked_spark: SparkSession, text: str) -> None:
    found = refusal(locked_spark, {"where": "ok"}, {"select": {"id": "id", "x": text}})
    assert found is not None
    assert found.pointer == "/steps/1/select/x"
    assert found.why.strip()
    assert "\n" not in found.why


@pytest.mark.parametrize(
    "select",
    [
        {f"m{nth}": "split(concat(id, 'N'), '')" for nth in range(20)},
        {f"m{nth}": "items" for nth in range(8)},
    ],
)
def test_what_is_little_by_itself_may_be_too_much_together(
    locked_spark: SparkSession, select: dict[str, str]
) -> None:
    found = refusal(locked_spark, {"select": select})
    assert found is not None
    assert found.pointer == "/steps/0/select"
    assert found.why.startswith("all members together: it may take ")


@pytest.mark.parametrize("text", REACHES_OUT)
def test_without_the_first_lock_there_is_nothing_to_call(
    locked_spark: SparkSession, text: str
) -> None:
    pipeline = a_pipeline({"select": {"x": text}})
    with pytest.raises((PySparkException, ValueError)):
        planned(pipeline, locked_spark.createDataFrame([], RECORDS))


@pytest.mark.parametrize(
    ("step", "member"),
    [("where", ""), ("key", ""), ("explode", "/x"), ("select", "/x")],
)
def test_each_kind_of_step_is_judged(locked_spark: SparkSession, step: str, member: str) -> None:
    text = "reflect('java.util.UUID', 'randomUUID')"
    found = refusal(locked_spark, {step: {"x": text} if member else text})
    assert found is not None
    assert found.pointer == f"/steps/0/{step}{member}"


def test_where_an_output_wants_events_is_judged_too(locked_spark: SparkSession) -> None:
    to = [{"stream": "a", "when": "ok"}, {"stream": "b", "when": "rand() < 0.5"}]
    found = refusal(locked_spark, to=to, match="all")
    assert found == Refusal("the function 'rand' cannot be used here", "/to/1/when")
