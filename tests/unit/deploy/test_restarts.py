"""Restarts of dead processes, and reports about processes that die again and again."""

from pathlib import Path

from deploy.local.restarts import Restarts
from shared.runtime.files.service_deaths import read_deaths, write_deaths

MINUTE_MS = 60_000


def test_three_times_at_once_then_ever_later() -> None:
    restarts, at_ms, pauses = Restarts(), 0, []
    for _ in range(9):
        assert not restarts.is_down("delivery")
        death = restarts.died("delivery", "was ended by SIGKILL", "no more.", now_ms=at_ms)
        pauses.append((death.again_at_ms - at_ms) // 1000)
        assert restarts.is_down("delivery")
        if pauses[-1]:
            assert not restarts.is_due("delivery", now_ms=death.again_at_ms - 1)
        assert restarts.is_due("delivery", now_ms=death.again_at_ms)
        restarts.started("delivery")
        at_ms = death.again_at_ms
    assert pauses == [0, 0, 0, 5, 10, 20, 40, 60, 60]


def test_one_that_has_lived_for_ten_minutes_is_well_again() -> None:
    restarts = Restarts()
    for _ in range(4):
        last = restarts.died("gateway", "ended with exit code 1", "no more.", now_ms=0)
    assert last.count == 4
    later_ms = last.again_at_ms + 10 * MINUTE_MS
    assert restarts.again_and_again(now_ms=later_ms) == []
    again = restarts.died("gateway", "ended with exit code 1", "no more.", now_ms=later_ms)
    assert (again.count, again.again_at_ms) == (1, later_ms)


def test_it_says_who_how_often_why_and_when(tmp_path: Path) -> None:
    restarts = Restarts()
    restarts.died("observe", "ended with exit code 1", "no more.", now_ms=0)
    for _ in range(5):
        restarts.died("gateway", "ended with exit code 1", "no room (its log is L).", now_ms=0)
    (death,) = restarts.again_and_again(now_ms=0)
    write_deaths(path := tmp_path / "deaths.json", [death])
    (read,) = read_deaths(path)
    assert read.sentence(now_ms=1) == (
        "gateway ended with exit code 1, 5 times in ten minutes, and is started again in 10 s:"
        " no room (its log is L)."
    )
    assert "and has been started again: no room" in read.sentence(now_ms=death.again_at_ms)


def test_a_file_that_is_not_there_or_broken_says_nothing(tmp_path: Path) -> None:
    assert read_deaths(None) == ()
    assert read_deaths(tmp_path / "none.json") == ()
    (tmp_path / "half.json").write_text('[{"name": ')
    assert read_deaths(tmp_path / "half.json") == ()


def test_deaths_that_were_meant_do_not_count() -> None:
    restarts = Restarts()
    for _ in range(5):
        restarts.died("gateway", "was ended by SIGKILL", "no more.", now_ms=0)
    restarts.forgive()
    assert restarts.is_due("gateway", now_ms=0)
    assert restarts.again_and_again(now_ms=0) == []
    assert restarts.died("gateway", "was ended by SIGKILL", "no more.", now_ms=0).count == 1
