"""Records of several processes are merged exactly, with the result of every request."""

import random

import msgspec
import pytest

from loadtests.recorder import PERCENTILES, Recorder, Times, merged, slope


def samples(seed: int, count: int) -> list[float]:
    random_ = random.Random(seed)
    return [random_.lognormvariate(-4, 1.5) for _ in range(count)]


def note_all(recorder: Recorder, values: list[float], *, worker: int) -> None:
    for nth, seconds in enumerate(values):
        recorder.note_offered(nth / 100)
        recorder.note_answer(
            "200", is_good=True, due_s=1.0, sent_s=1.001, ended_s=1.0 + seconds, events=2
        )
        recorder.note_acked(worker, [(2 * nth, 2 * nth + 2)])


def test_reports_of_two_workers_come_to_the_union_of_their_samples() -> None:
    """Issue 16, A3: counts are exact, percentiles within 0.1 %, also when sent through Locust."""
    master, alone = Recorder(), Recorder()
    for worker in (0, 1):
        recorder = Recorder()
        for part in range(3):
            values = samples(10 * worker + part, 2_000)
            note_all(recorder, values, worker=worker)
            note_all(alone, values, worker=worker)
            recorder.note_used(worker, 0.1 * (part + 1), 1.0 + part)
            sent = msgspec.msgpack.encode(recorder.take())
            master.merge(msgspec.msgpack.decode(sent))
        assert recorder.take()["counts"] == {}, "a count must not be taken twice"
    assert master.counts == alone.counts
    assert master.answers == {"200": 12_000}
    assert master.seconds == alone.seconds
    assert master.times["due"].count == 12_000
    for percentile in PERCENTILES:
        found, true = master.times["due"].ms(percentile), alone.times["due"].ms(percentile)
        assert found == pytest.approx(true, rel=0.001)
    assert {worker: merged(ranges) for worker, ranges in master.acked.items()} == {
        0: [(0, 4_000)],
        1: [(0, 4_000)],
    }
    assert master.cpu_share == pytest.approx(0.1)


def test_a_percentile_is_right_by_three_digits() -> None:
    values, times = sorted(samples(3, 5_000)), Times()
    for value in values:
        times.note(value)
    for percentile in (50, 90, 99, 99.9):
        true_ms = 1000 * values[round(percentile / 100 * len(values)) - 1]
        assert times.ms(percentile) == pytest.approx(true_ms, rel=0.002)


def test_what_is_longer_than_an_hour_is_counted_all_the_same() -> None:
    times = Times()
    times.note(10_000)
    times.note(0)
    assert times.count == 2
    assert times.ms(100) == pytest.approx(3_600_000, rel=0.001)


def test_ranges_are_joined_where_they_touch() -> None:
    assert merged([(4, 6), (0, 2), (2, 4), (8, 9), (5, 6)]) == [(0, 6), (8, 9)]


def test_a_slope_is_that_of_the_straight_line() -> None:
    assert slope([(0, 1), (1, 3), (2, 5)]) == pytest.approx(2)
    assert slope([(1, 5)]) == 0
    assert slope([]) == 0
