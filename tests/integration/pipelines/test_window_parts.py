"""Spark computes the same windows as Python; rows that would not fit are dead letters."""

import json
import random
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.judging.trial import came_of
from pipelines.parts.whole_events import DEAD
from shared.config.pipeline import Pipeline
from shared.event.envelope import event_headers
from shared.event.record import Origin, RecordIn
from shared.event.topics import stream_topic
from tests.support.pipelines.pipeline_runs import document

pytestmark = pytest.mark.integration

AT_MS = 1_767_225_600_000


def counting(**compute: str) -> Pipeline:
    return document(
        "p",
        "s",
        schema="k STRING, n BIGINT, x DOUBLE, t STRING",
        steps=[{"window": {"every": "1 hour", "by": ["k"], "compute": compute}}],
        to=[{"stream": "t"}],
    )


def records(events: list[dict[str, Any]]) -> list[RecordIn]:
    topic = stream_topic("s")
    headers = event_headers(event_id="e", event_time_ms=AT_MS, accepted_at_ms=AT_MS)
    return [
        RecordIn(Origin(topic, 0, nth), AT_MS, None, json.dumps(event).encode(), headers)
        for nth, event in enumerate(events)
    ]


def test_lists_and_all_else_are_computed_side_by_side(locked_spark: SparkSession) -> None:
    dice = random.Random(7)
    events: list[dict[str, Any]] = [
        {"k": dice.choice("ab"), "n": dice.randrange(9), "t": dice.choice([None, "u", "v", "w"])}
        for _ in range(300)
    ]
    pipeline = counting(
        all="count(*)",
        some="count(t)",
        total="sum(n)",
        set="collect_set(n)",
        texts="collect_set(t)",
        most="top(t, 2)",
        numbers="top(n, 3)",
        few="approx_count_distinct(n)",
        first="first(n)",
        last="last(n)",
        least="min(n)",
    )
    rows = [json.loads(row.value) for row in came_of(locked_spark, pipeline, records(events))]
    assert sorted(row["k"] for row in rows) == ["a", "b"]
    for row in rows:
        own = [event for event in events if event["k"] == row["k"]]
        numbers = [event["n"] for event in own]
        texts = [event["t"] for event in own if event["t"]]
        counts = Counter(texts)
        ranked = sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:2]
        assert (row["all"], row["some"], row["total"]) == (len(own), len(texts), sum(numbers))
        assert sorted(row["set"]) == sorted(set(numbers))
        assert sorted(row["texts"]) == sorted(counts)
        assert [(each["value"], each["count"]) for each in row["most"]] == ranked
        assert [each["count"] for each in row["numbers"]] == [
            count for _, count in Counter(numbers).most_common(3)
        ]
        assert row["few"] == len(set(numbers))
        assert (row["first"], row["last"], row["least"]) == (numbers[0], numbers[-1], min(numbers))


@pytest.mark.parametrize(
    "compute", ["collect_set(t)", "top(t, 5)", "min(t)", "first(t)", "collect_set(concat(t, t))"]
)
def test_a_value_that_is_too_long_to_be_kept_is_a_dead_letter_and_no_other_is(
    locked_spark: SparkSession, compute: str
) -> None:
    events: list[dict[str, Any]] = [
        {"k": "a", "t": "short"},
        {"k": "a", "t": "x" * 2_000},
        {"k": "a", "t": None},
    ]
    came = came_of(locked_spark, counting(it=compute, n="count(*)"), records(events))
    assert [(row.origin.offset, row.reason) for row in came if row.outcome == DEAD] == [
        (1, "too_large")
    ]
    (row,) = [json.loads(row.value) for row in came if not row.is_of_an_event]
    assert row["n"] == 2


def test_a_set_of_a_great_many_values_is_cut_and_says_so(locked_spark: SparkSession) -> None:
    events: list[dict[str, Any]] = [{"k": "a", "n": n} for n in range(3_000)]
    pipeline = counting(it="collect_set(n)", most="top(n, 1)", n="count(*)")
    ((row),) = came_of(locked_spark, pipeline, records(events))
    value = json.loads(row.value)
    assert (len(value["it"]), value["it_cut"], value["n"]) == (1_000, True, 3_000)
    assert len(row.value) < 65_536


def test_a_sum_with_more_digits_than_there_are_says_that_it_is_none(
    locked_spark: SparkSession,
) -> None:
    text = "CAST(t AS DECIMAL(38,0))"
    pipeline = counting(s=f"sum({text})", a=f"avg({text})", n="count(*)", few="sum(n)")
    events = [{"k": k, "t": "9" * 38, "n": 1} for k in "aab"]
    rows = [json.loads(row.value) for row in came_of(locked_spark, pipeline, records(events))]
    many, one = sorted(rows, key=lambda row: str(row["k"]))
    assert (many["s"], many["a"], many["n"], many["few"]) == (None, None, 2, 2)
    assert (many["s_cut"], many["a_cut"]) == (True, True)
    assert one["s"] == int("9" * 38)
    assert "s_cut" not in one


def test_groups_whose_times_differ_by_a_microsecond_are_two(locked_spark: SparkSession) -> None:
    pipeline = document(
        "p",
        "s",
        schema="at TIMESTAMP",
        steps=[{"window": {"every": "1 hour", "by": ["at"], "compute": {"n": "count(*)"}}}],
        to=[{"stream": "t"}],
    )
    times = ["2026-01-01T00:00:00.000001Z", "2026-01-01T00:00:00.000002Z", "2026-01-01T00:00:00Z"]
    came = came_of(locked_spark, pipeline, records([{"at": at} for at in times] * 2))
    counts = {row["at"]: row["n"] for row in (json.loads(each.value) for each in came)}
    assert counts == {times[0]: 2, times[1]: 2, "2026-01-01T00:00:00.000Z": 2}
