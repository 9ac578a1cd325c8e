"""`hifi up`: runs the embedded stack in the foreground until Ctrl-C, with one live status line."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Self

import typer
from rich.live import Live
from rich.text import Text

from deploy.cli import options
from deploy.cli.books import NoBooksError, observed_books
from deploy.cli.printing import out
from deploy.cli.signals import INTERRUPTED, on_signals
from deploy.local.stack import DEMO_DESTINATION, DEMO_STREAM, Stack
from deploy.local.stack_settings import StackSettings
from shared.glossary import COUNTS
from shared.proof.balance import Balance
from shared.runtime.defaults import HOST
from shared.runtime.java.jars import JarProgress

# Observe makes new books once a second.
_STATUS_S = 1.0
# How soon a signal or a dead process is noticed.
_LOOK_S = 0.1


@options.made_of(settings=options.stack_settings())
def up(settings: StackSettings) -> None:
    """Run Hifi on this machine: Kafka, gateway, delivery, pipelines, a sample destination.

    Ctrl-C drains and stops everything; a second Ctrl-C stops it at once. The data stays on disk,
    and the next start uses it again.
    """
    steps = _Steps()
    run(Stack(settings, environ=os.environ, say=steps.say), steps)


def run(stack: Stack, steps: "_Steps") -> None:
    """Start, serve until a signal arrives, and stop; leave nothing running."""
    started_s = time.monotonic()
    stop = _Stop(stack.stop_at_once)
    # Ctrl-C, a stop by a service manager and a closed terminal all mean: drain and stop.
    with on_signals(stop.take, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        try:
            with steps:
                stack.start(steps.fetched)
            stop.is_serving = True
            steps.tell(f"Hifi is up after {time.monotonic() - started_s:.0f} s.\n")
            steps.tell(_where(stack.settings))
            asyncio.run(_serve(stack, stop))
        except (KeyboardInterrupt, asyncio.CancelledError):
            steps.tell("Interrupted while starting: everything has stopped.")
            raise typer.Exit(INTERRUPTED) from None
        finally:
            stop.is_set = True
            with steps:
                stack.stop()
        steps.tell(f"Everything has stopped; the data is in {stack.settings.folder}.")


class _Stop:
    """Takes signals: the first one stops the stack, also during its start.

    The second signal stops it without waiting for anything.
    """

    def __init__(self, at_once: Callable[[], None]) -> None:
        self.is_serving = False
        self.is_set = False
        self._at_once = at_once

    def take(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_set:
            self._at_once()
            return
        self.is_set = True
        if self.is_serving:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise KeyboardInterrupt from None
        # The interrupt could end any task, such as one of the Kafka client, which would log it as
        # an error.
        loop.call_soon_threadsafe(_cancel_all, loop)


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()


class _Steps:
    """Shows the current step in one line; without a terminal, prints a line for each step.

    The terminal may close at any time; Hifi runs on without it.
    """

    def __init__(self) -> None:
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if out.is_terminal:
            self._live = Live(console=out.console, transient=True, auto_refresh=False)
            with contextlib.suppress(OSError):
                self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()
            self._live = None

    def say(self, what: str) -> None:
        if self._live is not None:
            self.show(Text(f"  {what} ...", style="dim"))
        else:
            self.tell(f"  {what} ...")

    def show(self, line: Text) -> None:
        """Refresh the terminal's line."""
        assert self._live is not None, "only a terminal has a line that changes"
        with contextlib.suppress(OSError):
            self._live.update(line, refresh=True)

    def tell(self, text: str) -> None:
        """Print a line that stays."""
        with contextlib.suppress(OSError):
            out.print(text)

    def fetched(self, progress: JarProgress) -> None:
        mb, mb_total = progress.size_bytes / 1e6, progress.size_bytes_total / 1e6
        self.say(
            f"fetching jars for {progress.jar_set}: {progress.done} of {progress.total},"
            f" {mb:.0f} of {mb_total:.0f} MB, {progress.file_name}"
        )


def _where(settings: StackSettings) -> str:
    events = f"http://{HOST}:{settings.gateway_port}/v1/streams/{DEMO_STREAM}/events"
    metrics_ports = (
        settings.gateway_metrics_port,
        settings.delivery_metrics_port,
        settings.retrier_metrics_port,
        settings.pipelines_metrics_port,
        settings.observe_metrics_port,
    )
    metrics = "\n               ".join(f"http://{HOST}:{port}/metrics" for port in metrics_ports)
    return f"""\
  events in    {events}
  events out   http://{HOST}:{settings.sample_port}/  (sample destination, shows what arrives)
  console      http://{HOST}:{settings.console_port}/  (lag, loss, dead letters)
  kafka        {",".join(f"{HOST}:{port}" for port in settings.kafka_ports)}{_key(settings)}
  metrics      {metrics}
  data, logs   {settings.folder}

Try it:

  curl -i {events} -H 'content-type: application/json' -d '[{{"id":"1","says":"hello"}}]'

Ctrl-C drains and stops everything.
"""


def _key(settings: StackSettings) -> str:
    """Return the shell command that gives access to a secured Kafka."""
    return f"  (. {settings.operator_file})" if settings.secure else ""


async def _serve(stack: Stack, stop: _Stop) -> None:
    """Look after the stack and show the status line until a signal arrives."""
    showing = asyncio.create_task(_show_books(stack))
    try:
        while not stop.is_set:
            stack.look_after()
            if showing.done():
                showing.result()
            await asyncio.sleep(_LOOK_S)
    finally:
        showing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await showing


async def _show_books(stack: Stack) -> None:
    """Keep the status line current; do nothing without a terminal."""
    if not out.is_terminal:
        await asyncio.Event().wait()
    with _Steps() as status:
        while True:
            line = await asyncio.to_thread(_demo_line, stack.settings, stack.bootstrap_servers)
            ailing = [Text(f"  {problem}\n", style="bold red") for problem in stack.ailing()]
            status.show(Text().join([*ailing, line]))
            await asyncio.sleep(_STATUS_S)


def _demo_line(settings: StackSettings, kafka: str) -> Text:
    """Return the books of the sample destination as one line."""
    try:
        page = observed_books(kafka, port=settings.observe_metrics_port)
    except NoBooksError as why:
        return Text(f"  the books are unknown at the moment ({why})", style="red")
    balances = (
        row.balance
        for row in page.rows
        if (row.stream, row.destination) == (DEMO_STREAM, DEMO_DESTINATION)
    )
    balance = next(balances, Balance())
    *counts, unaccounted = (f"  {getattr(balance, name):,} {name}" for name in COUNTS)
    style = "bold red" if balance.unaccounted else "green"
    return Text("".join(counts)).append(unaccounted, style=style)
