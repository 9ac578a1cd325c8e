"""`hifi gateway`: runs a gateway with several workers until a signal stops it."""

import signal
import threading
from typing import Annotated

import typer

from deploy.cli.signals import on_signals


def gateway(
    workers: Annotated[
        int, typer.Option(envvar="HIFI_GATEWAY_WORKERS", help="Worker processes.", min=1)
    ] = 1,
) -> None:
    """Run the gateway with several workers; HIFI_GATEWAY_... are its settings.

    All workers share one port for events. Each serves probes and metrics on its own port: the
    metrics port, and those after it.
    """
    # These imports take half a second, which no other command should spend.
    from deploy.cli.gateway_crew import run  # noqa: PLC0415
    from gateway.settings import Settings  # noqa: PLC0415
    from shared.runtime.settings import read_settings  # noqa: PLC0415

    stop = threading.Event()
    with on_signals(lambda *_: stop.set(), signal.SIGINT, signal.SIGTERM):
        run(read_settings(Settings, program="hifi gateway"), workers, stop=stop)
