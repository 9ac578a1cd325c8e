"""The sink of a rating counts arrived, missing and repeated events, and measures their ages."""

import time
import urllib.request

from loadtests.events import Bodies
from loadtests.sink import Sink, running_sink


def send(sink: Sink, body: bytes) -> None:
    with urllib.request.urlopen(sink.url, data=body, timeout=30) as answer:
        assert answer.status == 200


def test_what_has_come_is_told_from_what_has_not() -> None:
    bodies = Bodies("r1", 2, batch=10, event_bytes=200)
    now_us = time.time_ns() // 1000
    with running_sink() as sink:
        send(sink, bodies.body(0, now_us - 250_000))
        send(sink, bodies.body(20, now_us))
        send(sink, bodies.body(20, now_us))
        send(sink, b'[{"id":"somebody else\'s"}]')
        found = sink.figures("r1")
        assert (found["events"], found["repeats"]) == (20, 10)
        ages = sorted(int(age) for counts in found["ages_ms"].values() for age in counts)
        assert ages[-1] >= 250
        assert sum(found["seconds"].values()) == 20
        assert sink.missing("r1", [[2, [[0, 10], [20, 30]]]]) == []
        assert sink.missing("r1", [[2, [[0, 33]]], [3, [[0, 2]]]]) == [
            (2, [(10, 20), (30, 33)]),
            (3, [(0, 2)]),
        ]
        assert sink.figures("another")["events"] == 0


def test_a_sink_that_is_told_to_be_slow_answers_late_and_counts_at_once() -> None:
    bodies = Bodies("r1", 0, batch=1, event_bytes=200)
    with running_sink() as sink:
        assert sink.be_slow(0.4) == 0.4
        begun_s = time.monotonic()
        send(sink, bodies.body(0, 0))
        assert time.monotonic() - begun_s > 0.35
        assert sink.be_slow(0.0) == 0.0
        assert sink.figures("r1")["last_us"] > (time.time_ns() // 1000) - 60_000_000
