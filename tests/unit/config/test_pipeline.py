"""Pipeline documents: the allowed contents, and the place that an error names."""

import json
from dataclasses import replace
from typing import Any

import pytest

from shared.config.configuration import (
    REMOVED_KEPT_MS,
    Configuration,
    RemovedPipeline,
)
from shared.config.cycles import cycle_through
from shared.config.model import ConfigError
from shared.config.pipeline import (
    DOCUMENT_BYTES_MAX,
    Enrich,
    Explode,
    Key,
    LookedUp,
    Pipeline,
    Source,
    ToArchive,
    ToDead,
    ToStream,
    ToTable,
    Where,
)
from shared.config.pipeline_tests import EXPECTED_MAX
from shared.config.steps.expression import EXPRESSION_BYTES_MAX

DOCUMENT: dict[str, Any] = {
    "name": "sales",
    "from": {"stream": "orders"},
    "schema": "id STRING, type STRING, country STRING",
    "steps": [
        {"where": "type = 'sale'"},
        {"explode": {"item": "items"}},
        {"select": {"sku": "item.sku", "country": "country"}},
        {"key": "country"},
    ],
    "to": [{"stream": "eu", "when": "country = 'DE'"}, {"dead": True}],
    "match": "first",
    "tests": [
        {"given": [{"id": 1}], "expect": [{"sku": "a"}], "dead": ["x"]},
        {"given": [{"id": 2.5}], "expect": {"eu": [[None]]}},
    ],
}
PIPELINE = Pipeline.of(DOCUMENT)


def pipeline(name: str, source: str, *outputs: str) -> Pipeline:
    """Return a pipeline that writes to these streams; a ! means that events are posted again."""
    to = tuple(ToStream(each.removesuffix("!"), repost=each.endswith("!")) for each in outputs)
    return Pipeline(name, Source(source), to)


def test_a_document_says_what_it_reads_and_where_the_rest_goes() -> None:
    assert PIPELINE.source == Source("orders", "earliest")
    assert PIPELINE.steps[0] == Where("type = 'sale'")
    assert PIPELINE.steps[3] == Key("country")
    assert PIPELINE.to == (ToStream("eu", "country = 'DE'"), ToDead(True))
    assert PIPELINE.streams == {"orders", "eu"}
    assert PIPELINE.tables == set()
    assert PIPELINE.targets == ["eu"]
    assert PIPELINE.explodes
    assert PIPELINE.rewrites
    assert PIPELINE.takes_first
    assert not PIPELINE.starts_late


def test_it_is_the_same_after_the_config_topic() -> None:
    read = Configuration().apply(PIPELINE.config_key, PIPELINE.to_json())
    assert read.pipelines == {"sales": PIPELINE}
    assert read.apply(PIPELINE.config_key, None).pipelines == {}


def test_columns_keep_the_order_in_which_they_were_written() -> None:
    stored = json.loads(PIPELINE.to_json())
    assert list(stored["steps"][2]["select"]) == ["sku", "country"]


def test_what_a_newer_hifi_has_set_besides_stays() -> None:
    read = Pipeline.of(DOCUMENT | {"colour": "red"})
    assert json.loads(read.to_json())["colour"] == "red"
    assert read.fingerprint != PIPELINE.fingerprint


def test_a_fingerprint_tells_any_two_documents_apart() -> None:
    assert replace(PIPELINE).fingerprint == PIPELINE.fingerprint
    assert replace(PIPELINE, match="all").fingerprint != PIPELINE.fingerprint
    backwards = dict(reversed(DOCUMENT["steps"][2]["select"].items()))
    steps = [*DOCUMENT["steps"][:2], {"select": backwards}]
    forwards = [*DOCUMENT["steps"][:2], DOCUMENT["steps"][2]]
    of = {"steps": steps}, {"steps": forwards}
    assert len({Pipeline.of(DOCUMENT | each).fingerprint for each in of}) == 2


NO_COLUMN = "cannot name a column; use 1 to 64 of a-z, A-Z, 0-9 and _, not starting with a digit"
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"steps": [{"merge": {}}]}, "steps.0", "there is no step 'merge'; there are: where, select"),
    ({"steps": [{"dedupe": {}}]}, "steps.0.dedupe.key", "it is missing"),
    ({"steps": [{"call": "f"}]}, "steps.0.call", "'f' is not a function's name; use PACKAGE."),
    ({"steps": [{"call": "F.f"}]}, "steps.0.call", "'F.f' is not a function's name"),
    ({"steps": [{"calls": "f.f"}]}, "steps.0", "there is no step 'calls'"),
    (
        {"steps": [{}]},
        "steps.0",
        "a step is an object with one of: where, select, explode, enrich, key, call",
    ),
    ({"steps": ["where"]}, "steps.0", "a step is an object with one of"),
    ({"steps": [{"where": "a", "key": "b"}]}, "steps.0", "this one has where and key"),
    ({"steps": [{"where": "a", "x": 1}]}, "steps.0.x", "there is no such field"),
    ({"steps": [{"where": 1}]}, "steps.0.where", "1 should be a valid string"),
    ({"steps": [{"where": " \n"}]}, "steps.0.where", "an expression is missing"),
    ({"steps": [{"where": "x" * 4097}]}, "steps.0.where", "at most 4096 bytes"),
    ({"steps": [{"where": "ä" * 2049}]}, "steps.0.where", "at most 4096 bytes"),
    ({"steps": [{"select": {"a.b": "b"}}]}, "steps.0.select", f"'a.b' {NO_COLUMN}"),
    ({"steps": [{"select": {"": "b"}}]}, "steps.0.select", NO_COLUMN),
    ({"steps": [{"select": {"x" * 65: "b"}}]}, "steps.0.select", NO_COLUMN),
    ({"steps": [{"select": {"hifi": "b"}}]}, "steps.0.select", "'hifi' is the column with"),
    ({"steps": [{"select": {}}]}, "steps.0.select", "at least 1 item"),
    ({"steps": [{"select": ["a"]}]}, "steps.0.select", "it should be an object"),
    ({"steps": [{"select": {"a": 5}}]}, "steps.0.select.a", "5 should be a valid string"),
    ({"steps": [{"explode": {"a": "b", "c": "d"}}]}, "steps.0.explode", "at most 1 item"),
    ({"steps": [{"explode": {"a": "b"}}] * 2}, "steps.1.explode", "only one explode"),
    ({"steps": [{"where": "a"}] * 33}, "steps", "at most 32 items"),
    ({"steps": {"where": "a"}}, "steps", "should be a valid array"),
    ({"to": []}, "to", "at least 1 item"),
    ({"to": [{"nowhere": "t"}]}, "to.0", "there is no output 'nowhere'; there are: stream, table"),
    ({"to": [{"nowhere": {}}]}, "to.0", "there is no output 'nowhere'"),
    ({"to": [{"database": {}}]}, "to.0.database.url", "it is missing"),
    ({"to": [{"stream": "x", "whn": "y"}]}, "to.0.whn", "there is no such field"),
    ({"to": [{"stream": "No"}]}, "to.0.stream", "'No' is not a name"),
    ({"to": [{"stream": "orders"}]}, "to.0.stream", "reads this stream itself"),
    ({"to": [{"stream": "orders", "repost": True}]}, "to.0.repost", "keep their ids"),
    ({"to": [{"dead": False}]}, "to.0.dead", "False should be True"),
    ({"to": [{"stream": "a", "dead": True}]}, "to.0", "this one has stream and dead"),
    ({"to": [{"stream": "a"}, {"stream": "b"}]}, "to.1", "nothing gets here"),
    ({"match": None}, "match", "set first or all"),
    ({"match": "any"}, "match", "'any' should be 'first' or 'all'"),
    ({"from": "orders"}, "from", "'orders' should be an object"),
    ({"from": {"stream": "a", "start": "now"}}, "from.start", "it must be earliest, latest"),
    ({"from": {"table": "a"}}, "from.stream", "it is missing"),
    ({"name": "Sales"}, "name", "'Sales' is not a name"),
    ({"generation": 0}, "generation", "greater than or equal to 1"),
    ({"schema": "x" * 16_385}, "schema", "at most 16384 characters"),
    ({"tests": [{"given": []}]}, "tests.0.given", "at least 1 item"),
    ({"tests": [{"given": [1], "expects": []}]}, "tests.0.expects", "there is no such field"),
    ({"tests": [{"given": [1], "expect": 3}]}, "tests.0.expect", "use a list of at most 1000"),
    ({"tests": [{"given": [1], "expect": {"eu": 1}}]}, "tests.0.expect", "for each stream"),
    ({"tests": [{"given": [1], "expect": {"us": []}}]}, "tests.0.expect.us", "writes to ['eu']"),
    ({"tests": [{"given": [1], "expect": [1] * 1001}]}, "tests.0.expect", "at most 1000"),
    ({"tests": [{"given": ["x" * DOCUMENT_BYTES_MAX]}]}, "", "more than 262144"),
]


@pytest.mark.parametrize(("changed", "setting", "said"), REFUSED)
def test_what_is_wrong_is_said_where_it_is(
    changed: dict[str, Any], setting: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Pipeline.of(DOCUMENT | changed)
    assert caught.value.setting == setting
    assert said in caught.value.wrong


def test_the_bounds_themselves_are_within_bounds() -> None:
    whole = Pipeline.of(
        DOCUMENT
        | {
            "steps": [{"where": "x" * EXPRESSION_BYTES_MAX}],
            "tests": [{"given": [1], "expect": [1] * EXPECTED_MAX}],
        }
    )
    assert not whole.rewrites
    assert not whole.explodes


def test_what_several_streams_get_is_said_for_each() -> None:
    to = [{"stream": "eu"}, {"stream": "us"}]
    without_steps = {"steps": [], "match": "all", "to": to}
    with pytest.raises(ConfigError) as caught:
        Pipeline.of(DOCUMENT | without_steps | {"tests": [{"given": [1], "expect": [1]}]})
    assert str(caught.value) == "tests.0.expect: list the events expected at each of ['eu', 'us']"
    assert Pipeline.of(DOCUMENT | without_steps | {"tests": [{"given": [1], "dead": [1]}]})


def test_parts_are_made_in_python_as_well() -> None:
    made = Pipeline("a", Source("s", 5), (ToStream("t"),), steps=(Explode({"x": "y"}),))
    assert made.starts_late
    assert Pipeline.of(json.loads(made.to_json())) == made


def test_a_pipeline_that_was_removed_keeps_its_name_until_nothing_is_left_to_read() -> None:
    gone = RemovedPipeline("sales", "acme", "orders", 2, removed_at_ms=1_000)
    there = Configuration().apply(PIPELINE.config_key, PIPELINE.to_json())
    left = there.apply(gone.config_key, gone.to_json())
    assert left.pipelines == {}
    assert left.removed_pipelines == {"sales": gone}
    assert list(left.outlived(now_ms=1_000 + REMOVED_KEPT_MS)) == []
    assert list(left.outlived(now_ms=1_001 + REMOVED_KEPT_MS)) == [b"pipeline:sales"]


def test_a_streams_pipelines_are_those_that_read_it_and_those_that_write_to_it() -> None:
    known = Configuration(pipelines={"sales": PIPELINE, "x": pipeline("x", "eu", "all")})
    assert [each.name for each in known.pipelines_at("eu")] == ["sales", "x"]
    assert [each.name for each in known.pipelines_at("all")] == ["x"]
    assert list(known.pipelines_at("none")) == []


def test_a_cycle_of_streams_is_found_through_any_number_of_pipelines() -> None:
    others = [pipeline("y", "b", "c"), pipeline("z", "c", "a", "d")]
    assert cycle_through(pipeline("x", "a", "b"), others) == ("a", "b", "c", "a")
    assert cycle_through(pipeline("x", "a", "d", "b"), others) == ("a", "b", "c", "a")


def test_a_chain_is_no_cycle_and_neither_is_one_that_is_wanted() -> None:
    assert cycle_through(pipeline("x", "a", "b"), [pipeline("y", "b", "c")]) == ()
    assert cycle_through(pipeline("x", "a", "a!", "b"), []) == ()
    others = [pipeline("y", "b", "c"), pipeline("z", "c", "a!")]
    assert cycle_through(pipeline("x", "a", "b"), others) == ()
    # The pipeline does not cause a cycle that exists without it.
    round_about = [pipeline("y", "b", "c"), pipeline("z", "c", "b")]
    assert cycle_through(pipeline("x", "a", "b"), round_about) == ()


ENRICHED: dict[str, Any] = {
    "name": "who",
    "from": {"stream": "orders"},
    "steps": [
        {
            "enrich": {
                "table": "customers",
                "key": "customer",
                "schema": "country STRING",
                "as": "c",
                "missing": "dead",
            }
        }
    ],
    "to": [{"table": "last-orders", "when": "c.country = 'NO'"}, {"stream": "eu"}, {"table": "t"}],
    "match": "all",
}


def test_a_document_says_which_tables_it_looks_up_in_and_which_it_writes() -> None:
    made = Pipeline.of(ENRICHED)
    assert made.steps == (Enrich(LookedUp("customers", "customer", "country STRING", "c", "dead")),)
    assert made.to[0] == ToTable("last-orders", "c.country = 'NO'")
    assert made.tables_from == {"customers"}
    assert made.tables_to == {"last-orders", "t"}
    assert made.tables == {"customers", "last-orders", "t"}
    assert made.targets == ["last-orders", "eu", "t"]
    assert made.rewrites
    assert Pipeline.of(made.to_fields()) == made
    assert made.to_fields()["steps"] == ENRICHED["steps"]


@pytest.mark.parametrize(
    ("changed", "setting"),
    [
        (
            {"steps": [{"enrich": {"table": "t", "key": "k", "schema": "a INT"}}]},
            "steps.0.enrich.as",
        ),
        (
            {"steps": [{"enrich": {"table": "t", "key": "k", "schema": "a INT", "as": "hifi"}}]},
            "steps.0.enrich.as",
        ),
        (
            {"steps": [{"enrich": {"table": "t", "key": "k", "schema": "", "as": "c"}}]},
            "steps.0.enrich.schema",
        ),
        ({"steps": []}, "to.0.table"),
        ({"to": [{"stream": "t"}, {"table": "t"}]}, "to.1.table"),
        ({"to": [{"table": "customers"}]}, "to.0.table"),
        ({"tests": [{"given": [{}], "tables": {"others": {}}}]}, "tests.0.tables.others"),
        (
            {"tests": [{"given": [{}], "tables": {"customers": {"a": 1}}}]},
            "tests.0.tables.customers.a",
        ),
        ({"tests": [{"given": [{}], "expect": [{}]}]}, "tests.0.expect"),
    ],
)
def test_what_cannot_be_looked_up_or_written_is_refused_where_it_stands(
    changed: dict[str, Any], setting: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        Pipeline.of(ENRICHED | changed)
    assert refused.value.setting == setting


@pytest.mark.parametrize(
    ("step", "keeps"),
    [({"where": "a"}, True), ({"select": {"a": "a"}}, False), ({"key": "a"}, False)],
)
def test_events_stay_as_they_came_until_a_step_changes_them(
    step: dict[str, object], *, keeps: bool
) -> None:
    made = Pipeline.of(
        {"name": "a", "from": {"stream": "s"}, "to": [{"stream": "t"}], "steps": [step]}
    )
    assert made.keeps_events is keeps
    assert made.sink is None


def archived(**more: object) -> Pipeline:
    document = {"name": "a", "from": {"stream": "s"}, "to": [{"archive": "backup"}]}
    return Pipeline.of({**document, **more})


def test_an_archive_is_the_only_output_of_its_pipeline() -> None:
    assert archived().sink == ToArchive("backup")
    assert archived(schema="n INT", steps=[{"where": "n > 1"}]).keeps_events
    with pytest.raises(ConfigError, match="the only output"):
        archived(to=[{"archive": "backup"}, {"stream": "t"}])
    with pytest.raises(ConfigError, match="one event for each offset"):
        archived(schema="l ARRAY<INT>", steps=[{"explode": {"n": "l"}}])


def test_what_an_archive_should_get_is_a_list() -> None:
    assert archived(tests=[{"given": [{"n": 1}], "expect": [{"n": 1}]}]).tests
    with pytest.raises(ConfigError, match="only writes"):
        archived(tests=[{"given": [{"n": 1}], "expect": {"t": [{"n": 1}]}}])


def test_what_looks_at_no_event_is_a_tee() -> None:
    assert archived().is_tee
    assert not archived(schema="n INT").is_tee, "an archive leaves out unreadable events"
    assert not archived(schema="n INT", steps=[{"where": "n > 1"}]).is_tee
    assert not archived(to=[{"stream": "t"}]).is_tee
