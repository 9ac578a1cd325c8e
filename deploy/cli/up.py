"""`hifi up`: runs the embedded stack in the foreground until Ctrl-C, with one live status line."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Literal, Self

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from deploy.local.stack import DEMO_DESTINATION, DEMO_STREAM, Stack, StackSettings
from observe.books import Books, open_books
from shared.audit import Balance
from shared.runtime.jars import Progress, default_cache
from shared.topics import destination_id

# A person sees a second's change; the books cost a few round trips to Kafka.
_STATUS_S = 1.0

_console = Console(highlight=False, soft_wrap=True)


def _port(name: str, what: str) -> object:
    return typer.Option(envvar=f"HIFI_UP_{name}", help=what, min=1, max=65_535)


def up(  # noqa: PLR0917 - typer makes an option of each
    data: Annotated[
        Path, typer.Option(envvar="HIFI_UP_DATA", help="Where everything is kept.")
    ] = Path("data"),
    brokers: Annotated[
        int,
        typer.Option(envvar="HIFI_UP_BROKERS", help="1, or 3: replicated, survives a broker."),
    ] = 1,
    kafka_port: Annotated[int, _port("KAFKA_PORT", "First Kafka port.")] = 9092,
    gateway_port: Annotated[int, _port("GATEWAY_PORT", "Where to POST events.")] = 8080,
    gateway_metrics_port: Annotated[int, _port("GATEWAY_METRICS_PORT", "Probes, metrics.")] = 8081,
    delivery_metrics_port: Annotated[int, _port("DELIVERY_METRICS_PORT", "Metrics.")] = 8082,
    retrier_metrics_port: Annotated[int, _port("RETRIER_METRICS_PORT", "Metrics.")] = 8083,
    sample_port: Annotated[int, _port("SAMPLE_PORT", "Shows what arrives.")] = 8090,
    kafka_heap_mb: Annotated[
        int | None, typer.Option(envvar="HIFI_UP_KAFKA_HEAP_MB", help="Each broker's heap.")
    ] = None,
    spark_heap_mb: Annotated[
        int, typer.Option(envvar="HIFI_UP_SPARK_HEAP_MB", help="Each Spark driver's heap.", min=512)
    ] = 1024,
    time_scale: Annotated[
        float,
        typer.Option(envvar="HIFI_UP_TIME_SCALE", help="0.01: retry delays 100 times as fast."),
    ] = 1.0,
) -> None:
    """Run Hifi on this machine: Kafka, gateway, delivery, retrier, a sample destination.

    Ctrl-C drains and stops all of it; the data stays and the next start finds it again.
    """
    settings = StackSettings(
        folder=data.absolute(),
        cache=default_cache(),
        brokers=_brokers(brokers),
        kafka_port=kafka_port,
        gateway_port=gateway_port,
        gateway_metrics_port=gateway_metrics_port,
        delivery_metrics_port=delivery_metrics_port,
        retrier_metrics_port=retrier_metrics_port,
        sample_port=sample_port,
        kafka_heap_mb=kafka_heap_mb,
        spark_heap_mb=spark_heap_mb,
        time_scale=time_scale,
    )
    started_s = time.monotonic()
    steps = _Steps()
    stack = Stack(settings, environ=os.environ, say=steps.say)
    with _signals() as stop:
        try:
            with steps:
                stack.start(steps.fetched)
            _console.print(f"Hifi is up after {time.monotonic() - started_s:.0f} s.\n")
            _console.print(_where(settings))
            stop.is_serving = True
            _watch(stack, stop)
        except KeyboardInterrupt:
            _console.print("interrupted while starting")
        finally:
            stop.is_serving = True
            with steps:
                stack.stop()
            _console.print("Everything has stopped; the data is in", str(settings.folder))


class _Stop(threading.Event):
    """Set by the first signal. While nothing is served yet, it also interrupts the start."""

    is_serving = False

    def take(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_set():
            return
        self.set()
        if not self.is_serving:
            raise KeyboardInterrupt


@contextmanager
def _signals() -> Iterator[_Stop]:
    """Ctrl-C, a stop by a service manager and a closed terminal all mean: drain and stop."""
    stop = _Stop()
    before = {
        number: signal.signal(number, stop.take)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Steps:
    """One line that says what is being done; on something that is no terminal, a line for each."""

    def __init__(self) -> None:
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if _console.is_terminal:
            self._live = Live(console=_console, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, what: str) -> None:
        if self._live is not None:
            self._live.update(Text(f"  {what} ...", style="dim"))
        else:
            _console.print(f"  {what} ...")

    def fetched(self, progress: Progress) -> None:
        mb, mb_total = progress.size_bytes / 1e6, progress.size_bytes_total / 1e6
        self.say(
            f"fetching jars for {progress.jar_set}: {progress.done} of {progress.total},"
            f" {mb:.0f} of {mb_total:.0f} MB, {progress.file_name}"
        )


def _where(settings: StackSettings) -> str:
    events = f"http://127.0.0.1:{settings.gateway_port}/v1/streams/{DEMO_STREAM}/events"
    return f"""\
  events in    {events}
  events out   http://127.0.0.1:{settings.sample_port}/  (sample destination, shows what arrives)
  kafka        127.0.0.1:{settings.kafka_port}
  metrics      {
        ", ".join(
            f"http://127.0.0.1:{port}/metrics"
            for port in (
                settings.gateway_metrics_port,
                settings.delivery_metrics_port,
                settings.retrier_metrics_port,
            )
        )
    }
  data, logs   {settings.folder}

Try it:

  curl -i {events} -H 'content-type: application/json' -d '[{{"id":"1","says":"hello"}}]'

Ctrl-C drains and stops everything.
"""


def _watch(stack: Stack, stop: _Stop) -> None:
    """Keep the status line true until a signal comes."""
    with asyncio.Runner() as runner, Live(console=_console, transient=True) as live:
        books_context = open_books(stack.bootstrap_servers)
        books = runner.run(books_context.__aenter__())
        try:
            while not stop.wait(_STATUS_S):
                stack.look_after()
                balance = runner.run(_balance(books))
                if _console.is_terminal:
                    live.update(status_line(balance))
        finally:
            runner.run(books_context.__aexit__(None, None, None))


async def _balance(books: Books) -> Balance:
    return await books.balance(DEMO_STREAM, destination_id(DEMO_STREAM, DEMO_DESTINATION))


def status_line(balance: Balance) -> Text:
    """The books of the sample destination in one line."""
    line = Text("  ")
    for count, what in (
        (balance.acked, "acked"),
        (balance.delivered, "delivered"),
        (balance.pending, "on their way"),
        (balance.waiting, "waiting"),
        (balance.dead, "dead"),
    ):
        line.append(f"{count:,} {what}  ")
    style = "bold red" if balance.unaccounted else "green"
    line.append(f"{balance.unaccounted:,} unaccounted", style=style)
    return line


def _brokers(count: int) -> Literal[1, 3]:
    match count:
        case 1:
            return 1
        case 3:
            return 3
        case _:
            raise typer.BadParameter(f"{count}: 1 or 3 brokers can be run", param_hint="--brokers")
