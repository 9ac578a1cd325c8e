"""Rates ingest, delivery or the whole way: searches the highest rate at which the promise holds.

Each step is one run of Locust, headless, in processes of its own; this process talks to the control
API, runs the destination, reconciles every acknowledged id, and says what it is doing.
"""

import asyncio
import json
import math
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
from typing import Any, Literal
from urllib.parse import urlsplit

from loadtests import machine
from loadtests.reconcile import FIRST_S, Ends, reconcile
from loadtests.result import FORM, words
from loadtests.search import Search
from loadtests.sink import Sink, running_sink
from loadtests.slo import BACKLOG_SHARE_MAX, Measured, Slo, judge
from shared.runtime.control_client import ControlClient, RefusedError
from shared.runtime.setup_error import SetupError

What = Literal["ingest", "delivery", "whole"]
Say = Callable[[str], None]

_LOCUSTFILE = Path(__file__).with_name("locustfile.py")
_DESTINATION = "rating-sink"
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
# Locust's own start, its last answers, and a hand-over between processes.
_STEP_SLACK_S = 120.0
_NOT_FOUND = 404
# What of a step's JSON is there for one run only, or as long as the run was.
_DROPPED = ("acked", "due_hdr", "begun_us", "slo", "form")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be rated, and how. Rates are in events a second."""

    what: What = "ingest"
    gateway: str = "http://127.0.0.1:8080"
    api_key: str = ""
    # To look where the rest is, when not everything has come.
    kafka: str | None = None
    stream: str = "rating"
    batch: int = 100
    event_bytes: int = 500
    slo: Slo | None = None
    start: float | None = None
    # One step at this rate instead of a search.
    rate: float | None = None
    hold_s: float = 60.0
    warmup_s: float = 15.0
    spacing: str = "poisson"
    processes: int = 1
    # Where the deliverer reaches this machine.
    sink_host: str = "127.0.0.1"
    # Of what is rated, which this machine cannot know: an instance type, and its gateway's workers.
    label: str = ""
    workers: int = 1

    @property
    def objective(self) -> Slo:
        """What is promised unless something else is asked for."""
        if self.slo is not None:
            return self.slo
        if self.what == "ingest":
            return Slo(p99_ms=100.0)
        if self.what == "delivery":
            return Slo(p99_ms=1_000.0, backlog_share=BACKLOG_SHARE_MAX)
        return Slo(p99_ms=1_000.0, age_p95_ms=1_000.0)

    @property
    def first_rate(self) -> float:
        """A guess that most machines beat: two cores take 40,000 events/s in batches of 100."""
        if self.start is not None:
            return self.start
        ingest = min(40_000.0, 1_000.0 * math.pow(self.batch, 0.65))
        return ingest if self.what == "ingest" else ingest / 4

    @property
    def is_shared(self) -> bool:
        """Whether generator and what is rated are on one machine."""
        return (urlsplit(self.gateway).hostname or "") in _LOOPBACK


def rate(wanted: Wanted, say: Say) -> dict[str, Any]:
    """Search, and the rating as its file has it."""
    load_before = machine.describe()
    _prepare_stream(wanted)
    search = Search(wanted.first_rate if wanted.rate is None else wanted.rate)
    steps: list[dict[str, Any]] = []
    with _way(wanted) as step_at:
        while (offered := search.next_rate()) is not None:
            say(_before(len(steps) + 1, offered, wanted))
            step = step_at(offered)
            steps.append(step)
            say(after(step))
            search.note(offered, step["verdict"])
            if wanted.rate is not None:
                break
    return _rating(wanted, search, steps, load_before)


@contextmanager
def _way(wanted: Wanted) -> Iterator[Callable[[float], dict[str, Any]]]:
    """What runs one step: with a destination at the end, unless only ingest is rated."""
    if wanted.what == "ingest":
        yield lambda offered: run_step(wanted, offered)
        return
    with running_sink(wanted.sink_host) as sink:
        _prepare_destination(wanted, sink)
        try:
            yield lambda offered: _whole_step(wanted, offered, sink)
        finally:
            # Nothing must go on to an address at which nobody listens.
            _control(wanted).call("DELETE", "streams", wanted.stream, "destinations", _DESTINATION)


def _whole_step(wanted: Wanted, offered: float, sink: Sink) -> dict[str, Any]:
    """One step, and where each of its events has gone; the next begins with nothing waiting."""
    step = run_step(wanted, offered)
    ends = asyncio.run(reconcile(step, sink, wanted.kafka))
    return {**step, **judged(wanted.objective, step, ends)}


def judged(slo: Slo, step: dict[str, Any], ends: Ends) -> dict[str, Any]:
    """What the destination adds to a step."""
    found = Measured(
        planned=step["planned"],
        offered=step["offered"],
        unsent=step["unsent"],
        failed=step["failed"],
        due_p99_ms=step["due_ms"]["p99"],
        late_p99_ms=step["late_ms"]["p99"],
        cpu_share=step["cpu_share"],
        age_p95_ms=ends.age_ms.get("p95"),
        backlog_share=ends.backlog_share,
        unaccounted=ends.unaccounted,
    )
    verdict = judge(slo, found)
    return {"ends": {**asdict(ends), "unaccounted": ends.unaccounted}, **words(verdict)}


def run_step(wanted: Wanted, offered: float) -> dict[str, Any]:
    """One run of Locust; SetupError with its last words when it wrote nothing."""
    slo = wanted.objective
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "step.json"
        options = {
            "-f": _LOCUSTFILE,
            "-H": wanted.gateway.rstrip("/"),
            "--rate": offered,
            "--duration": f"{wanted.hold_s:g}s",
            "--warm-up": f"{wanted.warmup_s:g}s",
            "--spacing": wanted.spacing,
            "--batch": wanted.batch,
            "--event-bytes": wanted.event_bytes,
            "--stream": wanted.stream,
            "--slo-p99-ms": slo.p99_ms,
            "--slo-errors": slo.error_share,
            "--run-id": uuid.uuid4().hex[:8],
            "--out": out,
        }
        if wanted.processes > 1:
            port = _free_port()
            options |= {
                "--processes": wanted.processes,
                "--master-bind-port": port,
                "--master-port": port,
            }
        argv = [str(part) for pair in options.items() for part in pair]
        ended = subprocess.run(
            [sys.executable, "-m", "locust", "--headless", "--only-summary", *argv],
            cwd=_LOCUSTFILE.parents[1],
            # A key in the arguments could be read by everybody on this machine.
            env={**os.environ, "HIFI_API_KEY": wanted.api_key},
            capture_output=True,
            text=True,
            check=False,
            timeout=wanted.warmup_s + wanted.hold_s + _STEP_SLACK_S,
        )
        if not out.exists():
            last = ended.stderr.strip().splitlines()[-1:] or ["it said nothing"]
            raise SetupError(f"Locust ended without a result: {last[0]}")
        step: dict[str, Any] = json.loads(out.read_text())
        return step


def _rating(
    wanted: Wanted, search: Search, steps: list[dict[str, Any]], before: dict[str, Any]
) -> dict[str, Any]:
    slo = wanted.objective
    met = [
        step for step in steps if step["verdict"] == "met" and step["events_per_s"] >= search.low
    ]
    rating = {
        "form": FORM,
        "what": wanted.what,
        "label": wanted.label,
        "date": machine.today(),
        "commit": machine.commit(),
        "batch": wanted.batch,
        "event_bytes": wanted.event_bytes,
        "workers": wanted.workers,
        "slo": {name: value for name, value in asdict(slo).items() if value is not None},
        "rated_per_s": round(search.low, 1) if met else 0.0,
        "not_at_per_s": None if search.high == float("inf") else round(search.high, 1),
        "saturated_per_s": max((step["acked_per_s"] for step in steps), default=0.0),
        "is_confirmed": search.is_confirmed,
        "is_limited_by_generator": search.is_limited_by_generator,
        "is_shared": wanted.is_shared,
        "generator": {"processes": wanted.processes, **before},
        "steps": [
            {name: value for name, value in step.items() if name not in _DROPPED} for step in steps
        ],
    }
    return {**rating, "caveats": caveats(rating)}


def caveats(rating: dict[str, Any]) -> list[str]:
    """What somebody who reads only the figure would not know."""
    said = []
    if rating["is_shared"]:
        said.append(
            "Generator and Hifi shared a machine: compare it with nothing but itself, and size no"
            " fleet by it."
        )
    if not rating["label"]:
        said.append(
            "Nobody said what machine was rated (--label); the one below is the generator's."
        )
    if not rating["rated_per_s"]:
        said.append("No step met the objective.")
    elif not rating["is_confirmed"]:
        said.append("The rated step was not repeated, or did not repeat.")
    if rating["is_limited_by_generator"]:
        said.append(
            "The generator was the limit: the rating is the least that was shown. Give it more"
            " processes, or another machine."
        )
    seconds = min((step["measured_s"] for step in rating["steps"]), default=0)
    if seconds < 60:  # noqa: PLR2004 - as long as a step is by default
        said.append(f"Steps were measured for {seconds:g} s; 60 s see what comes once a minute.")
    return said


def _before(nth: int, offered: float, wanted: Wanted) -> str:
    takes_s = wanted.warmup_s + wanted.hold_s
    return f"step {nth}: {offered:,.0f} events/s for {takes_s:.0f} s ..."


def after(step: dict[str, Any]) -> str:
    """A step in a line or two."""
    due, late = step["due_ms"], step["late_ms"]
    said = (
        f"  {step['verdict']}: {step['acked_per_s']:,.0f} events/s acknowledged, from due p50"
        f" {due['p50']:.1f}, p99 {due['p99']:.1f} ms; late p99 {late['p99']:.1f} ms"
    )
    if ends := step.get("ends"):
        ages = ", ".join(f"{name} {value:,.0f}" for name, value in ends["age_ms"].items())
        said += (
            f"\n    at the destination: {ages} ms; {ends['acked']:,} acknowledged ="
            f" {ends['delivered']:,} delivered + {ends['waiting']:,} waiting + {ends['dead']:,}"
            f" dead, {ends['unaccounted']:,} unaccounted"
        )
    return "\n".join([said, *(f"    {reason}" for reason in step["reasons"])])


def _control(wanted: Wanted) -> ControlClient:
    return ControlClient(wanted.gateway, wanted.api_key or None)


def _prepare_stream(wanted: Wanted) -> None:
    """What is rated goes to a stream of its own, which is made if it is not there."""
    client = _control(wanted)
    try:
        client.call("GET", "streams", wanted.stream)
    except RefusedError as refused:
        if refused.status != _NOT_FOUND:
            raise
        client.call("PUT", "streams", wanted.stream, body={})
        # Each worker of a gateway follows the configuration by itself.
        time.sleep(1)


def _prepare_destination(wanted: Wanted, sink: Sink) -> None:
    path = ("streams", wanted.stream, "destinations", _DESTINATION)
    try:
        _control(wanted).call("PUT", *path, body={"url": sink.url})
    except RefusedError as refused:
        raise SetupError(
            f"{refused} The destination of a rating is this machine, {sink.url}: --sink-host names"
            " an address that delivery reaches, and HIFI_GATEWAY_ALLOW_PRIVATE and"
            " HIFI_DELIVERY_ALLOW_PRIVATE let it be a private one."
        ) from refused
    # The lane's first micro-batch is no part of any step.
    first = replace(wanted, batch=1, hold_s=2.0, warmup_s=0.0, processes=1, slo=Slo(p99_ms=1e6))
    step = run_step(first, 60.0)
    ends = asyncio.run(reconcile(step, sink, wanted.kafka, standstill_s=FIRST_S))
    if ends.delivered < ends.acked or not ends.acked:
        raise SetupError(
            f"Of the first {ends.acked} events {ends.delivered} have come to {sink.url}: does"
            " delivery run, and does it reach that address (--sink-host)?"
        )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
