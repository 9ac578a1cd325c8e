"""Puts pipelines into a running Hifi, and reads their output."""

import asyncio
import json
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from shared.config.configuration import Stream
from shared.config.pipeline import Pipeline
from shared.config.pipeline_state import PipelineState, with_state
from shared.event.envelope import EVENT_ID
from shared.event.topics import (
    PIPELINES,
    RECEIPTS,
    STREAM_PARTITIONS,
    TopicSpec,
    stream_spec,
    stream_topic,
)
from shared.proof.receipt import Receipt, receipts_of
from shared.runtime.kafka.topic_admin import topic_admin
from tests.support.deploy.stack_fixtures import PATIENCE_S, RunningHifi, wait_until
from tests.support.kafka.config_records import write_config
from tests.support.kafka.kafka_log import read_all

# A JVM starts in ten seconds on two idle cores.
START_S = 240.0


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """A record of a stream, as it was read back."""

    value: Any
    event_id: str
    headers: dict[str, bytes]
    timestamp_ms: int


def document(name: str, source: str, **fields: Any) -> Pipeline:
    return Pipeline.of({"name": name, "from": {"stream": source}, **fields})


async def make_streams(
    kafka: str,
    names: Collection[str],
    *more: TopicSpec,
    partition_count: int = STREAM_PARTITIONS,
) -> None:
    specs = [stream_spec(name, partition_count=partition_count) for name in names]
    async with topic_admin(kafka) as admin:
        await admin.create_missing([*specs, *more])
    await write_config(kafka, [Stream(name, partition_count) for name in names])


def put(kafka: str, *pipelines: Pipeline, partition_count: int = STREAM_PARTITIONS) -> None:
    """Configure pipelines, with the streams that they name and topics for their kept data."""
    names = sorted({stream for pipeline in pipelines for stream in pipeline.streams})
    kept = [spec for pipeline in pipelines if (spec := pipeline.kept_spec)]
    asyncio.run(make_streams(kafka, names, *kept, partition_count=partition_count))
    asyncio.run(write_config(kafka, pipelines))


def states(kafka: str) -> dict[str, PipelineState]:
    known: dict[str, PipelineState] = {}
    for record in asyncio.run(read_all(kafka, PIPELINES)):
        known = dict(with_state(known, record.key, record.value))
    return known


def wait_for_state(kafka: str, pipeline: Pipeline, standing: str, *, within_s: float) -> float:
    """Wait until this document has the state; return how long that took."""
    began_s = time.monotonic()

    def is_so() -> bool:
        state = states(kafka).get(pipeline.name)
        if state is None or state.fingerprint != pipeline.fingerprint:
            return False
        return state.standing == standing

    wait_until(
        is_so,
        what=lambda: f"{pipeline.name} is {standing}: {states(kafka).get(pipeline.name)}",
        timeout_s=within_s,
    )
    return time.monotonic() - began_s


def post_all(hifi: RunningHifi, stream: str, events: Sequence[Any]) -> None:
    for start in range(0, len(events), 1_000):
        _post(hifi, stream, events[start : start + 1_000])


def _post(hifi: RunningHifi, stream: str, events: Sequence[Any]) -> None:
    """Post events until they are accepted: a new stream may have no leader for a moment."""
    until_s = time.monotonic() + PATIENCE_S
    answer = hifi.post(stream, events)
    while answer.status_code == 503 and not answer.json()["accepted"]:
        assert time.monotonic() < until_s, answer.text[:1_000]
        time.sleep(0.1)
        answer = hifi.post(stream, events)
    assert answer.status_code == 200, answer.text[:1_000]


def written(kafka: str, stream: str) -> list[StreamRecord]:
    found = []
    for record in asyncio.run(read_all(kafka, stream_topic(stream))):
        headers = dict(record.headers)
        value = json.loads(record.value)
        found.append(StreamRecord(value, headers[EVENT_ID].decode(), headers, record.timestamp))
    return found


def receipts_told(kafka: str, pipeline: Pipeline) -> list[Receipt]:
    """Return all receipts that a pipeline has written."""
    records = asyncio.run(read_all(kafka, RECEIPTS))
    found = [each for record in records for each in receipts_of(record.value)]
    return [each for each in found if each and each.destination_id == pipeline.lane_id]


def wait_until_all_is_done(hifi: RunningHifi, pipeline: Pipeline, count: int) -> None:
    """Wait until a pipeline's books balance: all passed, filtered or dead, and none on its way."""
    hifi.wait_for_balance(
        pipeline.lane_id,
        lambda balance: balance.acked == count and not (balance.queued or balance.unaccounted),
        what=f"{pipeline.name} is done with all {count}",
        timeout_s=START_S,
    )
