"""Rates gateway, delivery or the whole way: finds the highest rate that keeps the promises.

Each step is one headless run of Locust in separate processes. This process talks to the control
API, runs the destination, reconciles every acknowledged id, and reports its progress.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import machine
from loadtests.rating_file import RatingPlan, rating_of
from loadtests.reconcile import FIRST_S, Ends, reconcile
from loadtests.result import words
from loadtests.search import Search
from loadtests.sink import Sink, running_sink
from loadtests.slo import Slo, StepFigures, judge
from shared.runtime.control_client import ControlClient, RefusedError
from shared.runtime.setup_error import SetupError, UsageError
from shared.scale.ask import DESTINATION_BATCH

Say = Callable[[str], None]
# Runs one step at a rate in events per second.
StepAt = Callable[[float], dict[str, Any]]

_LOCUSTFILE = Path(__file__).with_name("locustfile.py")
_DESTINATION = "rating-sink"
# Time for Locust's start, its last answers, and a hand-over between processes.
_STEP_SLACK_S = 120.0
_NOT_FOUND = 404


def rate(wanted: RatingPlan, say: Say) -> dict[str, Any]:
    """Run the search, and return the content of the rating's file."""
    if not wanted.is_shared and not wanted.cores:
        raise UsageError(f"Give the number of cores of the machine at {wanted.gateway}: --cores.")
    generator = machine.describe()
    prepare_stream(wanted)
    with way(wanted) as step_at:
        search, steps = searched(wanted, step_at, say)
    generator["cores_stolen"] = round(machine.cores_stolen(), 2)
    return rating_of(wanted, search, steps, generator)


def searched(wanted: RatingPlan, step_at: StepAt, say: Say) -> tuple[Search, list[dict[str, Any]]]:
    """Run all steps of a search, or the single requested one."""
    search = Search(wanted.first_rate if wanted.rate is None else wanted.rate)
    steps: list[dict[str, Any]] = []
    while (offered := search.next_rate()) is not None:
        say(_before(len(steps) + 1, offered, wanted))
        step = step_at(offered)
        steps.append(step)
        say(after(step))
        search.note(offered, step["verdict"])
        if wanted.rate is not None:
            break
    return search, steps


@contextmanager
def way(wanted: RatingPlan) -> Iterator[StepAt]:
    """Yield a runner of steps, with a destination unless only the gateway is rated."""
    if wanted.what == "gateway":
        yield lambda offered: run_step(wanted, offered)
        return
    with running_sink(wanted.sink_host) as sink, destination(wanted, sink):
        yield lambda offered: _whole_step(wanted, offered, sink)


@contextmanager
def destination(wanted: RatingPlan, sink: Sink) -> Iterator[None]:
    """Make the sink a destination for the block; enter it once the first event has arrived."""
    put_destination(wanted, sink)
    try:
        _wait_for_the_first(wanted, sink)
        yield
    finally:
        # Nothing may send to an address without a listener.
        _control(wanted).call("DELETE", "streams", wanted.stream, "destinations", _DESTINATION)


def _whole_step(wanted: RatingPlan, offered: float, sink: Sink) -> dict[str, Any]:
    """Run one step, and follow all its events, so that the next step starts without a backlog."""
    step = run_step(wanted, offered)
    ends = asyncio.run(reconcile(step, sink, wanted.kafka))
    return {**step, **judged(wanted.objective, step, ends)}


def judged(slo: Slo, step: dict[str, Any], ends: Ends) -> dict[str, Any]:
    """Return the figures and the verdict that the destination adds to a step."""
    figures = StepFigures(
        planned=step["planned"],
        offered=step["offered"],
        unsent=step["unsent"],
        failed=step["failed"],
        due_p99_ms=step["due_ms"]["p99"],
        late_p99_ms=step["late_ms"]["p99"],
        cpu_share=step["cpu_share"],
        age_p95_ms=ends.age_ms.get("p95"),
        age_p99_ms=ends.age_ms.get("p99"),
        backlog_share=ends.backlog_share,
        unaccounted=ends.unaccounted,
    )
    verdict = judge(slo, figures)
    if ends.not_asked:
        verdict = replace(verdict, reasons=(*verdict.reasons, ends.not_asked))
    return {"ends": {**asdict(ends), "unaccounted": ends.unaccounted}, **words(verdict)}


def run_step(wanted: RatingPlan, offered: float) -> dict[str, Any]:
    """Run the generator once, and return its result."""
    with running_step(wanted, offered) as running:
        return running.result()


@dataclass(frozen=True, slots=True)
class RunningStep:
    """A running generator."""

    process: subprocess.Popen[str]
    out: Path
    longest_s: float

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    def result(self) -> dict[str, Any]:
        """Wait for the result; SetupError with the last line of output if there is none."""
        try:
            _, errors = self.process.communicate(timeout=self.longest_s)
        except subprocess.TimeoutExpired as expired:
            raise SetupError(
                f"The generator did not end within {expired.timeout:.0f} s."
            ) from expired
        if not self.out.exists():
            last = errors.strip().splitlines()[-1:] or ["it said nothing"]
            raise SetupError(f"The generator ended without a result: {last[0]}")
        step: dict[str, Any] = json.loads(self.out.read_text())
        return step


@contextmanager
def running_step(wanted: RatingPlan, offered: float) -> Iterator[RunningStep]:
    """Run the generator while the block runs; stop it at the block's end if it still runs."""
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            _argv(wanted, offered, out := Path(folder) / "step.json"),
            cwd=_LOCUSTFILE.parents[1],
            # Every user of this machine could read a key in the arguments.
            env={**os.environ, "HIFI_API_KEY": wanted.api_key},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        try:
            yield RunningStep(process, out, wanted.warmup_s + wanted.hold_s + _STEP_SLACK_S)
        finally:
            process.kill()


def _argv(wanted: RatingPlan, offered: float, out: Path) -> list[str]:
    options = {
        "-H": wanted.gateway.rstrip("/"),
        "--rate": offered,
        "--duration": f"{wanted.hold_s:g}s",
        "--warm-up": f"{wanted.warmup_s:g}s",
        "--batch": wanted.batch,
        "--event-bytes": wanted.event_bytes,
        "--stream": wanted.stream,
        "--slo-p99-ms": wanted.objective.p99_ms,
        "--run-id": uuid.uuid4().hex[:8],
        "--plan": wanted.plan,
        "--out": out,
    }
    program = ["loadtests.lean"]
    if not wanted.is_lean:
        program = ["locust", "--headless", "--only-summary"]
        options["-f"] = _LOCUSTFILE
    if wanted.processes > 1:
        port = _free_port()
        options |= {
            "--processes": wanted.processes,
            "--master-bind-port": port,
            "--master-port": port,
        }
    argv = [str(part) for pair in options.items() for part in pair]
    return [sys.executable, "-m", *program, *argv]


def _before(nth: int, offered: float, wanted: RatingPlan) -> str:
    takes_s = wanted.warmup_s + wanted.hold_s
    return f"step {nth}: {offered:,.0f} events/s for {takes_s:.0f} s ..."


def after(step: dict[str, Any]) -> str:
    """Describe a step in a line or two."""
    due, late = step["due_ms"], step["late_ms"]
    text = (
        f"  {step['verdict']}: {step['acked_per_s']:,.0f} events/s acknowledged, from due p50"
        f" {due['p50']:.1f}, p99 {due['p99']:.1f} ms; late p99 {late['p99']:.1f} ms"
    )
    if ends := step.get("ends"):
        age = ends["age_ms"]
        ages = ", ".join(f"{name} {age.get(name, 0):,.0f}" for name in ("p50", "p95", "p99"))
        text += (
            f"\n    at the destination: {ages} ms; {ends['acked']:,} acknowledged ="
            f" {ends['delivered']:,} delivered + {ends['waiting']:,} waiting + {ends['dead']:,}"
            f" dead, {ends['unaccounted']:,} unaccounted"
        )
    return "\n".join([text, *(f"    {reason}" for reason in step["reasons"])])


def _control(wanted: RatingPlan) -> ControlClient:
    return ControlClient(wanted.gateway, wanted.api_key or None)


def prepare_stream(wanted: RatingPlan) -> None:
    """Create the stream that gets all events of the rating, unless it exists."""
    client = _control(wanted)
    try:
        client.call("GET", "streams", wanted.stream)
    except RefusedError as refused:
        if refused.status != _NOT_FOUND:
            raise
        client.call("PUT", "streams", wanted.stream, body={})
        # Each gateway worker learns of the new stream by itself.
        time.sleep(1)


def put_destination(wanted: RatingPlan, sink: Sink, *, is_paused: bool = False) -> None:
    path = ("streams", wanted.stream, "destinations", _DESTINATION)
    body = {"url": sink.url, "batch_count_max": DESTINATION_BATCH, "latency": wanted.latency}
    try:
        _control(wanted).call("PUT", *path, body={**body, "is_paused": is_paused})
    except RefusedError as refused:
        raise SetupError(
            f"{refused} The destination of a rating is this machine, {sink.url}: set --sink-host to"
            " an address that delivery can reach; HIFI_GATEWAY_ALLOW_PRIVATE and"
            " HIFI_DELIVERY_ALLOW_PRIVATE allow private addresses."
        ) from refused


def _wait_for_the_first(wanted: RatingPlan, sink: Sink) -> None:
    # This keeps the lane's first micro-batch out of all steps.
    first = replace(wanted, batch=1, hold_s=2.0, warmup_s=0.0, plan="", processes=1, p99_ms=1e6)
    step = run_step(first, 60.0)
    ends = asyncio.run(reconcile(step, sink, wanted.kafka, standstill_s=FIRST_S))
    if ends.delivered < ends.acked or not ends.acked:
        raise SetupError(
            f"{ends.delivered} of the first {ends.acked} events have arrived at {sink.url}: check"
            " that delivery runs, and that it can reach this address (--sink-host)."
        )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
