"""Runs delivery as the process that it is, for benchmarks that look at it from outside."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from deploy.local.ports import pick_free
from shared.config.destination import Destination, Latency
from tests.support.config_records import write_config, write_records

_READY_TIMEOUT_S = 90.0
_STOP_TIMEOUT_S = 60.0
_LOOK_S = 0.2


class Driver:
    """A delivery process and the way to tell it what to do."""

    def __init__(self, servers: str, metrics_port: int) -> None:
        self._servers = servers
        self._metrics = f"http://127.0.0.1:{metrics_port}/metrics"

    def set_up(self, destinations: Sequence[Destination]) -> None:
        """Configure destinations and wait until their lanes run."""
        asyncio.run(write_config(self._servers, destinations))
        self._await_lanes(destinations, are_up=True)

    def take_away(self, destinations: Sequence[Destination]) -> None:
        """Remove destinations and wait until their lanes have ended."""
        asyncio.run(write_records(self._servers, [(one.config_key, None) for one in destinations]))
        self._await_lanes(destinations, are_up=False)

    def _await_lanes(self, destinations: Sequence[Destination], *, are_up: bool) -> None:
        until_s = time.monotonic() + _READY_TIMEOUT_S
        is_so = float(are_up)
        # A lane that has ended says 0; that nothing is said, as by a busy driver, tells nothing.
        wanted = {
            f'hifi_delivery_lane_up{{destination="{one.id}"}} {is_so}' for one in destinations
        }
        while not wanted <= set(self._says().splitlines()):
            if time.monotonic() > until_s:
                raise RuntimeError(f"these lanes did not {'start' if are_up else 'end'}: {wanted}")
            time.sleep(_LOOK_S)

    def _says(self) -> str:
        try:
            with urlopen(self._metrics, timeout=5) as answer:  # noqa: S310 - loopback, ours
                text: str = answer.read().decode()
        except OSError:
            return ""
        return text


@contextmanager
def running_driver(servers: str, folder: Path, latency: Latency) -> Iterator[Driver]:
    (port,) = pick_free(1)
    environment = {
        **os.environ,
        "HIFI_DELIVERY_BOOTSTRAP_SERVERS": servers,
        "HIFI_DELIVERY_FOLDER": str(folder),
        "HIFI_DELIVERY_LATENCY": latency,
        "HIFI_DELIVERY_METRICS_PORT": str(port),
        "HIFI_DELIVERY_ALLOW_PRIVATE": "true",
        "HIFI_DELIVERY_MAKES_CLASS_ARCHIVE": "false",
    }
    with (folder.parent / f"{latency}.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "delivery"], env=environment, stdout=log, stderr=log
        )
        try:
            yield Driver(servers, port)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
