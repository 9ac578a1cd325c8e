"""Where a lane goes on after its latency changed, and which events it may send a second time."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from delivery.settings import DeliverySettings
from delivery.spark import lane
from shared.config.destination import Destination, Latency
from shared.event.record import KafkaPartition, Position
from shared.runtime.kafka.lane_positions import Told

TOPIC = "hifi.stream.s"


def log(folder: Path, kind: str, number: int, offset: int) -> None:
    (folder / kind).mkdir(parents=True, exist_ok=True)
    text = f"v1\n{{}}\n{json.dumps({TOPIC: {'0': offset}})}"
    (folder / kind / str(number)).write_text(text)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeliverySettings:
    kafka_knows(monkeypatch, {})
    return DeliverySettings(folder=tmp_path)


def kafka_knows(monkeypatch: pytest.MonkeyPatch, known: Position) -> None:
    ends = {KafkaPartition(TOPIC, 0): 99, KafkaPartition(TOPIC, 1): 7}
    monkeypatch.setattr(lane, "_told", lambda *_: Told(known, ends))


def begin(settings: DeliverySettings, latency: Latency) -> tuple[str | None, int]:
    to = Destination(stream="s", name="d", url="http://localhost/", latency=latency)
    begin = lane._begin(to, settings)
    # Also a time that the destination says must not count any more.
    options = lane.source_options(replace(to, start=7), settings, begin=begin.start)
    assert ("startingTimestamp" in options) == (begin.start is None)
    return options.get("startingOffsets"), begin.maybe_sent.get(KafkaPartition(TOPIC, 0), 0)


def at(offset: int) -> str:
    return json.dumps({TOPIC: {"0": offset}})


def test_a_first_start_has_nothing_behind_it(settings: DeliverySettings) -> None:
    assert begin(settings, "micro-batch") == (None, 0)
    assert begin(settings, "realtime") == (None, 0)


def test_real_time_begins_where_micro_batches_ended(settings: DeliverySettings) -> None:
    micro_batch = lane.checkpoint_of(settings, "s/d", "micro-batch")
    log(micro_batch, "offsets", 0, 5)
    log(micro_batch, "commits", 0, 0)
    assert begin(settings, "realtime") == (at(5), 0)
    # A planned micro-batch that was cut off may have been sent.
    log(micro_batch, "offsets", 1, 8)
    assert begin(settings, "realtime") == (at(5), 8)


def test_a_lane_says_how_far_it_is_before_it_goes_on(settings: DeliverySettings) -> None:
    to = Destination(stream="s", name="d", url="http://localhost/")
    assert lane._begin(to, settings).at == {KafkaPartition(TOPIC, 0): 0}
    assert lane._begin(replace(to, start="latest"), settings).at == {}
    goes: tuple[tuple[Latency, int], ...] = (("realtime", 4), ("micro-batch", 5))
    for latency, offset in goes:
        checkpoint = lane.checkpoint_of(settings, "s/d", latency)
        log(checkpoint, "offsets", 0, offset)
        assert lane._begin(to, settings).at == {KafkaPartition(TOPIC, 0): 4 if offset == 5 else 0}
        # An older one is set aside at each beginning.
        log(checkpoint, "offsets", 0, offset)
        log(checkpoint, "commits", 0, 0)
        assert lane._begin(to, settings).at == {KafkaPartition(TOPIC, 0): offset}
        assert lane._begin(replace(to, latency="realtime"), settings).at == {
            KafkaPartition(TOPIC, 0): offset
        }


def test_what_real_time_sent_before_its_first_commit_is_called_a_possible_repeat(
    settings: DeliverySettings,
) -> None:
    micro_batch = lane.checkpoint_of(settings, "s/d", "micro-batch")
    log(micro_batch, "offsets", 0, 5)
    log(micro_batch, "commits", 0, 0)
    lane.checkpoint_of(settings, "s/d", "realtime").mkdir(parents=True)
    assert begin(settings, "realtime") == (at(5), 99)


def test_micro_batches_go_on_where_real_time_was_and_call_the_rest_possible_repeats(
    settings: DeliverySettings,
) -> None:
    micro_batch = lane.checkpoint_of(settings, "s/d", "micro-batch")
    realtime = lane.checkpoint_of(settings, "s/d", "realtime")
    for folder, offset in ((micro_batch, 5), (realtime, 20)):
        log(folder, "offsets", 0, offset)
        log(folder, "commits", 0, 0)
    assert begin(settings, "micro-batch") == (at(20), 99)
    assert not micro_batch.exists()
    # And real time, were it to go on instead, has its own position.
    assert begin(settings, "realtime") == (None, 99)


@pytest.mark.parametrize("start", ["earliest", "latest", 7])
@pytest.mark.parametrize("latency", ["micro-batch", "realtime"])
def test_a_lane_that_has_lost_its_checkpoint_goes_on_where_kafka_says(
    settings: DeliverySettings,
    monkeypatch: pytest.MonkeyPatch,
    start: Literal["earliest", "latest"] | int,
    latency: Latency,
) -> None:
    known = {KafkaPartition(TOPIC, 0): 60}
    kafka_knows(monkeypatch, known)
    to = Destination(stream="s", name="d", url="http://localhost/", start=start, latency=latency)
    begin = lane._begin(to, settings)
    assert begin.at == known
    # A Kafka partition that is new since then is read from its beginning.
    options = lane.source_options(to, settings, begin=begin.start)
    assert json.loads(options["startingOffsets"]) == {TOPIC: {"0": 60, "1": -2}}
    # Nobody knows what was under way.
    assert begin.maybe_sent == {KafkaPartition(TOPIC, 0): 99, KafkaPartition(TOPIC, 1): 7}


def test_a_checkpoint_comes_before_what_kafka_was_told(
    settings: DeliverySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    micro_batch = lane.checkpoint_of(settings, "s/d", "micro-batch")
    log(micro_batch, "offsets", 0, 5)
    log(micro_batch, "commits", 0, 0)
    kafka_knows(monkeypatch, {KafkaPartition(TOPIC, 0): 4})
    assert begin(settings, "micro-batch") == (None, 0)
