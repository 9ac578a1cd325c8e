"""The record sizes of a topic are those that our own code writes."""

import json
import uuid

import cramjam
import pytest

from gateway.intake.admission import Format
from gateway.intake.event_finder import EventLimits, find_events
from gateway.intake.events import Context, read_events
from gateway.intake.record_batch import RecordBatch
from shared.proof.acked import AckedRow, AckedSlice
from shared.scale.ask import Ask
from shared.scale.topic_sizes import (
    LEDGER_EVENT_BYTES,
    STREAM_OVERHEAD_BYTES,
    days,
    topic_sizes,
)

LIMITS = EventLimits(events_max=5_000, event_bytes_max=10_000, json_depth_max=5)


@pytest.mark.parametrize("event_bytes", [200, 500, 2_000])
@pytest.mark.parametrize("has_id", [True, False])
def test_an_event_in_kafka_is_so_much_larger(event_bytes: int, *, has_id: bool) -> None:
    events = []
    for _ in range(1_000):
        event = {"id": str(uuid.uuid4()), "x": ""} if has_id else {"x": ""}
        event["x"] = "a" * (event_bytes - len(json.dumps(event, separators=(",", ":"))))
        events.append(event)
    body = json.dumps(events, separators=(",", ":")).encode()
    context = Context(id_base=str(uuid.uuid4()), accepted_at_ms=1_700_000_000_000)
    parsed = read_events(find_events(body, Format.JSON, LIMITS), context=context, limits=LIMITS)
    batch = RecordBatch(bytes_max=10_000_000)
    assert batch.fill(parsed.events, 1_700_000_000_000) == 1_000
    assert batch.byte_count / 1_000 - event_bytes == pytest.approx(STREAM_OVERHEAD_BYTES, rel=0.05)


def test_an_id_in_the_ledger_is_half_its_size() -> None:
    slices = tuple(
        AckedSlice(at, ((100, 1_700_000_000_000),), 1_700_000_000_000 + at, str(uuid.uuid4()), 100)
        for at in range(0, 20_000, 100)
    )
    ids = tuple(str(uuid.uuid4()) for _ in range(20_000))
    row = AckedRow("topic", 0, slices, ids).to_bytes()
    stored = len(bytes(cramjam.zstd.compress(row, 3))) / 20_000
    assert stored == pytest.approx(LEDGER_EVENT_BYTES, rel=0.05)


def test_5_tb_a_day_at_120000_events_a_second() -> None:
    ask = Ask(120_000, event_bytes=482)
    sizes = topic_sizes(ask, delivery_instances=3, partition_mb_s=15)
    stream = sizes[0]
    assert ask.events_per_s * ask.event_bytes * 86_400 == pytest.approx(5e12, rel=0.001)
    assert stream.in_bytes_s == 120_000 * (482 + 117)
    assert stream.stored_bytes == stream.in_bytes_s * 7 * 86_400
    assert stream.out_bytes_s == stream.in_bytes_s
    assert days(stream) == 7
    # 71.9 MB/s at 7.5 a partition are ten, or 15 with room to grow.
    assert stream.partitions == 24
    assert {size.partitions for size in sizes[1:]} == {3}
