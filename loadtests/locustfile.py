"""Runs a step of a load test in Locust: each worker is an open loop that does not wait for answers.

    locust -f loadtests/locustfile.py --headless --rate 20000 --duration 60s -H http://GATEWAY
    locust -f loadtests/locustfile.py -H http://GATEWAY             (in the browser, on port 8089)
    locust -f loadtests/locustfile.py --processes 4 ...             (also --master, and --worker)

All variants write the same JSON (--out). Times count from the moment a request was due.
"""

import json
import random
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import gevent
from geventhttpclient import HTTPClient
from locust import LoadTestShape, User, events, task
from locust.exception import StopUser
from locust.runners import LocalRunner, MasterRunner, WorkerRunner

from loadtests.arrivals import PlanError, due_times, plan_of, seconds_of, trace_lines
from loadtests.events import Bodies, acked_of, smallest_bytes
from loadtests.open_loop import offer
from loadtests.page import add_tab
from loadtests.recorder import Range, Recorder
from loadtests.result import StepPlan, document
from loadtests.slo import Slo

# A stall of 2 s leaves this many requests open at 1,000 requests/s. Locust raises the limit of open
# files to 10,000, more than most systems allow a process by default.
_IN_FLIGHT_MAX = 2_000
_TIMEOUT_S = 30.0
# Too late to catch up: later requests are not offered, and the step is invalid.
_LATE_S_MAX = 5.0

# The run id of a step that has not begun, or could not begin.
_NONE = "none"


class Step:
    """The current step, as one Locust process knows it."""

    def __init__(self) -> None:
        self.asked = StepPlan(run=_NONE, stream="")
        self.recorder = Recorder()
        # This worker's number, and the number of workers.
        self.worker, self.workers = 0, 1
        # The number of workers that have offered all requests and have all answers.
        self.done = 0
        self.has_ended = False
        # True from the step's start until Locust reports its end.
        self.is_running = False
        # Why the step could not begin.
        self.problem = ""

    def begin(self, asked: StepPlan, *, worker: int, workers: int) -> None:
        self.asked, self.worker, self.workers = asked, worker, workers
        self.recorder, self.done, self.has_ended, self.problem = Recorder(), 0, False, ""
        self.is_running = True

    def refuse(self, problem: str) -> None:
        """End the step at once, because the browser asked for an impossible one."""
        self.begin(StepPlan(run=_NONE, stream=""), worker=0, workers=1)
        self.has_ended, self.is_running, self.problem = True, False, problem

    def document(self) -> dict[str, Any]:
        """Return the step's result so far, even while it runs."""
        result = document(self.asked, self.recorder, is_complete=self.done >= self.workers)
        if self.problem:
            return {**result, "reasons": [self.problem]}
        if self.is_running or self.asked.run == _NONE:
            return {
                **result,
                "verdict": "running" if self.is_running else "not begun",
                "reasons": [],
            }
        return result


step = Step()


class Arrivals(User):
    """The open loop of one worker."""

    def on_start(self) -> None:
        options, asked = self.environment.parsed_options, step.asked
        self._in_flight_max, self._in_flight = options.in_flight_max, 0
        headers = {"content-type": "application/json"}
        if options.api_key:
            headers["authorization"] = f"Bearer {options.api_key}"
        timeout_s = options.timeout_s
        self._client = HTTPClient.from_url(
            self.environment.host,
            headers=headers,
            concurrency=self._in_flight_max,
            connection_timeout=timeout_s,
            network_timeout=timeout_s,
        )
        self._path = f"/v1/streams/{asked.stream}/events"
        self._bodies = Bodies(
            asked.run, step.worker, batch=asked.batch, event_bytes=asked.event_bytes
        )
        self._number = 0

    @task
    def arrive(self) -> None:
        """Offer this worker's share of the plan, wait for the answers, and end."""
        asked = step.asked
        if step.problem:
            raise StopUser
        roll = random.Random(f"{asked.seed}/{step.worker}").random  # noqa: S311 - to be repeated
        dues = due_times(
            asked.requests, asked.spacing, roll, worker=step.worker, workers=step.workers
        )
        self._begun_s = time.perf_counter()
        self._begun_us = time.time_ns() // 1000
        step.recorder.note_begun(self._begun_us)
        gevent.spawn(self._measure_cpu)
        offer(
            dues,
            begun_s=self._begun_s,
            now_s=time.perf_counter,
            sleep_s=gevent.sleep,
            send=self._send,
            unsent=self._unsent,
            late_s_max=_LATE_S_MAX,
        )
        while self._in_flight:
            gevent.sleep(0.01)
        self._note_used()
        self._client.close()
        _tell_done(self.environment)
        raise StopUser

    def _send(self, due: float) -> bool:
        due_s = due - self._begun_s
        if due_s >= step.asked.warmup_s:
            step.recorder.note_offered(due_s)
        if self._in_flight >= self._in_flight_max:
            return False
        self._in_flight += 1
        gevent.spawn(self._post, due_s, self._number)
        self._number += step.asked.batch
        return True

    def _unsent(self, due: float) -> None:
        if due - self._begun_s >= step.asked.warmup_s:
            step.recorder.note_unsent()

    def _post(self, due_s: float, first: int) -> None:
        body = self._bodies.body(first, self._begun_us + int(due_s * 1e6))
        sent_s = time.perf_counter() - self._begun_s
        acked: list[Range] = []
        error: Exception | None = None
        length = 0
        try:
            response = self._client.request("POST", self._path, body)
            answer = response.read()
            length, what = len(answer), str(response.status_code)
            acked = acked_of(response.status_code, answer, first, step.asked.batch)
        except Exception as failed:  # noqa: BLE001 - every failure is counted
            error, what = failed, type(failed).__name__
        ended_s = time.perf_counter() - self._begun_s
        self._in_flight -= 1
        step.recorder.note_acked(step.worker, acked)
        count = sum(end - begin for begin, end in acked)
        is_good = count == step.asked.batch
        if due_s < step.asked.warmup_s:
            return
        step.recorder.note_answer(
            what, is_good=is_good, due_s=due_s, sent_s=sent_s, ended_s=ended_s, events=count
        )
        self.environment.events.request.fire(
            request_type="POST",
            name=self._path,
            response_time=(ended_s - due_s) * 1000,
            response_length=length,
            exception=None if is_good else error or OSError(f"answered {what}"),
            context={},
        )

    def _measure_cpu(self) -> None:
        """Start to count processor time after the warm-up."""
        gevent.sleep(step.asked.warmup_s)
        self._used_from = (time.process_time(), time.perf_counter())

    def _note_used(self) -> None:
        cpu_s, wall_s = getattr(self, "_used_from", (time.process_time(), time.perf_counter()))
        step.recorder.note_used(
            step.worker, time.process_time() - cpu_s, time.perf_counter() - wall_s
        )


class Shape(LoadTestShape):
    """Keeps one user per worker, until each has done its share."""

    def tick(self) -> tuple[int, float] | None:
        """Return the number of users and the spawn rate once a second; None ends the run."""
        if step.has_ended:
            return None
        workers = max(1, self.runner.worker_count)
        return (workers, float(workers))


def _tell_done(environment: Any) -> None:
    """Report that this worker has all its answers, together with its unreported results."""
    if isinstance(environment.runner, WorkerRunner):
        environment.runner.send_message("arrivals_done", step.recorder.take())
    else:
        step.done += 1
        step.has_ended = True


@events.init_command_line_parser.add_listener
def _options(parser: Any) -> None:
    parser.add_argument("--rate", type=float, default=1000.0, help="Events a second.")
    parser.add_argument("--duration", default="60s", help="Measured time: 60s, 5m.")
    parser.add_argument("--warm-up", default="15s", help="Time to run before that.")
    parser.add_argument("--plan", default="", help="Replaces rate and duration: ramp:0-5:9s.")
    parser.add_argument("--trace", default="", help="Or a local CSV file: seconds,rate.")
    parser.add_argument("--spacing", default="poisson", choices=["poisson", "even"])
    parser.add_argument("--seed", type=int, default=1, help="The same seed repeats the due times.")
    parser.add_argument("--batch", type=int, default=100, help="Events in a request.")
    parser.add_argument("--event-bytes", type=int, default=500, help="Size of an event.")
    parser.add_argument("--stream", default="rating", help="An existing stream to send to.")
    parser.add_argument("--slo-p99-ms", type=float, default=100.0, help="Promised p99, from due.")
    parser.add_argument("--slo-errors", type=float, default=0.001, help="Share that may fail.")
    parser.add_argument(
        "--api-key", default="", env_var="HIFI_API_KEY", is_secret=True, help="Key."
    )
    parser.add_argument(
        "--in-flight-max", type=int, default=_IN_FLIGHT_MAX, help="Open requests per worker."
    )
    parser.add_argument("--timeout-s", type=float, default=_TIMEOUT_S, help="For an answer.")
    parser.add_argument("--run-id", default="", help="Part of each event's id: letters, digits.")
    parser.add_argument("--out", default="", include_in_web_ui=False, help="Write the JSON here.")


def _asked(options: Any, *, run: str) -> StepPlan:
    trace = trace_lines(Path(options.trace).read_text()) if options.trace else None
    asked = StepPlan(
        run=run,
        stream=options.stream,
        rate=float(options.rate),
        duration_s=seconds_of(options.duration),
        warmup_s=seconds_of(options.warm_up),
        plan=options.plan,
        trace=trace,
        spacing=options.spacing,
        seed=int(options.seed),
        batch=int(options.batch),
        event_bytes=int(options.event_bytes),
        slo=Slo(p99_ms=float(options.slo_p99_ms), error_share=float(options.slo_errors)),
    )
    if asked.event_bytes < (least := smallest_bytes(run)):
        raise PlanError(f"--event-bytes {asked.event_bytes}: id and due need at least {least}")
    if asked.batch < 1 or asked.requests.count <= 0:
        raise PlanError("--batch and --rate must be more than 0")
    return asked


@events.init.add_listener
def _set_up(environment: Any, **_: Any) -> None:
    runner = environment.runner
    if isinstance(runner, WorkerRunner):
        runner.register_message("arrivals_share", _take_share)
    else:
        _refuse_wrong(environment.parsed_options)
    if isinstance(runner, MasterRunner):
        runner.register_message("arrivals_done", _worker_is_done)
    if environment.web_ui:
        add_tab(environment.web_ui, step.document)


def _refuse_wrong(options: Any) -> None:
    """Check the options before anything runs; otherwise a greenlet would print a traceback."""
    try:
        plan_of(options.plan or "hold:1:1s")
        _asked(options, run="x")
    except (PlanError, OSError) as error:
        sys.stderr.write(f"loadtests: {error}\n")
        raise SystemExit(2) from error


@events.test_start.add_listener
def _begin(environment: Any, **_: Any) -> None:
    runner, options = environment.runner, environment.parsed_options
    if isinstance(runner, WorkerRunner):
        return
    run = options.run_id or uuid.uuid4().hex[:8]
    try:
        asked = _asked(options, run=run)
    except (PlanError, OSError) as error:
        step.refuse(str(error))
        return
    clients = list(runner.clients.ready) if isinstance(runner, MasterRunner) else []
    step.begin(asked, worker=0, workers=max(1, len(clients)))
    for worker, client in enumerate(clients):
        share = {"run": run, "worker": worker, "workers": len(clients), "options": vars(options)}
        if options.trace:
            share["trace"] = Path(options.trace).read_text()
        runner.send_message("arrivals_share", share, client_id=client.id)


def _take_share(environment: Any, msg: Any, **_: Any) -> None:
    """Take this worker's share, before its user starts."""
    options = environment.parsed_options
    vars(options).update(msg.data["options"])
    trace = msg.data.get("trace")
    options.trace = ""
    asked = _asked(options, run=msg.data["run"])
    if trace is not None:
        asked = replace(asked, trace=trace_lines(trace))
    step.begin(asked, worker=msg.data["worker"], workers=msg.data["workers"])


def _worker_is_done(environment: Any, msg: Any, **_: Any) -> None:  # noqa: ARG001 - Locust names them
    step.recorder.merge(msg.data)
    step.done += 1
    step.has_ended = step.done >= step.workers


@events.report_to_master.add_listener
def _report(data: dict[str, Any], **_: Any) -> None:
    data["open_loop"] = step.recorder.take()


@events.worker_report.add_listener
def _take_report(data: dict[str, Any], **_: Any) -> None:
    if "open_loop" in data:
        step.recorder.merge(data["open_loop"])


@events.test_stop.add_listener
def _end(environment: Any, **_: Any) -> None:
    # If the browser starts another step, Locust reads these flags before that step begins.
    step.has_ended = step.is_running = False
    if isinstance(environment.runner, WorkerRunner) or not step.asked.stream:
        return
    result = step.document()
    if out := environment.parsed_options.out:
        Path(out).write_text(json.dumps(result))
    due, late = result["due_ms"], result["late_ms"]
    says = (
        f"{result['verdict']}: {result['acked_per_s']:,.0f} events/s of"
        f" {result['events_per_s']:,.0f}; from due p50 {due['p50']:.1f}, p99 {due['p99']:.1f} ms;"
        f" late p99 {late['p99']:.1f} ms"
    )
    sys.stderr.write(f"{says}\n" + "".join(f"  {reason}\n" for reason in result["reasons"]))
    # Failed requests affect the verdict; they do not fail the run.
    environment.process_exit_code = 0
    assert isinstance(environment.runner, LocalRunner | MasterRunner), "all others have returned"
