"""`hifi rate`: finds the highest open-loop load at which a Hifi keeps its promises."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from deploy.cli import options
from deploy.cli.printing import out, talk
from deploy.cli.scale.ask_options import Members
from deploy.cli.scale.fresh import fresh_stack
from deploy.cli.scale.inputs import RATINGS, span_s
from shared.config.destination import Latency
from shared.runtime.setup_error import UsageError

What = Literal["gateway", "delivery", "whole"]
# The load tests and their packages, which do not ship.
_NEEDED = ("loadtests", "locust", "hdrh")
_NOT_RATED = 3
_QUICK = {"hold_s": 20.0, "warmup_s": 5.0}


def load_of(  # noqa: PLR0917 - typer makes an option of each
    batch: Annotated[int, typer.Option(help="Events in a request.", min=1, max=5_000)] = 100,
    event_bytes: Annotated[int, typer.Option(help="Size of an event.", min=90)] = 500,
    p99_ms: Annotated[
        float | None,
        typer.Option(
            "--slo-p99-ms",
            help="Promised p99 of answers, counted from the schedule: gateway 100, others 1000.",
            min=1,
        ),
    ] = None,
    age_p95_ms: Annotated[
        float | None,
        typer.Option("--slo-age-p95-ms", help="Promised p95 of age on arrival.", min=1),
    ] = None,
    start: Annotated[
        float | None, typer.Option(help="First rate to try, in events a second.", min=1)
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Run only one step, at this rate; no rating.", min=1)
    ] = None,
    hold: Annotated[str, typer.Option(metavar="SPAN", help="How long a step is measured.")] = "60s",
    warm_up: Annotated[
        str, typer.Option(metavar="SPAN", help="How long a step runs before it is measured.")
    ] = "15s",
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure 20s after 5s: a third of the time.")
    ] = False,
    latency: Annotated[
        Latency, typer.Option(help="Latency setting of the destination.")
    ] = "micro-batch",
    instance: Annotated[
        str, typer.Option(help="Type of the rated machine, as its cloud names it: c7g.large.")
    ] = "",
    cores: Annotated[
        int, typer.Option(help="Cores of the rated machine, if it is not this one.", min=0)
    ] = 0,
    workers: Annotated[int, typer.Option(help="Gateway workers on it.", min=1)] = 1,
    stream: Annotated[str, typer.Option(help="Stream to send to.")] = "rating",
    caveat: Annotated[
        list[str] | None,
        typer.Option(help="A caveat for readers, such as where Kafka runs; repeat for more."),
    ] = None,
) -> Members:
    times = _QUICK if quick else {"hold_s": span_s(hold), "warmup_s": span_s(warm_up)}
    return times | {
        "batch": batch,
        "event_bytes": event_bytes,
        "p99_ms": p99_ms,
        "age_p95_ms": age_p95_ms,
        "start": start,
        "rate": rate,
        "latency": latency,
        "instance": instance,
        "cores": cores,
        "workers": workers,
        "stream": stream,
        "caveats": tuple(caveat or ()),
    }


def generator_of(
    processes: Annotated[
        int, typer.Option(help="Processes of the generator; 0: one for every two cores.", min=0)
    ] = 0,
    lean: Annotated[
        bool,
        typer.Option(
            "--lean", help="Use half the CPU, without Locust: for a generator on the rated machine."
        ),
    ] = False,
    sink_host: Annotated[
        str, typer.Option(help="Address of this machine, for delivery.", metavar="ADDRESS")
    ] = "127.0.0.1",
) -> Members:
    return {
        "processes": 1 if lean else processes or max(1, (os.cpu_count() or 1) // 2),
        "is_lean": lean,
        "sink_host": sink_host,
    }


@options.made_of(load=load_of, generator=generator_of)
def rate(  # noqa: PLR0917 - typer makes an option of each
    load: Members,
    generator: Members,
    what: Annotated[
        What,
        typer.Argument(
            help="The rated part: POST to acknowledgement; delivery; or POST to destination."
        ),
    ] = "gateway",
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    api_key: options.ApiKey = None,
    kafka: options.Kafka = options.KAFKA_DEFAULT,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start a Hifi for this on free ports, then stop it.")
    ] = False,
    folder: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Folder for rating and report.")
    ] = RATINGS,
) -> None:
    """Measure the most events per second at which a Hifi keeps its promises.

    Requests are sent on a fixed schedule, whatever the answers, and times count from the schedule.
    A step keeps the promises, breaks them, or is invalid because this machine was too slow to
    measure. Exit code 3 if nothing could be rated, or the one step of --rate failed.

        hifi rate --fresh --quick

        hifi rate gateway --gateway http://10.0.1.5:8080 --instance c7g.large --cores 2

        hifi rate whole --fresh --rate 5000
    """
    require_load_tests("Ratings", "make rate")
    if fresh and load["workers"] > 1:
        raise UsageError(
            "--fresh starts a gateway with one worker: to rate more, run `hifi gateway --workers"
            f" {load['workers']}` beside your own Kafka, and name it with --gateway."
        )
    # Imported here, because they may be missing (see above).
    from loadtests.rating import rate as find  # noqa: PLC0415
    from loadtests.rating_file import RatingPlan, keep  # noqa: PLC0415

    with _to_rate(what, gateway, kafka, is_fresh=fresh) as (url, servers):
        key = api_key or ""
        wanted = RatingPlan(what=what, gateway=url, kafka=servers, api_key=key, **load, **generator)
        rating = find(wanted, talk.print)
    kept, page = keep(rating, folder, is_rating=wanted.rate is None)
    for caveat in rating["caveats"]:
        talk.print(f"  {caveat}")
    out.print(
        f"rated {rating['rated']:,.0f} events/s, saturated {rating['saturated']:,.0f} events/s"
        f"\n{kept}\n{page}"
    )
    if not rating["rated"]:
        raise typer.Exit(_NOT_RATED)


def require_load_tests(what: str, target: str) -> None:
    """Raise UsageError if the load tests or their packages are missing."""
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise UsageError(
            f"{what} need {', '.join(missing)}, which do not ship: run `{target}` in a checkout"
            ' of Hifi (ARGS="..." takes these options), or `uv sync --group rate` there.'
        )


@contextmanager
def _to_rate(what: What, gateway: str, kafka: str, *, is_fresh: bool) -> Iterator[tuple[str, str]]:
    """Yield the gateway and Kafka of the Hifi to rate."""
    if not is_fresh:
        yield gateway, kafka
        return
    # Only the gateway is rated: Spark's drivers would take its cores.
    with fresh_stack("gateway" if what == "gateway" else None) as stack:
        yield stack.gateway, stack.bootstrap_servers
