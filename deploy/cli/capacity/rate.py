"""`hifi rate`: finds what a Hifi is good for: offers load open loop, and searches what it holds."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from deploy.cli import options
from deploy.cli.printing import talk
from deploy.cli.signals import on_signals
from deploy.local.ports import pick_free
from deploy.local.stack import Stack
from deploy.local.stack_settings import StackSettings
from shared.runtime.setup_error import UsageError

What = Literal["ingest", "delivery", "whole"]
# Where the load tests lie: they do not ship.
_ROOM = "loadtests"
_NEEDED = (_ROOM, "locust", "hdrh")
_OUT = Path("loadtests/ratings")


def _load(  # noqa: PLR0917 - typer makes an option of each
    batch: Annotated[int, typer.Option(help="Events in a request.", min=1, max=5_000)] = 100,
    event_bytes: Annotated[int, typer.Option(help="Size of an event.", min=90)] = 500,
    slo_p99_ms: Annotated[
        float | None, typer.Option(help="Promised of answers, from due: 100, or 1000.", min=1)
    ] = None,
    slo_age_p95_ms: Annotated[
        float | None, typer.Option(help="Promised at the destination: 1000 (whole).", min=1)
    ] = None,
    start: Annotated[
        float | None, typer.Option(help="First guess, in events a second.", min=1)
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="One step at this rate, no search.", min=1)
    ] = None,
    hold: Annotated[str, typer.Option(help="How long a step is measured.")] = "60s",
    warm_up: Annotated[str, typer.Option(help="How long it runs before that.")] = "15s",
    processes: Annotated[
        int, typer.Option(help="Of the generator; 0: one for every two cores.", min=0)
    ] = 0,
    sink_host: Annotated[
        str, typer.Option(help="Where delivery reaches this machine.", metavar="ADDRESS")
    ] = "127.0.0.1",
    label: Annotated[str, typer.Option(help="The machine that is rated: c7g.large.")] = "",
    workers: Annotated[int, typer.Option(help="Gateway workers that it runs.", min=1)] = 1,
    stream: Annotated[str, typer.Option(help="Where the events go.")] = "rating",
    out: Annotated[Path, typer.Option(help="Where rating and report go.")] = _OUT,
) -> list[str]:
    """What the load test is told, as its own arguments: they are called the same."""
    return [
        part
        for name, value in locals().items()
        if value is not None
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]


@options.made_of(load=_load)
def rate(  # noqa: PLR0917 - typer makes an option of each
    load: list[str],
    what: Annotated[
        What,
        typer.Argument(
            help="POST to acknowledgement; what destinations keep up with; POST to destination."
        ),
    ] = "ingest",
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    api_key: options.ApiKey = None,
    kafka: options.Kafka = options.KAFKA_DEFAULT,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start a Hifi for this on free ports, and end it after.")
    ] = False,
) -> None:
    """Rate a Hifi: the most events a second at which it keeps its promises.

    Requests are due at moments that no answer can change, and all times count from there. Each step
    is met, broken, or invalid because this machine was too slow to know: that rates nothing. Exit
    code 3 when nothing could be rated.

        hifi rate --fresh --hold 20s

        hifi rate ingest --gateway http://10.0.1.5:8080 --label c7g.large --processes 4

        hifi rate whole --fresh --rate 5000
    """
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise UsageError(
            f"Ratings need {', '.join(missing)}, which do not ship: run `make rate` in a checkout"
            ' of Hifi (ARGS="..." takes these options), or `uv sync --group rate` there.'
        )
    with _to_rate(what, gateway, kafka, is_fresh=fresh) as (url, servers):
        ended = subprocess.run(
            [sys.executable, "-m", _ROOM, what, "--gateway", url, "--kafka", servers, *load],
            # Arguments can be read by everybody on this machine.
            env={**os.environ, "HIFI_API_KEY": api_key or ""},
            check=False,
        )
    raise typer.Exit(ended.returncode)


@contextmanager
def _to_rate(what: What, gateway: str, kafka: str, *, is_fresh: bool) -> Iterator[tuple[str, str]]:
    """The gateway and the Kafka of the Hifi that is rated."""
    if not is_fresh:
        yield gateway, kafka
        return
    with tempfile.TemporaryDirectory(prefix="hifi-rate-") as folder:
        stack = Stack(_settings(Path(folder)), environ=os.environ, say=_say)
        if what == "ingest":
            # Nobody reads what is sent; Spark's drivers would only take its cores.
            stack.services = [each for each in stack.services if each.name == "gateway"]
        with on_signals(_interrupt, signal.SIGTERM, signal.SIGHUP):
            try:
                stack.start(lambda jars: _say(f"fetching jars for {jars.jar_set}"))
                yield stack.gateway, stack.bootstrap_servers
            finally:
                stack.stop()


def _settings(folder: Path) -> StackSettings:
    kafka, gateway, sample, console, *metrics = pick_free(9)
    return StackSettings(
        folder=folder,
        kafka_port=kafka,
        gateway_port=gateway,
        sample_port=sample,
        console_port=console,
        gateway_metrics_port=metrics[0],
        delivery_metrics_port=metrics[1],
        retrier_metrics_port=metrics[2],
        observe_metrics_port=metrics[3],
        realtime_metrics_port=metrics[4],
    )


def _say(what: str) -> None:
    talk.print(f"  {what} ...", style="dim")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
