"""Measures the effect of failing pipelines on the p99 of an unrelated destination.

Delivery sends 100 events a second to a destination, beside a pipelines process with a healthy
pipeline; interleaved, the same beside four bad pipelines. Each of these reads its own stream with
100 events a second: one writes to a stream without a topic, one turns each event into a dead
letter, one has a slow expression, and one explodes each event into 1,000.
"""

import statistics

from benchmarks.delivery import Lags
from benchmarks.delivery_driver import running_driver
from benchmarks.lag_sink import LagSink, running_lag_sink
from benchmarks.pipelines.bench import (
    Bench,
    Runner,
    make_streams,
    pipeline_of,
    put,
    run_paced,
    wait,
)
from shared.config.destination import Destination
from shared.config.pipeline import Pipeline

_EVENTS_PER_S = 100
_ROUNDS = 3
_SECONDS = 20
_WARM_UP_S = 40
_JOIN_S = 20
_BAD = ("nowhere", "poison", "dear", "many")


def measure(bench: Bench) -> dict[str, float]:
    """Measure rounds, each with its own ratio."""
    make_streams(bench.servers, ["healthy", "well", *_BAD])
    bench.folder.mkdir(parents=True, exist_ok=True)
    with (
        running_lag_sink() as sink,
        running_driver(bench.servers, bench.folder / "delivery") as driver,
        bench.running() as runner,
    ):
        driver.set_up([Destination("healthy", "sink", sink.url("quick"))])
        well = pipeline_of("well", "well", {"where": "made_ns > 0"})
        runner.put(well)
        runner.wait_until_up(well)
        _lags(bench, sink, ["healthy", "well"], bench.count(_WARM_UP_S))
        rounds = [_round(bench, sink, runner, number) for number in range(_ROUNDS)]
        wait(lambda: runner.events_read(well) > 0)
    ratios = [round(beside.p99 / alone.p99, 2) for alone, beside in rounds]
    return {
        "failing_p99_ratio": statistics.median(ratios),
        "alone_p99_ms": round(statistics.median(alone.p99 for alone, _ in rounds)),
        "failing_p99_ms": round(statistics.median(beside.p99 for _, beside in rounds)),
        "errors": sum(alone.missing + beside.missing for alone, beside in rounds),
    }


def _round(bench: Bench, sink: LagSink, runner: Runner, nth: int) -> tuple[Lags, Lags]:
    alone = _lags(bench, sink, ["healthy", "well"], bench.count(_SECONDS))
    bad = _bad(nth)
    # All but the first get a topic to write to.
    make_streams(bench.servers, ["poison-out", "dear-out", "many-out"])
    put(bench.servers, bad)
    streams = ["healthy", "well", *_BAD]
    _lags(bench, sink, streams, bench.count(_JOIN_S))
    beside = _lags(bench, sink, streams, bench.count(_SECONDS))
    runner.take_away(*bad)
    return alone, beside


def _bad(nth: int) -> list[Pipeline]:
    """Return new bad pipelines, which are checked again and begin with the events in the log."""
    exploded: tuple[dict[str, object], ...] = (
        {"explode": {"one": "sequence(1, 1000)"}},
        {"select": {"one": "one"}},
    )
    dear = " + ".join(f"size(split(concat(pad, '{number}'), 'x'))" for number in range(30)) + " > 0"
    return [
        pipeline_of(f"nowhere-{nth}", "nowhere", {"where": "made_ns > 0"}, to="no-such-topic"),
        pipeline_of(
            f"poison-{nth}", "poison", {"where": "made_ns > 0"}, schema="pad BIGINT, made_ns BIGINT"
        ),
        pipeline_of(f"dear-{nth}", "dear", {"where": dear}),
        pipeline_of(f"many-{nth}", "many", *exploded),
    ]


def _lags(bench: Bench, sink: LagSink, streams: list[str], seconds: float) -> Lags:
    expected = run_paced(bench.servers, streams, _EVENTS_PER_S, seconds)
    lags_ms: list[float] = []

    def is_all_there() -> bool:
        lags_ms.extend(sink.take_lags_ms())
        return len(lags_ms) >= expected

    wait(is_all_there)
    return Lags.of(lags_ms, expected)
