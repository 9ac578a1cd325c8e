"""How many events a destination is given at once."""

import pytest

from delivery.lanes.pace import events_max, publish_every_ms, requests_max
from delivery.settings import DeliverySettings
from shared.config.destination import Destination
from shared.flow.concurrency import Concurrency
from shared.flow.flow import Flow
from shared.flow.flow_record import FlowRecord


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


@pytest.mark.parametrize(("count", "every_ms"), [(1, 1_000), (1_000, 5_000), (100_000, 10_000)])
def test_of_many_destinations_each_is_told_less_often(count: int, every_ms: int) -> None:
    assert publish_every_ms(count) == every_ms
