"""Runs a soak: days of traffic with planned faults; follows every id and each process's memory.

The runner of the Hifi causes the faults (`Patient`). The only exception: the sink slows itself.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from benchmarks import machine
from loadtests.rating import RunningStep, Say, destination, prepare_stream, running_step
from loadtests.rating_file import RatingPlan
from loadtests.reconcile import Ends, reconcile
from loadtests.result import FORM
from loadtests.sink import Sink, running_sink
from loadtests.soak.course import Course
from loadtests.soak.fault_plan import PlannedFault, fault_plan
from loadtests.soak.memory import Scale

_SLOW_S = 3.0
_SLOW = "slow destination"
# A fault is survived if all is well again in this time: enough for two Spark drivers on busy cores.
_WELL_S = 120.0
_LOOK_S = 0.5
# A breaker that is open at the end parks events for half a minute, twice.
_STANDSTILL_S = 150.0

_CUTS = (0.5, 0.99)

Undo = Callable[[], None]


class NotNowError(Exception):
    """The fault is not possible at this moment."""


class Patient(Protocol):
    """A Hifi whose processes may be hurt."""

    @property
    def gateway(self) -> str:
        """The gateway's address."""

    @property
    def kafka(self) -> str:
        """Kafka's address."""

    def hurt(self, kind: str) -> tuple[str, Undo]:
        """Cause the fault; return the proof that it happened, and the function that ends it."""

    def unwell(self) -> list[str]:
        """List the processes that do not run or are not ready."""

    def families(self) -> Mapping[str, Sequence[int]]:
        """Return each process with its descendants, by name."""

    @property
    def deaths(self) -> list[str]:
        """The unintended deaths of processes."""


def soak(course: Course, patient: Patient, say: Say) -> dict[str, Any]:
    """Run the whole soak; return its file's content."""
    generator = machine.describe()
    load = RatingPlan(
        what="whole",
        gateway=patient.gateway,
        kafka=patient.kafka,
        stream="soak",
        batch=course.batch,
        event_bytes=course.event_bytes,
        latency=course.latency,
        plan=course.plan,
        hold_s=course.duration_s,
        warmup_s=0.0,
        is_lean=True,
    )
    prepare_stream(load)
    with running_sink() as sink, destination(load, sink):
        begun_s = time.monotonic()
        with (
            Scale(patient.families, lambda: time.monotonic() - begun_s) as scale,
            running_step(load, course.rate) as running,
        ):
            faults = _hurt(course, patient, sink, begun_s=begun_s, running=running, say=say)
            step = running.result()
            say("all events are sent; waiting for the last deliveries ...")
            ends = asyncio.run(reconcile(step, sink, patient.kafka, standstill_s=_STANDSTILL_S))
        ages_ms = sink.figures(step["run"])["ages_ms"]
    generator["cores_stolen"] = round(machine.cores_stolen(), 2)
    result = {
        "form": FORM,
        "what": "soak",
        "course": {**asdict(course), "plan": course.plan},
        "generator": generator,
        "step": {name: value for name, value in step.items() if name not in {"acked", "due_hdr"}},
        "ends": {**asdict(ends), "unaccounted": ends.unaccounted},
        "lag": _lag(ages_ms, step["begun_us"] // 1_000_000),
        "faults": faults,
        "deaths": patient.deaths,
        "memory": [
            one.told
            for one in sorted(scale.weighed.values(), key=lambda one: (one.name, one.points[0][0]))
        ],
    }
    return {**result, "wrong": wrong(result, ends)}


def wrong(found: Mapping[str, Any], ends: Ends) -> list[str]:
    """List the failures of a soak; empty if all is well."""
    failures = []
    if ends.unaccounted:
        ids = ", ".join(ends.lost_ids)
        failures.append(f"{ends.unaccounted:,} acknowledged events are unaccounted for: {ids}")
    if ends.not_asked:
        failures.append(ends.not_asked)
    failures += [
        f"{fault['kind']} at {fault['at_s']:.0f} s was not survived"
        for fault in found["faults"]
        if fault["proof"] and fault["well_after_s"] is None
    ]
    if found["faults"] and not any(fault["proof"] for fault in found["faults"]):
        failures.append("no fault was possible")
    failures += [f"unintended: {death}" for death in found["deaths"]]
    failures += [
        f"{one['name']} ({one['pid']}) has grown by {one['growth']:.0%}:"
        f" at most {one['first_mb']:.0f} MB in its first minutes, {one['later_mb']:.0f} MB later"
        for one in found["memory"]
        if one["has_grown"]
    ]
    return failures


def _hurt(
    course: Course,
    patient: Patient,
    sink: Sink,
    *,
    begun_s: float,
    running: RunningStep,
    say: Say,
) -> list[dict[str, Any]]:
    """Cause each planned fault, and measure the time until all is well again."""
    done = []
    plan = fault_plan(course.seed, duration_s=course.duration_s, every_s=course.every_s)
    for number, fault in enumerate(plan, start=1):
        while (left_s := begun_s + fault.at_s - time.monotonic()) > 0 and not running.is_over:
            time.sleep(min(left_s, _LOOK_S))
        if running.is_over:
            break
        at_s = round(time.monotonic() - begun_s, 1)
        try:
            proof, undo = _begin(fault, patient, sink)
        except NotNowError as error:
            say(f"{at_s:6.0f} s  not possible: {fault.kind}: {error}")
            done.append({**asdict(fault), "at_s": at_s, "proof": "", "well_after_s": None})
            continue
        time.sleep(fault.for_s)
        undo()
        well_after_s = _until_well(patient)
        well = (
            "not well again" if well_after_s is None else f"well again after {well_after_s:.1f} s"
        )
        did = f"{fault.kind} for {fault.for_s} s"
        say(f"{at_s:6.0f} s  {number} of {len(plan)}: {did}: {proof}; {well}")
        done.append({**asdict(fault), "at_s": at_s, "proof": proof, "well_after_s": well_after_s})
    return done


def _begin(fault: PlannedFault, patient: Patient, sink: Sink) -> tuple[str, Undo]:
    if fault.kind != _SLOW:
        return patient.hurt(fault.kind)
    taken_s = sink.be_slow(_SLOW_S)

    def undo() -> None:
        sink.be_slow(0.0)

    return f"each answer takes {taken_s:g} s", undo


def _until_well(patient: Patient) -> float | None:
    begun_s = time.monotonic()
    while patient.unwell():
        if time.monotonic() - begun_s > _WELL_S:
            return None
        time.sleep(_LOOK_S)
    return round(time.monotonic() - begun_s, 1)


def _lag(ages_ms: Mapping[int, Mapping[Any, int]], begun_s: int) -> list[list[float]]:
    """Return p50 and p99 of the ages in ms, by the second in which events were due."""
    rows = []
    for second, counts in sorted(ages_ms.items()):
        ages = sorted((int(age), count) for age, count in counts.items())
        total = sum(count for _, count in ages)
        cuts: list[float] = []
        passed = 0
        for age, count in ages:
            passed += count
            while len(cuts) < len(_CUTS) and passed >= _CUTS[len(cuts)] * total:
                cuts.append(float(age))
        rows.append([float(second - begun_s), *cuts])
    return rows
