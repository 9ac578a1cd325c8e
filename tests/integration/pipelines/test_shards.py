"""Pipelines put each event of a sharded stream where the gateway would have put it."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from pyspark.sql import Row, SparkSession

from gateway.intake.shards import ShardFinder
from pipelines.plan import RECORDS, planned
from shared.config.partitioning import Partitioning
from shared.config.pipeline import Pipeline
from shared.event.envelope import EVENT_ID, event_headers
from shared.event.topics import stream_topic
from tests.support.deploy.stack_fixtures import RunningHifi, wait_until
from tests.support.kafka.kafka_log import read_all
from tests.support.pipelines.pipeline_runs import (
    START_S,
    document,
    post_all,
    wait_until_all_is_done,
)
from tests.support.pipelines.trial_spark import a_pipeline

pytestmark = pytest.mark.integration

DEEP = Partitioning("/at/a~1b", ("eu-1", "7", "eu-2", "007", "x.y"))
ODD: list[bytes] = [
    b'{"at":{"a/b":"eu-2"}}',
    b'{"at":{"a/b":7}}',
    b'{"at":{"a/b":"7"}}',
    b'{"at":{"a/b":"007"}}',
    b'{"at":{"a/b":7.0}}',
    b'{"at":{"a/b":70}}',
    b'{"at":{"a/b":-7}}',
    b'{"at":{"a/b":true}}',
    b'{"at":{"a/b":null}}',
    b'{"at":{"a/b":["eu-1"]}}',
    b'{"at":{"a/b":{"eu-1":1}}}',
    b'{"at":{"a/b":"EU-1"}}',
    b'{"at":{"A/B":"eu-1"}}',
    b'{"at":{"a/b":"eu-1 "}}',
    b'{"at":{"a/b":""}}',
    b'{"at":{"a/b":"eu-1,7"}}',
    b'{"at":{"a/b":"eu-1"},"at":{"a/b":"x.y"}}',
    b'{"at":{"a/b":"eu-1","a/b":"x.y"}}',
    b'{"at":{"a/b":"\\u0065u-1"}}',
    b'{"at":["a/b","eu-1"]}',
    b'{"at":"eu-1"}',
    b'{"a/b":"eu-1"}',
    b"{}",
]


def rows_of(
    spark: SparkSession, pipeline: Pipeline, streams: dict[str, Partitioning], *values: bytes
) -> list[Row]:
    at, headers = (
        datetime.fromtimestamp(0, tz=UTC),
        event_headers(event_id="e", event_time_ms=1, accepted_at_ms=1),
    )
    records = [
        (stream_topic("orders"), 3, offset, at, b"k", value, list(headers))
        for offset, value in enumerate(values)
    ]
    return planned(pipeline, spark.createDataFrame(records, RECORDS), streams).collect()


def test_spark_finds_the_shard_that_the_gateway_finds(locked_spark: SparkSession) -> None:
    finder = ShardFinder(DEEP)
    rows = rows_of(locked_spark, a_pipeline(schema=""), {"sales": DEEP}, *ODD)
    places = [finder.partition(value) for value in ODD]
    wanted = [place if isinstance(place, int) else None for place in places]
    assert {*wanted} == {None, 0, 1, 2, 3, 4}
    assert [row["to_partition"] for row in rows] == wanted
    for value, row, place in zip(ODD, rows, wanted, strict=True):
        assert bytes(row["value"]) == value
        dead = ("dead", "unknown_shard", None)
        said = (row["outcome"], row["reason"], row["topic"])
        assert said == (("passed", None, "hifi.stream.sales") if place is not None else dead)


def test_the_shard_is_that_of_what_is_written_and_all_of_an_event_is_written_or_none(
    locked_spark: SparkSession,
) -> None:
    plain = Partitioning("/sku", ("a", "b"))
    exploding = a_pipeline(
        {"explode": {"item": "items"}},
        {"select": {"sku": "item.sku"}},
        to=[{"stream": "sales"}, {"stream": "copies"}],
    )
    given = [
        json.dumps({"items": [{"sku": sku} for sku in skus]}).encode() for skus in ("ab", "ac", "b")
    ]
    rows = rows_of(locked_spark, exploding, {"sales": plain}, *given)
    came = [(row["offset"], row["topic"], row["to_partition"], row["reason"]) for row in rows]
    sales, copies = stream_topic("sales"), stream_topic("copies")
    assert came == [
        (0, sales, 0, None),
        (0, copies, None, None),
        (0, sales, 1, None),
        (0, copies, None, None),
        (1, None, None, "unknown_shard"),
        (2, sales, 1, None),
        (2, copies, None, None),
    ]
    # An event that no output wants needs no shard.
    picky = a_pipeline(to=[{"stream": "sales", "when": "ok"}, {"stream": "copies"}], match="first")
    rows = rows_of(locked_spark, picky, {"sales": plain}, b'{"ok":false}', b'{"ok":true}')
    assert [row["reason"] for row in rows] == [None, "unknown_shard"]


def places(hifi: RunningHifi, stream: str) -> dict[str, int]:
    found = asyncio.run(read_all(hifi.kafka, stream_topic(stream)))
    return {dict(each.headers)[EVENT_ID].decode(): each.partition for each in found}


def test_events_lie_by_their_shards_posted_or_made_by_a_pipeline(hifi: RunningHifi) -> None:
    def put(path: str, body: dict[str, Any]) -> None:
        answer = httpx.put(f"{hifi.gateway}/v1/{path}", json=body, timeout=30)
        assert answer.status_code in {200, 201}, answer.text

    put("streams/shards-in", {"partitioning": {"pointer": "/t", "shards": ["x", "y", "z"]}})
    put("streams/shards-out", {"partitioning": {"pointer": "/to", "shards": ["p", "q"]}})
    to = {"x": "q", "y": "p", "z": "nowhere"}
    chosen = "CASE t WHEN 'x' THEN 'q' WHEN 'y' THEN 'p' ELSE 'nowhere' END"
    pipeline = document(
        "shards-all",
        "shards-in",
        schema="t STRING, n BIGINT",
        steps=[{"select": {"to": chosen, "n": "n"}}],
        to=[{"stream": "shards-out"}],
    )
    put("pipelines/shards-all", pipeline.known_fields(with_defaults=False))
    sent = [{"id": f"e{n}", "n": n, "t": "xyz"[n % 3], "partitionkey": "k"} for n in range(90)]
    wait_until(
        lambda: hifi.post("shards-in", sent[:1]).status_code == 200,
        what="the stream is known",
        timeout_s=20,
    )
    post_all(hifi, "shards-in", sent[1:])
    refused = hifi.post("shards-in", [{"id": "odd", "t": "w"}])
    assert (refused.status_code, refused.json()["results"][0]["code"]) == (422, "unknown_shard")
    assert places(hifi, "shards-in") == {each["id"]: "xyz".index(str(each["t"])) for each in sent}
    wait_until_all_is_done(hifi, pipeline, 90)
    made = asyncio.run(read_all(hifi.kafka, stream_topic("shards-out")))
    values = sorted((json.loads(each.value)["n"], each.partition) for each in made)
    assert values == [
        (n, "pq".index(to[shard])) for n, shard in enumerate(map(shard_of, sent)) if shard != "z"
    ]
    assert len(hifi.dead_letters(pipeline.lane_id)) == 30
    assert hifi.balance(pipeline.lane_id).delivered == 60
    # Add a shard while all runs: its Kafka partition exists before pipelines hear of it.
    more = {"pointer": "/to", "shards": ["p", "q", "nowhere"]}
    put("streams/shards-out", {"partitioning": more})
    wait_until(lambda: grew(hifi) > 0, what="a pipeline writes to the new shard", timeout_s=START_S)


def shard_of(event: dict[str, Any]) -> str:
    return str(event["t"])


def grew(hifi: RunningHifi) -> int:
    post_all(hifi, "shards-in", [{"n": -1, "t": "z"}])
    made = asyncio.run(read_all(hifi.kafka, stream_topic("shards-out")))
    return sum(each.partition == 2 for each in made)
