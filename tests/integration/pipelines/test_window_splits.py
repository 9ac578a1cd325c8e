"""However a stream is split into jobs, Spark's parts merge into the rows of one job."""

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.judging.trial import events_frame
from pipelines.windows.change import Head, WindowRow
from pipelines.windows.open_windows import OpenWindows
from pipelines.windows.partials import events_of, partials_of, parts_of
from shared.config.pipeline import Pipeline
from shared.event.envelope import event_headers
from shared.event.record import Origin, RecordIn
from shared.event.times import HOUR_MS, rfc3339
from shared.event.topics import stream_topic
from tests.support.pipelines.pipeline_runs import document

pytestmark = pytest.mark.integration

AT_MS = 1_767_225_600_000
# A time at which all windows are over.
FAR_MS = 10**16
COUNT, JOBS = 120, 4
COMPUTE = {
    "all": "count(*)",
    "some": "count_if(n > 3)",
    "total": "sum(n)",
    "exact": "sum(CAST(d AS DECIMAL(38,2)))",
    "mean": "avg(CAST(d AS DECIMAL(38,2)))",
    "float": "sum(x)",
    "least": "min(t)",
    "most": "max(n)",
    "first": "first(t)",
    "last": "last(n)",
    "few": "approx_count_distinct(n)",
}
LISTS = {"set": "collect_set(t)", "top": "top(n, 3)"}
KINDS = {
    "tumbling": {"every": "1 hour", "compute": COMPUTE | LISTS},
    "hopping": {"every": "20 minutes", "size": "1 hour", "compute": COMPUTE | LISTS},
    # A session cannot keep lists: see test_window.py.
    "session": {"session": "4 minutes", "compute": COMPUTE},
}


def an_event(dice: random.Random) -> dict[str, Any]:
    # Two of these are too long together, whether they are in one job or not.
    long = "9" * 36 + ".00"
    return {
        "k": dice.choice(["a", "", "all", None]),
        "n": dice.choice([None, *range(9), 2**62]),
        "d": dice.choice([None, "0.10", "-3.07", *([long] if dice.random() < 0.1 else [])]),
        # Sums of these are exact in any order.
        "x": dice.choice([None, 0.25, -1.5]),
        "t": dice.choice([None, "u", "v", "ä"]),
        "at": rfc3339(AT_MS - dice.randrange(3 * HOUR_MS)),
    }


def records(events: Sequence[dict[str, Any]]) -> list[RecordIn]:
    topic = stream_topic("s")
    headers = event_headers(event_id="e", event_time_ms=AT_MS, accepted_at_ms=AT_MS)
    return [
        RecordIn(Origin(topic, 0, nth), AT_MS, None, json.dumps(event).encode(), headers)
        for nth, event in enumerate(events)
    ]


def rows_of(
    session: SparkSession, pipeline: Pipeline, jobs: Sequence[Sequence[RecordIn]]
) -> list[WindowRow]:
    assert pipeline.window is not None
    kept = OpenWindows(pipeline.window, Head(pipeline.kept_shape))
    for job in filter(None, jobs):
        events = events_of(pipeline, events_frame(session, job), frontier_ms=0, look_ups={})
        parts = parts_of(pipeline, events).toArrow().to_pylist()
        change = kept.changed_by(partials_of(pipeline, parts), 0)
        assert not change.rows
        kept.apply(change)
    change = kept.changed_by([], FAR_MS)
    assert not change.has_more
    return [row._replace(version=0) for row in change.rows]


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seeds", [1, pytest.param(20, marks=pytest.mark.long)])
def test_any_split_into_jobs_comes_to_the_rows_of_one_job(
    locked_spark: SparkSession, kind: str, seeds: int
) -> None:
    common = {"by": ["k"], "time": "CAST(at AS TIMESTAMP)", "emit": "final", "late": "1 day"}
    window = KINDS[kind] | common
    pipeline = document(
        "p",
        "s",
        schema="k STRING, n BIGINT, d STRING, x DOUBLE, t STRING, at STRING",
        steps=[{"window": window}],
        to=[{"stream": "t"}],
    )
    cut = 0
    for seed in range(seeds):
        dice = random.Random(seed)
        events = records([an_event(dice) for _ in range(COUNT)])
        jobs: list[list[RecordIn]] = [[] for _ in range(JOBS)]
        for event in events:
            dice.choice(jobs).append(event)
        whole = rows_of(locked_spark, pipeline, [events])
        assert rows_of(locked_spark, pipeline, jobs) == whole
        assert len(whole) > 4
        cut += sum(b'"exact_cut":true' in row.value for row in whole)
    assert cut or seeds == 1, "no sum was too long"
