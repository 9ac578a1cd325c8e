"""How a lane reads: where a new one begins, how much it takes at once, how long it lingers."""

import pytest

from delivery.settings import DeliverySettings
from delivery.spark.lane import events_max, source_options
from shared.config.destination import Destination, Start
from shared.flow.concurrency import Concurrency
from shared.flow.flow import Flow
from shared.flow.flow_record import FlowRecord


def to(**settings: object) -> Destination:
    return Destination(stream="s", name="d", url="http://localhost/", **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", {"startingOffsets": "earliest"}),
        ("latest", {"startingOffsets": "latest"}),
        (
            1_700_000_000_000,
            {
                "startingTimestamp": "1700000000000",
                "startingOffsetsByTimestampStrategy": "latest",
            },
        ),
    ],
)
def test_a_new_lane_begins_where_its_destination_says(
    start: Start, expected: dict[str, str]
) -> None:
    options = source_options(to(start=start), DeliverySettings())
    assert {name: text for name, text in options.items() if name.startswith("starting")} == expected
    assert options["failOnDataLoss"] == "true"


def test_only_a_destination_that_lingers_waits_for_its_batch_to_fill() -> None:
    assert "maxTriggerDelay" not in source_options(to(), DeliverySettings())
    options = source_options(to(linger_s=1.5, batch_count_max=200), DeliverySettings())
    assert (options["minOffsetsPerTrigger"], options["maxTriggerDelay"]) == ("200", "1500ms")


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
def test_a_micro_batch_is_what_can_be_sent_in_half_its_time_box(
    settings: dict[str, object], expected: int
) -> None:
    assert events_max(to(**settings), DeliverySettings()) == expected


@pytest.mark.parametrize(("usual_ms", "expected"), [(0, 100), (5, 400), (500, 20), (9_000, 4)])
def test_a_slow_destination_gets_small_micro_batches_once_it_is_known(
    usual_ms: float, expected: int
) -> None:
    known = FlowRecord(Flow(concurrency=Concurrency(mean_ms=usual_ms)))
    assert events_max(to(batch_count_max=1), DeliverySettings(), known) == expected
