"""A task that may not send makes room for those that can, until its lane is to end."""

import threading
import time
from pathlib import Path

import pytest

from delivery.pace import Pace
from delivery.settings import DeliverySettings
from delivery.spark.lane import announce_end


def test_only_the_first_task_makes_its_micro_batch_last(tmp_path: Path) -> None:
    turns, mark = tmp_path / "turns", tmp_path / "ends"
    for _ in range(20):
        first = Pace.of_task(is_first=True, time_box_s=5.0, turns=turns, end_mark=mark)
        other = Pace.of_task(is_first=False, time_box_s=5.0, turns=turns, end_mark=mark)
        assert 4.0 <= first.lasts_s <= 5.0
        assert (other.lasts_s, other.turns) == (0.0, None)
        assert 0.0 <= other.spread_s <= first.spread_s <= 2.0
        assert first.end_mark == other.end_mark == mark


def test_ends_are_apart_and_come_no_sooner_than_they_may(tmp_path: Path) -> None:
    begun_s = time.monotonic()
    pace = Pace(lasts_s=0.3, turns=tmp_path / "turns")
    pace.before_end(begun_s=begun_s, was_refused=True)
    assert time.monotonic() - begun_s >= 0.3
    # It had something to send, and takes its turn all the same.
    pace.before_end(begun_s=begun_s, was_refused=False)
    assert time.monotonic() - begun_s >= 0.7


@pytest.mark.timeout(30)
def test_a_lane_that_is_to_end_waits_for_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "ends"
    pace = Pace(spread_s=60.0, lasts_s=60.0, turns=tmp_path / "turns", end_mark=mark)
    announcing = threading.Timer(0.2, mark.touch)
    announcing.start()
    begun_s = time.monotonic()
    pace.before_handing_over()
    pace.before_end(begun_s=begun_s, was_refused=True)
    announcing.join()
    assert 0.2 <= time.monotonic() - begun_s < 30


def test_a_disk_that_takes_no_mark_keeps_no_lane_from_ending(tmp_path: Path) -> None:
    settings = DeliverySettings(folder=tmp_path)
    with pytest.raises(FileNotFoundError):
        (settings.checkpoints / "s" / "d.ends").touch()
    announce_end("s/d", settings)
    (settings.checkpoints / "s").mkdir(parents=True)
    announce_end("s/d", settings)
    assert (settings.checkpoints / "s" / "d.ends").exists()
