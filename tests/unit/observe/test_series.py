"""Steps are folded into coarser ones, survive a restart, and take bounded room."""

import math
import os
from itertools import pairwise
from pathlib import Path

import pytest

from observe.series.ring_file import RingFile
from observe.series.rings import Rings
from observe.series.steps import (
    RANGES,
    STEP_MS,
    UNKNOWN,
    DestinationStep,
    StreamStep,
    statuses,
    wider,
)
from shared.proof.log_buckets import LogBuckets
from tests.support.console.past_series import WELL, an_ended, fill, open_series
from tests.support.suite import samples

# A step at which a step of each range begins.
FIRST = 497_000 * 360
NONE = LogBuckets()


def lags(*values_ms: int) -> LogBuckets:
    return samples.log_buckets(list(values_ms))


def rings(folder: Path, names_max: int = 10) -> Rings[DestinationStep]:
    return Rings(folder / "destinations", DestinationStep, names_max=names_max)


def test_each_range_is_of_whole_steps_of_the_one_before_and_none_is_of_more_than_200() -> None:
    for finer, coarser in pairwise(RANGES):
        assert coarser.step_ms % finer.step_ms == 0
    assert [each.steps * each.step_ms / 60_000 for each in RANGES] == [15, 60, 360, 1440, 10_080]
    assert max(each.steps for each in RANGES) <= 200


def test_counts_add_up_and_the_highest_of_the_rest_counts_in_every_range(tmp_path: Path) -> None:
    kept = rings(tmp_path)
    for number in range(360):
        step = WELL._replace(delivered=number, backlog=number % 7, oldest_s=number % 11)
        assert kept.end_step(FIRST + number, {"orders/shop": (step, lags(100 + number))})
    for level, shown in enumerate(RANGES):
        newest = kept.read("orders/shop", level, FIRST + 359)[-1]
        assert newest is not None
        of = shown.step_ms // STEP_MS
        assert newest.covered_s == 10 * of
        assert newest.delivered == sum(range(360 - of, 360))
        assert newest.backlog == max(number % 7 for number in range(360 - of, 360))
        assert newest.oldest_s == max(number % 11 for number in range(360 - of, 360))
        exact_s = (100 + 360 - of + math.ceil(0.95 * of) - 1) / 1000
        assert newest.p95_s == pytest.approx(exact_s, rel=0.06)


def test_a_step_that_goes_on_is_shown_and_a_restart_loses_none_of_it(tmp_path: Path) -> None:
    kept = rings(tmp_path)
    for number in range(100):
        kept.end_step(FIRST + number, {"orders/shop": (WELL, lags(200))})
    before = [kept.read("orders/shop", level, FIRST + 99) for level in range(len(RANGES))]
    kept.close()
    again = rings(tmp_path)
    assert again.newest == FIRST + 99
    for level, steps in enumerate(before):
        assert again.read("orders/shop", level, FIRST + 99)[:-1] == steps[:-1]
        newest, then = again.read("orders/shop", level, FIRST + 99)[-1], steps[-1]
        assert newest is not None
        assert then is not None
        assert newest[:10] == then[:10]
        assert newest.p95_s == pytest.approx(then.p95_s, rel=0.05)
    # The series continues from its old state, and the hour has all of its steps.
    for number in range(100, 361):
        again.end_step(FIRST + number, {"orders/shop": (WELL, lags(200))})
    hour = again.read("orders/shop", 4, FIRST + 360)[-2]
    assert hour is not None
    assert hour.delivered == 360 * WELL.delivered


def test_nothing_is_known_of_when_nobody_looked_and_old_rounds_of_a_ring_are_not_shown(
    tmp_path: Path,
) -> None:
    kept = rings(tmp_path)
    kept.end_step(FIRST, {"orders/shop": (WELL, NONE)})
    kept.end_step(FIRST + 3, {"orders/shop": (WELL, NONE)})
    shown = kept.read("orders/shop", 0, FIRST + 4)
    assert [each is not None for each in shown[-5:]] == [True, False, False, True, False]
    assert kept.read("orders/shop", 0, FIRST + 90)[0] is None
    assert not any(kept.read("orders/shop", 0, FIRST + 400))
    assert not any(kept.read("orders/other", 0, FIRST))
    # The destination went away after half of a 30 s step: that half is kept.
    kept.end_step(FIRST + 50, {"orders/shop": (WELL, NONE)})
    half = kept.read("orders/shop", 1, FIRST + 50)[-1 - 16]
    assert half is not None
    assert half.covered_s == 10


def test_a_name_takes_40_kb_and_one_that_is_gone_makes_room(tmp_path: Path) -> None:
    kept = rings(tmp_path, names_max=2)
    size = (tmp_path / "destinations").stat
    kept.end_step(FIRST, {"a/one": (WELL, NONE), "a/two": (WELL, NONE)})
    full = size().st_size
    assert full <= 4_096 + 2 * 40_000
    # A new series does not push out the existing ones.
    three = {"a/one": (WELL, NONE), "a/two": (WELL, NONE), "a/three": (WELL, NONE)}
    assert not kept.end_step(FIRST + 1, three)
    del three["a/one"]
    assert kept.end_step(FIRST + 2, three)
    assert [each is not None for each in kept.read("a/three", 0, FIRST + 2)[-2:]] == [False, True]
    assert not any(kept.read("a/one", 0, FIRST + 2))
    assert all(kept.read("a/two", 0, FIRST + 2)[-3:])
    assert size().st_size == full


def test_a_file_of_another_release_is_begun_anew_and_one_that_was_cut_is_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "kept"
    ring = RingFile(path, width=2, names_max=9)
    for name in ("a", "b"):
        ring.enter(name, iter(()))
        ring.write(name, 0, FIRST, (10.0, 7.0))
    ring.end_step(FIRST)
    ring.close()
    os.truncate(path, path.stat().st_size - 10)
    ring = RingFile(path, width=2, names_max=9)
    assert list(ring.rings) == ["a"]
    assert ring.read("a", 0, FIRST, 90)[-1] == (10.0, 7.0)
    ring.close()
    wide = RingFile(path, width=3, names_max=9)
    assert not wide.rings
    assert wide.newest == 0


def test_places_that_a_lost_machine_left_empty_are_given_to_others(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    ring = RingFile(path, width=2, names_max=3)
    for name in ("a", "b", "c"):
        assert ring.enter(name, iter(()))
        ring.write(name, 0, FIRST, (float(ord(name)), 7.0))
    ring.end_step(FIRST)
    rings = sorted(ring.rings.values())
    ring.close()
    whole = path.stat().st_size
    ring_bytes = (whole - 4_096) // 3
    with path.open("r+b") as file:
        for number in rings[:2]:
            file.seek(4_096 + number * ring_bytes)
            file.write(bytes(ring_bytes))
    ring = RingFile(path, width=2, names_max=3)
    assert list(ring.rings) == ["c"]
    for name in ("d", "e"):
        assert ring.enter(name, iter(()))
        assert ring.read(name, 0, FIRST, 1) == [None]
    assert not ring.enter("f", iter(()))
    assert sorted(ring.rings.values()) == rings
    assert ring.read("c", 0, FIRST, 1) == [(99.0, 7.0)]
    assert path.stat().st_size == whole


def test_a_step_that_the_disk_took_in_part_counts_once_when_it_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = rings(tmp_path)
    both = {"a/one": (WELL, NONE), "a/two": (WELL, NONE)}
    kept.end_step(FIRST, both)
    write = os.pwrite
    room = [1]

    def full(file: int, written: bytes, at: int) -> int:
        room[0] -= 1
        return write(file, written if room[0] >= 0 else written[:7], at)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        kept.end_step(FIRST + 1, both)
    assert kept.newest == FIRST
    room[0] = 1_000
    assert kept.end_step(FIRST + 1, both)
    for name in both:
        for level in range(len(RANGES)):
            newest = kept.read(name, level, FIRST + 1)[-1]
            assert newest is not None
            assert newest.delivered == WELL.delivered * (2 if level else 1)


def test_a_clock_that_was_set_back_begins_a_past_of_its_own(tmp_path: Path) -> None:
    kept = rings(tmp_path)
    for number in range(3):
        kept.end_step(FIRST + 50_000 + number, {"a/one": (WELL, NONE)})
    for number in range(4):
        kept.end_step(FIRST + number, {"a/one": (WELL._replace(delivered=5), NONE)})
    assert kept.newest == FIRST + 3
    for level in range(len(RANGES)):
        newest = kept.read("a/one", level, FIRST + 3)[-1]
        assert newest is not None
        of = min(4, RANGES[level].step_ms // STEP_MS)
        assert newest.delivered == 5 * (1 if level == 1 else of)


def test_several_together_are_the_sums_and_the_highest_lag(tmp_path: Path) -> None:
    series = open_series(tmp_path)
    now_ms = (FIRST + 92) * STEP_MS
    fill(series, now_ms=now_ms)
    past = series.past(["orders"], ["orders/billing", "orders/lake"], 0, now_ms=now_ms)
    assert len(past.moments) == 90
    newest = past.moments[-1]
    assert newest.at_ms == (FIRST + 90) * STEP_MS
    assert newest.accepted == StreamStep(10, 1_000)
    assert newest.taken is not None
    assert (newest.taken.delivered, newest.taken.failed, newest.taken.broken) == (1_000, 300, 30)
    assert newest.taken.success == pytest.approx(1_000 / 1_300)
    assert newest.taken.covered_s == 10
    assert newest.taken.backlog == 12 + 8_900
    assert newest.taken.oldest_s == 890
    assert newest.taken.p95_s == pytest.approx(0.2, rel=0.02)
    # A later look returns the same until there is news.
    assert series.past(["orders"], ["orders/billing", "orders/lake"], 0, now_ms=now_ms) is past
    series.end_step(FIRST + 91, an_ended(90))
    news = series.past(["orders"], ["orders/lake"], 0, now_ms=now_ms + STEP_MS)
    assert news.moments[-1].taken is not None
    assert news.moments[-1].taken.backlog == 9_000
    assert (
        open_series(tmp_path / "none").past(["orders"], ["orders/lake"], 4, now_ms=now_ms).is_empty
    )


def test_requests_by_what_came_of_them() -> None:
    reasons = {"status_200": 5, "status_204": 1, "status_429": 2, "status_404": 3, "status_302": 1,
               "status_503": 4, "connect_refused": 6, "other": 1, "": 9}  # fmt: skip
    assert statuses(reasons) == (6, 4, 2, 4, 7)


def test_an_unknown_figure_is_never_the_highest() -> None:
    one = DestinationStep(p95_s=UNKNOWN, oldest_s=3.0)
    other = DestinationStep(p95_s=2.0, oldest_s=UNKNOWN)
    for both in (one.plus(other), other.plus(one), one.beside(other)):
        assert (both.p95_s, both.oldest_s) == (2.0, 3.0)
        assert math.isnan(both.backlog)
        assert math.isnan(both.success)


def test_coarser_lags_keep_their_quantiles_within_five_parts_of_a_hundred() -> None:
    found = lags(*range(0, 100_000, 7))
    for part in (0.5, 0.95, 0.99):
        assert wider(found).quantile(part) == pytest.approx(found.quantile(part), rel=0.051)
    assert wider(lags(0, 0)).quantile(0.95) == 0
    assert len(wider(found).counts) < len(found.counts) / 4
