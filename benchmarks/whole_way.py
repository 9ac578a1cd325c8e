"""Measures the whole way from POST to destination on one machine, for both latency settings.

Gateway, Kafka and delivery run as with `hifi up`. The generator is open loop, so ages count from
the moment an event was due, and every id is followed. (age) p50, p95 and p99 at 200 and 1,000
single events/s, and each service's processor time per event, including its idle cost. (sustained)
The highest rates of single events, and of events in batches of 100, at which 99 of 100 events
arrive within a second. (drain) The rate at which the backlog of a paused destination drains after
it is resumed. An error is an acknowledged event that did not arrive, or a failed request at a
sustained rate.
`python -m benchmarks.whole_way [age] [sustained-single] [sustained-batch] [drain]` runs some parts.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.process_tree import used_by
from benchmarks.report import report
from deploy.cli.scale.fresh import fresh_stack
from deploy.local.stack import Stack
from loadtests.rating import (
    after,
    destination,
    prepare_stream,
    put_destination,
    run_step,
    searched,
    way,
)
from loadtests.rating_file import RatingPlan
from loadtests.sink import Sink, running_sink
from shared.config.destination import Latency

_LATENCIES: tuple[Latency, ...] = ("realtime", "micro-batch")
_AGE_RATES = (200.0, 1_000.0)
_SHOWN = ("p50", "p95", "p99")
_AGE_S, _SUSTAINED_S, _WARM_UP_S = 20.0, 15.0, 5.0
_PROMISED_MS = 1_000.0
_BATCH = 100
# First guesses of the rates that must hold, in events a second.
_GUESSES = {1: 2_000.0, _BATCH: 15_000.0}
# A lane applies a change of its destination within this time.
_CHANGE_S = 3.0
_BACKLOG_PER_S, _BACKLOG_S = 30_000.0, 10.0
_DRAIN_TIMEOUT_S = 120.0
_LOOK_S = 0.5

_Figures = dict[str, float]


def main() -> None:
    """Print a table, and one JSON object as the last line."""
    parts = sys.argv[1:] or list(_PARTS)
    figures: _Figures = {"errors": 0}
    with fresh_stack() as stack:
        wanted = RatingPlan(
            what="whole",
            gateway=stack.gateway,
            kafka=stack.bootstrap_servers,
            stream="whole-way",
            batch=1,
            p99_ms=_PROMISED_MS,
            age_p99_ms=_PROMISED_MS,
            warmup_s=_WARM_UP_S,
            is_lean=True,
        )
        prepare_stream(wanted)
        print(f"| figure | value |\n|{'---|' * 2}")
        for part in parts:
            for latency in _LATENCIES:
                measured = _PARTS[part](replace(wanted, latency=latency), stack)
                figures["errors"] += measured.pop("errors")
                named = {
                    f"{latency.replace('-', '')}_{name}": each for name, each in measured.items()
                }
                for name, figure in named.items():
                    print(f"| {name} | {figure:,} |", flush=True)
                figures |= named
    report("whole_way", {**_chosen(figures), **figures})


def _chosen(figures: _Figures) -> _Figures:
    """Return the figures to compare: single events in real time, others at the better latency."""
    chosen = {
        f"single_{name}_ms": figures[key]
        for name in ("p50", "p99")
        if (key := f"realtime_single_{name}_ms_at_1000") in figures
    }
    for name in ("sustained_single_per_s", "sustained_batch_per_s", "drain_per_s"):
        both = [value for key, value in figures.items() if key.endswith(f"_{name}")]
        if both:
            chosen[name] = max(both)
    return chosen


def _age(wanted: RatingPlan, stack: Stack) -> _Figures:
    figures: _Figures = {"errors": 0}
    with way(replace(wanted, hold_s=_AGE_S)) as step_at:
        for rate in _AGE_RATES:
            before_s = _used_s(stack)
            step = step_at(rate)
            _say(after(step))
            figures |= {
                # The time of ended workers may be missing.
                f"{name}_us_at_{rate:.0f}": round(
                    max(0.0, used_s - before_s[name]) / step["ends"]["acked"] * 1e6
                )
                for name, used_s in _used_s(stack).items()
            }
            ages = step["ends"]["age_ms"]
            figures |= {f"single_{p}_ms_at_{rate:.0f}": ages.get(p, 0.0) for p in _SHOWN}
            figures["errors"] += step["failed"] + step["ends"]["unaccounted"]
    return figures


def _used_s(stack: Stack) -> dict[str, float]:
    """Return the processor time of Kafka and of each service, with their descendants."""
    children = [*stack.children.values(), *map(stack.cluster.child, stack.cluster.broker_ids)]
    return {child.name: used_by(child.pid)[0] for child in children}


def _sustained(wanted: RatingPlan, batch: int) -> _Figures:
    asked = replace(wanted, batch=batch, hold_s=_SUSTAINED_S, start=_GUESSES[batch])
    with way(asked) as step_at:
        search, steps = searched(asked, step_at, _say)
    return {
        f"held_{'single' if batch == 1 else 'batch'}_per_s": round(search.low),
        # Requests beyond the sustained rate may be refused; acknowledged events may not be lost.
        "errors": sum(
            step["ends"]["unaccounted"] + (step["failed"] if step["verdict"] == "met" else 0)
            for step in steps
        ),
    }


def _drain(wanted: RatingPlan, _: Stack) -> _Figures:
    asked = replace(wanted, batch=1_000, hold_s=_BACKLOG_S, warmup_s=0.0)
    with running_sink() as sink, destination(asked, sink):
        put_destination(asked, sink, is_paused=True)
        time.sleep(_CHANGE_S)
        step = run_step(asked, _BACKLOG_PER_S)
        before = sink.figures(step["run"])["events"]
        waiting = step["acked_events"] - before
        resumed_us = time.time_ns() // 1000
        put_destination(asked, sink)
        came, missing = _all_of(step, sink)
    took_s = (came["last_us"] - resumed_us) / 1e6
    _say(f"{waiting:,} events waited; the last of them arrived after {took_s:.1f} s")
    return {
        "drain_per_s": round((came["events"] - before) / took_s),
        "drained": waiting,
        "errors": missing + step["failed"],
    }


def _all_of(step: dict[str, Any], sink: Sink) -> tuple[dict[str, Any], int]:
    """Wait for all events or a deadline; return the sink's figures, and how many are missing."""
    until_s = time.monotonic() + _DRAIN_TIMEOUT_S
    while sink.figures(step["run"])["events"] < step["acked_events"]:
        if time.monotonic() > until_s:
            break
        time.sleep(_LOOK_S)
    missing = sink.missing(step["run"], step["acked"])
    gone = sum(end - first for _, ranges in missing for first, end in ranges)
    return sink.figures(step["run"]), gone


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


_PARTS: dict[str, Callable[[RatingPlan, Stack], _Figures]] = {
    "age": _age,
    "sustained-single": lambda wanted, _: _sustained(wanted, 1),
    "sustained-batch": lambda wanted, _: _sustained(wanted, _BATCH),
    "drain": _drain,
}


if __name__ == "__main__":
    main()
