"""Windows and keys are stored with the position: exact despite kills, on the broker's time."""

import asyncio
import time
from collections import Counter
from typing import Any

import pytest

from shared.config.pipeline import Pipeline
from shared.config.table import Table
from shared.event.times import rfc3339
from shared.event.topics import kept_topic, stream_spec
from tests.support.deploy.stack_fixtures import RunningHifi, wait_until
from tests.support.kafka.topics_anew import make_anew
from tests.support.pipelines.pipeline_runs import (
    START_S,
    document,
    post_all,
    put,
    wait_for_state,
    wait_until_all_is_done,
    written,
)
from tests.support.pipelines.window_runs import (
    forget_position,
    history,
    is_under_way,
    put_table,
    remove,
    topics,
)

pytestmark = pytest.mark.integration

MINUTE_MS = 60_000
KEYS = 50


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    ("kills", "count"), [(2, 6_000), pytest.param(20, 25_000, marks=pytest.mark.long)]
)
def test_kills_in_mid_batch_leave_each_row_as_a_recount_has_it(
    hifi: RunningHifi, kills: int, count: int
) -> None:
    source = f"window-kills{kills}"
    table = put_table(hifi.kafka, f"{source}-table", written_by=source)
    window = {
        "every": "1 minute",
        "late": "1 hour",
        "by": ["k"],
        "time": "at",
        "compute": {"n": "count(*)", "total": "sum(n)", "most": "max(n)"},
    }
    pipeline = document(
        source,
        source,
        schema="k INT, n BIGINT, at TIMESTAMP",
        steps=[{"where": "n % 7 != 0"}, {"window": window}],
        to=[{"table": table.name}, {"stream": f"{source}-rows"}],
    )
    put(hifi.kafka, pipeline)
    wait_for_state(hifi.kafka, pipeline, "running", within_s=START_S)
    now_ms, total = int(time.time() * 1000), 0
    expected: dict[str, list[int]] = {}
    hits = 0
    while hits < kills:
        events = []
        for n in range(total, total + count):
            at_ms = now_ms - (n * 37) % (10 * MINUTE_MS)
            events.append({"k": n % KEYS, "n": n, "at": rfc3339(at_ms)})
            if n % 7:
                row = expected.setdefault(f"{n % KEYS}@{rfc3339(at_ms - at_ms % MINUTE_MS)}", [])
                row.append(n)
        total += count
        post_all(hifi, source, events)
        wait_until(
            lambda: is_under_way(hifi.kafka, pipeline),
            what="the pipeline has begun a job",
            timeout_s=START_S,
            look_s=0.001,
        )
        hifi.stack.children["pipelines"].kill()
        # The job may have been stored in between: then this kill has hit nothing.
        hits += is_under_way(hifi.kafka, pipeline)
        hifi.revive("pipelines")
    wait_until_all_is_done(hifi, pipeline, total)
    rows = history(hifi.kafka, table)
    check_recount(rows, expected)
    streamed = written(hifi.kafka, f"{source}-rows")
    assert len(streamed) == len({row.event_id for row in streamed}), "a row arrived twice"
    assert len(streamed) == sum(map(len, rows.values()))
    balance = hifi.balance(pipeline.lane_id)
    assert (balance.delivered, balance.dead, balance.unaccounted) == (total, 0, 0)


def check_recount(rows: dict[str, list[Any]], expected: dict[str, list[int]]) -> None:
    """Check that each row equals a recount, and that its versions only grow."""
    assert rows.keys() == expected.keys()
    for key, versions in rows.items():
        counts = [version["n"] for version in versions]
        assert counts == sorted(set(counts)), f"{key} has an older or a repeated version: {counts}"
        last = versions[-1]
        numbers = expected[key]
        assert (last["n"], last["total"], last["most"]) == (
            len(numbers),
            sum(numbers),
            max(numbers),
        )


def killed_after_500(hifi: RunningHifi, name: str) -> tuple[Pipeline, Table, str]:
    """Return a pipeline that has counted 500 events by key, its table, and the events' time."""
    table = put_table(hifi.kafka, f"{name}-table", written_by=name)
    pipeline = document(
        name,
        name,
        schema="k INT, at TIMESTAMP",
        steps=[
            {"window": {"every": "1 day", "by": ["k"], "time": "at", "compute": {"n": "count(*)"}}}
        ],
        to=[{"table": table.name}],
    )
    put(hifi.kafka, pipeline)
    wait_for_state(hifi.kafka, pipeline, "running", within_s=START_S)
    at = rfc3339(int(time.time() * 1000))
    post_all(hifi, name, [{"k": n % 5, "at": at} for n in range(500)])
    wait_until_all_is_done(hifi, pipeline, 500)
    hifi.stack.children["pipelines"].kill()
    return pipeline, table, at


def test_without_its_position_it_goes_on_where_what_it_keeps_ends(hifi: RunningHifi) -> None:
    """Kafka forgets a group after an idle week: a site was down, or a pipeline was refused."""
    pipeline, table, at = killed_after_500(hifi, "forgotten")
    forget_position(hifi.kafka, pipeline)
    post_all(hifi, "forgotten", [{"k": n % 5, "at": at} for n in range(250)])
    hifi.revive("pipelines")
    wait_until_all_is_done(hifi, pipeline, 750)
    counts = [versions[-1]["n"] for versions in history(hifi.kafka, table).values()]
    assert counts == [150] * 5


def test_a_topic_that_is_made_anew_while_it_is_down_is_read_from_its_beginning(
    hifi: RunningHifi,
) -> None:
    """The old position of the kept state says nothing about the new topic."""
    _, table, at = killed_after_500(hifi, "anew")
    asyncio.run(make_anew(hifi.kafka, stream_spec("anew")))
    post_all(hifi, "anew", [{"k": n % 5, "at": at} for n in range(1_000)])
    hifi.revive("pipelines")

    def counts() -> list[int]:
        return [versions[-1]["n"] for versions in history(hifi.kafka, table).values()]

    wait_until(
        lambda: sum(counts()) >= 1_500,
        what=lambda: f"the counts of both topics: {counts()}",
        timeout_s=START_S,
    )
    assert counts() == [300] * 5


def test_what_nobody_adds_to_any_more_is_over_by_the_brokers_clock(hifi: RunningHifi) -> None:
    pipeline = document(
        "sittings",
        "clicks-of-sittings",
        schema="who STRING",
        steps=[
            {
                "window": {
                    "session": "2 seconds",
                    "late": "1 second",
                    "by": ["who"],
                    "compute": {"n": "count(*)"},
                }
            }
        ],
        to=[{"stream": "sittings-over"}, {"stream": "clicks-too-late", "late": True}],
    )
    put(hifi.kafka, pipeline)
    wait_for_state(hifi.kafka, pipeline, "running", within_s=START_S)
    post_all(hifi, "clicks-of-sittings", [{"who": "a"}, {"who": "a"}, {"who": "b"}])
    wait_until(
        lambda: len(written(hifi.kafka, "sittings-over")) == 2,
        what="both windows are over",
        timeout_s=START_S,
    )
    rows = written(hifi.kafka, "sittings-over")
    assert sorted((row.value["who"], row.value["n"]) for row in rows) == [("a", 2), ("b", 1)]
    remove(hifi.kafka, pipeline)
    kept = kept_topic(pipeline.name)
    wait_until(lambda: kept not in topics(hifi.kafka), what="its kept data is deleted, too")


def test_an_event_that_comes_again_is_filtered_and_what_comes_too_late_is_kept(
    hifi: RunningHifi,
) -> None:
    once = document(
        "orders-once",
        "orders-twice",
        schema="id STRING",
        steps=[{"dedupe": {"key": "id", "within": "1 hour"}}],
        to=[{"stream": "orders-of-once"}],
    )
    counted = document(
        "orders-counted",
        "orders-twice",
        schema="id STRING, at TIMESTAMP",
        steps=[
            {"window": {"every": "1 hour", "time": "at", "compute": {"n": "count(*)"}}},
        ],
        to=[{"stream": "orders-hourly"}, {"stream": "orders-too-late", "late": True}],
    )
    put(hifi.kafka, once, counted)
    for pipeline in (once, counted):
        wait_for_state(hifi.kafka, pipeline, "running", within_s=START_S)
    events: list[dict[str, Any]] = [{"id": f"o{n % 40}"} for n in range(100)]
    old = [{"id": "old", "at": "2026-01-01T00:00:00Z"}]
    wild = [{"id": "wild", "at": "2036-01-01T00:00:00Z"}]
    post_all(hifi, "orders-twice", events + old + wild)
    post_all(hifi, "orders-twice", events)
    for pipeline in (once, counted):
        wait_until_all_is_done(hifi, pipeline, 202)
    came = Counter(row.value["id"] for row in written(hifi.kafka, "orders-of-once"))
    assert came == {**{f"o{n}": 1 for n in range(40)}, "old": 1, "wild": 1}
    late = written(hifi.kafka, "orders-too-late")
    assert [row.value["id"] for row in late] == ["old"]
    rows = {
        row.value["window_start"]: row.value["n"] for row in written(hifi.kafka, "orders-hourly")
    }
    assert sum(rows.values()) == 201, "the wild clock moved another key's window"
