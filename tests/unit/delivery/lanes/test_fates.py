"""States of lanes: whether each is up, when it is retried, and whether it is stuck."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from structlog.testing import capture_logs

from delivery.lanes.fates import HEALTHY_AFTER_S, RESTART_WAIT_S_MAX, Fates
from delivery.lanes.strands.way import Laggard
from delivery.lanes.units import Strand
from delivery.metrics import DeliveryMetrics
from shared.event.record import KafkaPartition

A, B = (Strand("s/a", KafkaPartition("hifi.stream.s", number)) for number in range(2))
OTHER = Strand("s/b", A.where)
STALLED_AFTER_S = 60.0


@dataclass
class WatchedFates:
    """Fates, with what they log and show to Prometheus."""

    metrics: DeliveryMetrics = field(default_factory=DeliveryMetrics)

    def __post_init__(self) -> None:
        self.fates = Fates(self.metrics, STALLED_AFTER_S)

    def shows(self, metric: str, lane: str = "s/a") -> float | None:
        return self.metrics.registry.get_sample_value(
            f"hifi_delivery_{metric}", {"destination": lane}
        )

    def dies(self, strand: Strand, now_s: float, *, is_data_lost: bool = False) -> float:
        """Report a death as the loop does; return the wait that follows."""
        again_s = self.fates.again_s(strand.destination, now_s=now_s)
        self.fates.died(strand, "why", is_data_lost=is_data_lost, now_s=now_s)
        return again_s - now_s

    def looks(self, now_s: float, last: Laggard | None = None) -> Sequence[Mapping[str, Any]]:
        with capture_logs() as logs:
            self.fates.look("s/a", last, now_s=now_s)
        return logs


def test_a_lane_is_up_from_its_first_look_until_it_goes() -> None:
    told = WatchedFates()
    with capture_logs() as logs:
        for _ in range(3):
            told.fates.up("s/a", now_s=1.0)
        assert told.shows("lane_up") == 1
        assert told.fates.names() == {"s/a"}
        told.fates.look("s/a", Laggard(A, 2.0, is_sending=True), now_s=99.0)
        for _ in range(2):
            told.fates.down("s/a")
    assert [each["event"] for each in logs] == ["lane.started", "lane.stalled", "lane.stopped"]
    assert told.fates.names() == set()
    shown = ("lane_up", "lane_stalled_seconds", "progress_age_seconds")
    assert [told.shows(each) for each in shown] == [None] * 3, "the new owner shows its state"
    told.fates.up("s/a", now_s=100.0)
    told.fates.look("s/a", None, now_s=101.0)
    assert [told.shows(each) for each in shown] == [1, 0, 0]


def test_a_lane_that_dies_again_and_again_waits_longer_each_time() -> None:
    told = WatchedFates()
    told.fates.up("s/a", now_s=0.0)
    now_s, waits = 100.0, []
    for _ in range(8):
        waits.append(told.dies(A, now_s))
        now_s += max(1.0, waits[-1])
    assert waits == [0, 1, 3, 7, 15, 30, 30, 30]
    assert waits[-1] == RESTART_WAIT_S_MAX
    assert told.shows("lane_restarts_total") == 8
    # The strand runs, and dies before it has recovered.
    told.fates.went_on(A, now_s=now_s)
    assert told.dies(A, now_s + 1.0) == RESTART_WAIT_S_MAX
    told.fates.went_on(A, now_s=now_s + 2.0)
    told.fates.went_on(A, now_s=now_s + 2.0 + HEALTHY_AFTER_S)
    assert told.dies(A, now_s + 99.0) == 0, "the strand had recovered"


def test_strands_that_fall_together_die_once_whatever_goes_on_beside() -> None:
    told = WatchedFates()
    told.fates.up("s/a", now_s=0.0)
    with capture_logs() as logs:
        assert told.dies(A, 10.0) == 0
        told.fates.went_on(Strand("s/a", KafkaPartition("hifi.stream.s", 2)), now_s=10.1)
        assert told.dies(B, 10.2) <= 0
    (died,) = logs
    assert (died["event"], died["partition"], died["restart_in_s"]) == ("lane.died", 0, 0)
    assert told.shows("lane_restarts_total") == 1


def test_a_lane_is_down_for_as_long_as_one_of_its_strands_is() -> None:
    """Events of that Kafka partition stand still, however well the other strands do."""
    told = WatchedFates()
    told.fates.up("s/a", now_s=0.0)
    told.fates.up("s/b", now_s=0.0)
    told.dies(A, 10.0)
    told.dies(B, 10.0)
    told.fates.went_on(B, now_s=11.0)
    told.fates.went_on(OTHER, now_s=11.0)
    assert (told.shows("lane_up"), told.shows("lane_up", "s/b")) == (0, 1)
    # The earlier deaths still count.
    told.fates.went_on(B, now_s=500.0)
    assert told.dies(A, 501.0) == 1
    told.fates.went_on(A, now_s=502.0)
    assert told.shows("lane_up") == 1


def test_what_one_lane_dies_of_makes_no_other_wait() -> None:
    told = WatchedFates()
    for now_s in (1.0, 5.0, 30.0):
        told.dies(A, now_s)
    assert told.dies(OTHER, 31.0) == 0
    assert told.shows("lane_restarts_total", "s/b") == 1


def test_lost_events_are_told_with_what_can_be_done() -> None:
    told = WatchedFates()
    with capture_logs() as logs:
        told.dies(B, 1.0, is_data_lost=True)
    assert [each["event"] for each in logs] == ["lane.started", "lane.data_lost"]
    assert "docs/guarantees.md" in logs[-1]["advice"]
    assert logs[-1]["partition"] == 1
    assert told.shows("lane_up") == 0, "a lane that dies before the first look is shown, too"


def test_a_lane_that_stands_still_with_work_is_called_stalled_once() -> None:
    told = WatchedFates()
    told.fates.up("s/a", now_s=0.0)
    last = Laggard(B, 10.0, is_sending=True)
    assert told.looks(69.0, last) == []
    assert (told.shows("progress_age_seconds"), told.shows("lane_stalled_seconds")) == (59, 0)
    (stalled,) = told.looks(71.0, last)
    assert (stalled["event"], stalled["lane"], stalled["partition"]) == ("lane.stalled", "s/a", 1)
    assert (stalled["no_progress_for_s"], stalled["doing"]) == (61.0, "sending")
    assert told.looks(80.0, last._replace(is_sending=False)) == []
    assert told.shows("lane_stalled_seconds") == 70
    (goes_on,) = told.looks(81.0, Laggard(B, 80.5, is_sending=False))
    assert goes_on["event"] == "lane.goes_on"
    assert told.shows("lane_stalled_seconds") == 0
    (again,) = told.looks(200.0, Laggard(A, 90.0, is_sending=False))
    assert (again["partition"], again["doing"]) == (0, "waiting for its turn")


def test_a_lane_with_nothing_to_do_does_not_stand_still() -> None:
    told = WatchedFates()
    told.fates.up("s/a", now_s=0.0)
    assert told.looks(9_999.0) == []
    assert told.shows("progress_age_seconds") == 0
    assert told.looks(9_999.0, Laggard(A, 10_020.0, is_sending=False)) == [], (
        "it waits for its batch to fill"
    )
    assert told.shows("progress_age_seconds") == 0


def test_a_pause_is_no_standing_still() -> None:
    told = WatchedFates()
    told.fates.up("s/a", now_s=1_000.0)
    assert told.looks(1_001.0, Laggard(A, 10.0, is_sending=False)) == []
    assert told.shows("progress_age_seconds") == 1


def test_of_whom_nobody_has_heard_nothing_is_said() -> None:
    told = WatchedFates()
    told.fates.went_on(A, now_s=1.0)
    assert told.looks(1.0, Laggard(A, 0.0, is_sending=True)) == []
    assert told.shows("lane_up") is None
    assert told.fates.again_s("s/a", now_s=7.0) == 7.0


def test_a_lane_of_which_nothing_can_begin_is_down_until_it_goes_or_begins() -> None:
    told, waiting = WatchedFates(), {"s/a": ([0, 1], "no leader")}
    told.fates.wait(waiting, now_s=0.0)
    assert told.shows("lane_up") is None, "the lane is new"
    with capture_logs() as logs:
        for now_s in (10.0, 70.0):
            told.fates.wait(waiting, now_s=now_s)
        assert (told.shows("lane_up"), told.shows("lane_stalled_seconds")) == (0, 70)
        # The lane is paused, or another process has it.
        told.fates.wait({}, now_s=71.0)
        assert (told.shows("lane_up"), told.shows("lane_stalled_seconds")) == (None, None)
        told.fates.wait(waiting, now_s=80.0)
        told.fates.wait(waiting, now_s=90.0)
        told.fates.up("s/a", now_s=91.0)
        told.fates.wait({}, now_s=91.0)
    assert told.shows("lane_up") == 1
    assert [each["event"] for each in logs] == [
        "lane.cannot_begin",
        "lane.stopped",
        "lane.cannot_begin",
        "lane.started",
        "lane.begins",
    ]


def test_a_lane_that_begins_at_last_is_up_only_if_nothing_of_it_is_down() -> None:
    told, waiting = WatchedFates(), {"s/a": ([0], "no leader")}
    told.fates.up("s/a", now_s=0.0)
    told.fates.wait(waiting, now_s=0.0)
    told.dies(B, 1.0)
    told.fates.wait(waiting, now_s=10.0)
    told.fates.wait({}, now_s=11.0)
    assert told.shows("lane_up") == 0
    told.fates.went_on(B, now_s=12.0)
    assert told.shows("lane_up") == 1
