"""A replacement may take a pipeline's place once it has read as far, and not earlier."""

from pipelines.jobs.succession import _Chase
from pipelines.lanes.lane import PipelineLane
from shared.event.record import KafkaPartition
from shared.runtime.kafka.leases.fenced_positions import Reach

A, B = (KafkaPartition("hifi.stream.s", number) for number in range(2))


def lane(at: int, other: int) -> PipelineLane:
    """Return a lane at `at` in one Kafka partition, and at the end of the other."""
    found = PipelineLane("s/pipeline:p", "acme", 1, 100)
    found.reaches = {A: Reach(at, at), B: Reach(50, 50)}
    found.limits = {A: other, B: 50}
    return found


def test_little_that_nobody_has_read_is_not_near() -> None:
    chase = _Chase({A: 600, B: 50}, since_s=0.0)
    assert not chase.look(lane(0, 600), 1.0)
    assert not chase.look(lane(599, 600), 2.0)
    assert chase.look(lane(600, 600), 3.0)
    # The replacement stays level while nothing more arrives.
    assert all(chase.look(lane(600, 600), float(now_s)) for now_s in range(4, 60))


def test_a_long_way_is_followed_by_shorter_ones_until_the_last_takes_seconds() -> None:
    chase = _Chase({A: 1_000_000, B: 50}, since_s=0.0)
    assert not chase.look(lane(1_000_000, 1_040_000), 200.0), "the limit is 200 s old"
    assert not chase.look(lane(1_020_000, 1_044_000), 205.0)
    assert chase.look(lane(1_040_000, 1_045_000), 208.0)
    assert chase.look(lane(1_044_000, 1_050_000), 230.0)
    assert not chase.look(lane(1_044_500, 1_060_000), 240.0), "it has fallen behind meanwhile"


def test_a_kafka_partition_that_it_has_not_come_to_is_not_read() -> None:
    one = lane(600, 600)
    del one.reaches[B]
    assert not _Chase({A: 600, B: 50}, since_s=0.0).look(one, 1.0)
