"""`hifi gateway`: runs a gateway with several workers until it is told to stop."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer


def gateway(
    workers: Annotated[
        int, typer.Option(envvar="HIFI_GATEWAY_WORKERS", help="Processes on one port.", min=1)
    ] = 1,
) -> None:
    """Run the gateway with so many workers; HIFI_GATEWAY_... are its settings.

    Each worker shows probes and metrics on a port of its own: the metrics port, and those after it.
    """
    # Half a second that no other command should take.
    from deploy.cli.gateway_crew import run  # noqa: PLC0415
    from gateway.settings import Settings  # noqa: PLC0415
    from shared.runtime.settings import read_settings  # noqa: PLC0415

    with _stop_signals() as stop:
        run(read_settings(Settings, program="hifi gateway"), workers, stop=stop)


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
