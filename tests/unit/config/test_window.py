"""Windows and keys in documents: the settings that they take, and the place that an error names."""

from typing import Any

import pytest

from shared.config.model import ConfigError
from shared.config.pipeline import Pipeline, ToDead, ToStream
from shared.config.steps.computed import AGGREGATE_NAMES, ComputedColumn, computed, reducers_of
from shared.config.steps.window import WindowStep, duration_ms, moment_ms, shape_of

COMPUTE = {"n": "count(*)"}
HOURLY = {"every": "1 hour", "compute": COMPUTE}
DEDUPE = {"dedupe": {"key": "id", "within": "1 hour"}}


def document(*steps: dict[str, Any], **more: Any) -> Pipeline:
    fields = {"name": "p", "from": {"stream": "s"}, "to": [{"stream": "t"}], "steps": list(steps)}
    return Pipeline.of(fields | more)


def windowed(**window: Any) -> Pipeline:
    return document({"window": {"compute": COMPUTE, **window}})


def test_lengths_are_told_in_milliseconds() -> None:
    hopping = windowed(every="5 minutes", size="1 hour", late="90 seconds").window
    assert hopping is not None
    assert (hopping.every_ms, hopping.size_ms, hopping.gap_ms) == (300_000, 3_600_000, 0)
    assert (hopping.late_ms, hopping.is_final) == (90_000, False)
    tumbling = windowed(every="1 day", emit="final").window
    assert tumbling is not None
    assert (tumbling.size_ms, tumbling.is_final) == (86_400_000, True)
    session = windowed(session="10 minutes").window
    assert session is not None
    assert (session.every_ms, session.size_ms, session.gap_ms) == (0, 0, 600_000)
    assert session.is_final
    assert duration_ms("2 hours") == 7_200_000


def test_moments_have_a_zone_or_are_of_utc() -> None:
    assert moment_ms("1970-01-01T00:00:01") == 1_000
    assert moment_ms("1970-01-01T01:00:01+01:00") == 1_000
    assert moment_ms("soon") == 0


def test_what_is_kept_is_told_apart_by_what_it_depends_on() -> None:
    assert document().kept_shape == shape_of(None) == ""
    one = windowed(every="1 hour")
    same = document({"where": "true"}, {"window": {"compute": COMPUTE, "every": "60 minutes"}})
    assert one.kept_shape == same.kept_shape
    assert document().kept_spec is None
    assert one.kept_spec is not None
    assert one.kept_spec.name == f"hifi.kept.{one.name}"
    others = [windowed(every="1 day"), windowed(every="1 hour", by=["a"]), document(DEDUPE)]
    assert len({one.kept_shape, *(other.kept_shape for other in others)}) == 4
    assert document(DEDUPE).window is None
    assert one.dedupe is None


def test_what_is_late_goes_to_one_place_and_rows_to_all_others() -> None:
    to = [{"stream": "rows"}, {"table": "latest"}, {"stream": "too-late", "late": True}]
    pipeline = document({"window": HOURLY}, to=to)
    assert pipeline.targets == ["rows", "latest"]
    assert pipeline.late_to == ToStream("too-late", late=True)
    assert pipeline.streams == {"s", "rows", "too-late"}
    to = [{"stream": "rows"}, {"dead": True, "late": True}]
    assert document({"window": HOURLY}, to=to).late_to == ToDead(True, late=True)
    assert document({"window": HOURLY}).late_to is None


REFUSED: list[tuple[list[dict[str, Any]], dict[str, Any], str, str]] = [
    ([{"window": {"compute": COMPUTE}}], {}, "steps.0.window", "set either `every: 1 minute`"),
    (
        [{"window": HOURLY | {"session": "1 minute"}}],
        {},
        "steps.0.window",
        "set either `every: 1 minute`",
    ),
    ([{"window": HOURLY | {"every": "1 h"}}], {}, "steps.0.window.every", "not a time such as"),
    ([{"window": HOURLY | {"every": "40 days"}}], {}, "steps.0.window", "at most 31 days"),
    ([{"window": HOURLY | {"late": "8 days"}}], {}, "steps.0.window", "at most 7 days"),
    ([{"window": HOURLY | {"size": "90 minutes"}}], {}, "steps.0.window", "a multiple of '1 hour'"),
    ([{"window": HOURLY | {"size": "61 hours"}}], {}, "steps.0.window", "in 60 windows at most"),
    ([{"window": HOURLY | {"by": ["n"]}}], {}, "steps.0.window", "a row has only one 'n'"),
    (
        [{"window": HOURLY | {"compute": {f"c{n}": "count(*)" for n in range(33)}}}],
        {},
        "steps.0.window",
        "at most 32 columns",
    ),
    (
        [{"window": {"session": "1 minute", "size": "1 hour", "compute": COMPUTE}}],
        {},
        "steps.0.window",
        "no fixed size",
    ),
    (
        [{"window": {"session": "1 minute", "emit": "updates", "compute": COMPUTE}}],
        {},
        "steps.0.window",
        "written when it is over",
    ),
    *(
        (
            [{"window": {"session": "1 minute", "compute": COMPUTE | {"seen": text}}}],
            {},
            "steps.0.window",
            "a session cannot keep",
        )
        for text in ("collect_set(a)", "top(a, 3)", "call(fraud.spread)")
    ),
    ([{"dedupe": {"key": "id", "within": "8 days"}}], {}, "steps.0.dedupe", "at most 7 days"),
    ([DEDUPE, {"window": HOURLY}], {}, "steps.1.window", "chain two pipelines"),
    ([{"window": HOURLY}, {"where": "true"}], {}, "steps.1", "must be the last step"),
    ([{"explode": {"a": "b"}}, {"window": HOURLY}], {}, "steps.0.explode", "put the window into"),
    ([DEDUPE], {"to": [{"archive": "a"}]}, "to.0.archive", "put it into the next pipeline"),
    ([], {"to": [{"stream": "t", "late": True}]}, "to.0.late", "without a window step"),
    (
        [{"window": HOURLY}],
        {"to": [{"stream": "t", "late": True}, {"dead": True, "late": True}]},
        "to.1.late",
        "only one output",
    ),
    ([{"window": HOURLY}], {"to": [{"dead": True}]}, "to.0.dead", "is not an event"),
    ([{"window": HOURLY}], {"to": [{"stream": "t", "when": "true"}]}, "to.0.when", "go to all"),
    ([{"window": HOURLY}], {"to": [{"stream": "t", "repost": True}]}, "to.0.repost", "a new event"),
    (
        [{"window": HOURLY}],
        {"tests": [{"given": [1], "times": ["2026-01-01", "2026-01-02"]}]},
        "tests.0.times",
        "set one time for each",
    ),
    (
        [{"window": HOURLY}],
        {"tests": [{"given": [1], "times": ["soon"]}]},
        "tests.0.times.0",
        "'soon' is not a time such as",
    ),
]


@pytest.mark.parametrize(("steps", "more", "setting", "said"), REFUSED)
def test_what_is_wrong_is_said_where_it_is(
    steps: list[dict[str, Any]], more: dict[str, Any], setting: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        document(*steps, **more)
    assert caught.value.setting == setting
    assert said in caught.value.wrong


def test_times_of_a_test_are_told_in_milliseconds() -> None:
    tests = [{"given": [1], "times": ["1970-01-01T00:00:05Z"]}, {"given": [1]}]
    assert [test.times_ms for test in document(tests=tests).tests] == [[5_000], []]


def test_one_aggregate_of_one_expression_is_computed() -> None:
    assert computed(" COUNT( * ) ") == ComputedColumn("count", "")
    assert computed("sum(a + f(b, c))") == ComputedColumn("sum", "a + f(b, c)")
    assert computed("top(split(url, ','), 5)") == ComputedColumn("top", "split(url, ',')", 5)
    assert {"count", "top"} < set(AGGREGATE_NAMES)


def test_a_reducer_is_called_by_its_name() -> None:
    what = computed("call( fraud.spread )")
    assert (what.function, what.expression) == ("fraud.spread", "")
    assert (computed("sum(x)").function, computed("sum(x)").expression) == ("", "x")
    for text in ("call()", "call(spread)", "call(fraud.spread, price)", "call(Fraud.spread)"):
        with pytest.raises(ConfigError, match="names an installed reducer"):
            computed(text)
    compute = {"n": "count(*)", "it": "call(fraud.spread)", "bad": "call(spread)"}
    assert reducers_of(compute) == {"it": "fraud.spread"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n", "use one aggregate, such as sum(price); there are: count"),
        ("median(n)", "use one aggregate"),
        ("sum()", "sum takes an expression"),
        ("top(url)", "top(what, how many)"),
        ("top(url, 0)", "1 to 100 values"),
        ("top(, 5)", "top(what, how many)"),
    ],
)
def test_what_is_no_aggregate_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        computed(text)
    assert said in caught.value.wrong


def test_what_is_no_aggregate_is_judged_with_the_document_also_of_a_session() -> None:
    window = {"session": "1 minute", "compute": COMPUTE | {"seen": "nothing(a)"}}
    (step,) = document({"window": window}).steps
    assert isinstance(step, WindowStep)
    assert step.window.compute["seen"] == "nothing(a)"
