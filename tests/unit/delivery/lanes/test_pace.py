"""How many events a destination is given at once."""

from dataclasses import replace

import pytest

from delivery.lanes.pace import LaneMaker, events_max, publish_every_ms, requests_max
from delivery.lanes.units import JobKind
from delivery.settings import DeliverySettings
from shared.config.configuration import Configuration, Stream
from shared.config.destination import Destination
from shared.flow.batch_size import BatchSize
from shared.flow.concurrency import Concurrency
from shared.flow.flow import Flow
from shared.flow.flow_record import FlowRecord
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.state_topic import StateFeed


def to(**settings: object) -> Destination:
    return Destination(stream="s", name="d", url="http://localhost/", **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 20_000),
        ({"parallel_max": 1, "batch_count_max": 10}, 250),
        ({"body_format": "single"}, 100),
        ({"rate_per_s": 7.5}, 15),
        ({"rate_per_s": 0.1}, 1),
    ],
)
def test_it_is_what_can_be_sent_in_half_its_time_box(
    settings: dict[str, object], expected: int
) -> None:
    assert events_max(to(**settings), DeliverySettings()) == expected


@pytest.mark.parametrize(("usual_ms", "expected"), [(0, 100), (5, 400), (500, 20), (9_000, 4)])
def test_a_slow_destination_is_given_few_once_it_is_known(usual_ms: float, expected: int) -> None:
    known = FlowRecord(Flow(concurrency=Concurrency(mean_ms=usual_ms)))
    assert events_max(to(batch_count_max=1), DeliverySettings(), known) == expected


@pytest.mark.parametrize(("usual_ms", "expected"), [(0, 50), (500, 10), (9_000, 2)])
def test_of_requests_it_is_given_as_many_as_it_answers_in_that_time(
    usual_ms: float, expected: int
) -> None:
    known = FlowRecord(Flow(concurrency=Concurrency(mean_ms=usual_ms)))
    assert requests_max(to(parallel_max=2), DeliverySettings(), known) == expected


def test_who_refuses_some_is_given_what_its_requests_can_find_out_in_that_time() -> None:
    known = FlowRecord(Flow(Concurrency(mean_ms=1_000), batch_size=BatchSize(events=8.0)))
    # Two rounds of 32 requests of two events each, as batches are halved; and 128 events besides.
    assert events_max(to(parallel_max=32), DeliverySettings(), known) == 2 * 32 * 2 + 32 * 4


@pytest.mark.parametrize(("count", "every_ms"), [(1, 1_000), (500, 5_000), (100_000, 10_000)])
def test_of_many_destinations_each_is_told_less_often(count: int, every_ms: int) -> None:
    assert publish_every_ms(count) == every_ms


def maker() -> LaneMaker:
    return LaneMaker(DeliverySettings(), ConfigFeed("kafka:1"), StateFeed("kafka:1"))


def test_a_lane_is_made_anew_when_something_is_heard_of_it_and_not_for_each_plan() -> None:
    lanes, destination = maker(), to()
    first = lanes.lane(destination)
    assert lanes.lane(destination) is first
    lanes.states.value = {destination.id: FlowRecord(Flow(concurrency=Concurrency(mean_ms=500.0)))}
    slower = lanes.lane(destination)
    assert slower.strands_max < first.strands_max
    assert lanes.lane(destination) is slower
    # A lane uses the present configuration, though the loop may have heard only part of it.
    other = replace(destination, parallel_max=1)
    assert lanes.lane(other).destination is other
    assert lanes.lane(destination).destination is destination
    lanes.config.value = Configuration(streams={"s": Stream("s", tenant="acme")})
    assert lanes.lane(destination).tenant == "acme"


def test_who_is_in_trouble_is_looked_at_each_time_as_its_rest_is_by_lot() -> None:
    lanes, disabled = maker(), to(is_disabled=True)
    rests = {lanes.lane(disabled).rest_s for _ in range(20)}
    assert len(rests) > 1
    assert lanes.lane(disabled).kind is JobKind.APART
