"""`hifi gateway`: runs gateway workers on one port, in the foreground, and keeps them alive.

The port is bound here and inherited by every worker, so a connection that waits to be accepted is
taken by whoever is free and outlives any single worker.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated

import typer
from rich.console import Console

from gateway.settings import Settings
from shared.runtime.setup_error import SetupError

_console = Console(stderr=True, highlight=False, soft_wrap=True)

# A worker that dies is started again after this; one that dies at once must not spin.
_RESTART_S = 0.5
# How often the workers are looked at.
_LOOK_S = 0.05
# A worker that never got so old has not started: that is a mistake to tell, not to repeat.
_STARTED_S = 5.0
_BACKLOG = 2_048


def gateway(
    workers: Annotated[
        int, typer.Option(envvar="HIFI_GATEWAY_WORKERS", help="Processes on one port.", min=1)
    ] = 1,
) -> None:
    """Run the gateway with so many workers; HIFI_GATEWAY_... are its settings.

    Each worker shows probes and metrics on a port of its own: the metrics port, and those after it.
    """
    with _stop_signals() as stop:
        run(Settings(), workers, environ=os.environ, stop=stop)


def run(
    settings: Settings, workers: int, *, environ: Mapping[str, str], stop: threading.Event
) -> None:
    """Keep the workers running until `stop` is set, then let each of them drain."""
    with _bound(settings) as front:
        crew = [
            _Worker(nth, _environment(settings, environ, nth, workers, front), front)
            for nth in range(workers)
        ]
        try:
            for worker in crew:
                worker.start()
            port = front.getsockname()[1]
            _console.print(f"{workers} gateway workers on {settings.host}:{port}")
            while not stop.wait(_LOOK_S):
                for worker in crew:
                    worker.look_after()
        finally:
            _end(crew, timeout_s=settings.drain_notice_s + settings.drain_s + 10)


@dataclass
class _Worker:
    nth: int
    environment: dict[str, str]
    front: socket.socket
    process: "subprocess.Popen[bytes] | None" = None
    started_at_s: float = 0.0
    due_at_s: float = field(default=0.0)
    has_started: bool = False

    def start(self) -> None:
        self.started_at_s = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gateway"],
            env=self.environment,
            pass_fds=(self.front.fileno(),),
        )

    def look_after(self) -> None:
        """Start it again if it has died; SetupError when it never came up."""
        now_s = time.monotonic()
        if self.process is None:
            if now_s >= self.due_at_s:
                self.start()
            return
        status = self.process.poll()
        if status is None:
            self.has_started = self.has_started or now_s - self.started_at_s > _STARTED_S
            return
        if status > 0 and not self.has_started:
            raise SetupError(f"gateway worker {self.nth} could not start: its reason stands above.")
        _console.print(f"gateway worker {self.nth} ended with {status} and is started again")
        self.process = None
        self.due_at_s = now_s + _RESTART_S


def _end(crew: list[_Worker], *, timeout_s: float) -> None:
    """Tell all workers to drain, and wait for each."""
    running = [worker.process for worker in crew if worker.process is not None]
    for process in running:
        process.send_signal(signal.SIGTERM)
    until_s = time.monotonic() + timeout_s
    for process in running:
        try:
            process.wait(max(0.1, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _environment(
    settings: Settings,
    environ: Mapping[str, str],
    nth: int,
    workers: int,
    front: socket.socket,
) -> dict[str, str]:
    # 0 asks for any port, for each worker anew.
    metrics_port = settings.metrics_port + nth if settings.metrics_port else 0
    return {
        **environ,
        "HIFI_GATEWAY_LISTEN_FD": str(front.fileno()),
        "HIFI_GATEWAY_METRICS_PORT": str(metrics_port),
        "HIFI_GATEWAY_WORKER_COUNT": str(workers),
    }


def _bound(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise SetupError(
            f"The gateway cannot listen on {settings.host}:{settings.port} ({error.strerror}):"
            " stop what uses that port, or set HIFI_GATEWAY_PORT."
        ) from error


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
