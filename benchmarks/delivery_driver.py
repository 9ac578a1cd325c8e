"""Runs delivery as a real process, for benchmarks that measure it from outside."""

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
from shared.config.configuration import Stream
from shared.config.destination import Destination
from shared.config.model import ConfigObject
from tests.support.kafka.config_records import write_config, write_records

_READY_TIMEOUT_S = 90.0
_STOP_TIMEOUT_S = 60.0
_LOOK_S = 0.2


class Driver:
    """Controls a delivery process."""

    def __init__(self, servers: str, metrics_port: int, pid: int) -> None:
        self.pid = pid
        self._servers = servers
        self._metrics = f"http://127.0.0.1:{metrics_port}/metrics"

    def configure(self, objects: Sequence[ConfigObject]) -> None:
        asyncio.run(write_config(self._servers, objects))

    def set_up(self, destinations: Sequence[Destination]) -> None:
        """Configure destinations and wait until their lanes run."""
        self.configure(
            [*(Stream(name) for name in {one.stream for one in destinations}), *destinations]
        )
        await_lanes([self], destinations, are_up=True)

    def take_away(self, destinations: Sequence[Destination]) -> None:
        """Remove destinations and wait until their lanes have ended."""
        asyncio.run(write_records(self._servers, [(one.config_key, None) for one in destinations]))
        await_lanes([self], destinations, are_up=False)

    def events_sent(self, destination: Destination) -> int:
        """Return how many events of a destination have an outcome."""
        name = f'hifi_delivery_events_read_total{{destination="{destination.id}"}} '
        lines = [line for line in self.says().splitlines() if line.startswith(name)]
        return round(sum(float(line.removeprefix(name)) for line in lines))

    def says(self) -> str:
        try:
            with urlopen(self._metrics, timeout=5) as answer:  # noqa: S310 - loopback, ours
                text: str = answer.read().decode()
        except OSError:
            return ""
        return text


def await_lanes(
    drivers: Sequence[Driver], destinations: Sequence[Destination], *, are_up: bool
) -> None:
    """Wait until each lane of these destinations runs in a process, or until all have ended."""
    until_s = time.monotonic() + _READY_TIMEOUT_S
    wanted = {f'hifi_delivery_lane_up{{destination="{one.id}"}}' for one in destinations}
    while True:
        pages = [driver.says() for driver in drivers]
        lines = [line.rpartition(" ") for text in pages for line in text.splitlines()]
        shown = {name: float(value) for name, _, value in lines if name in wanted}
        # An empty answer, as from a busy driver, proves nothing.
        if all(shown.get(one) for one in wanted) if are_up else all(pages) and not shown:
            return
        if time.monotonic() > until_s:
            raise RuntimeError(
                f"some lanes of {len(wanted)} did not {'start' if are_up else 'end'}"
            )
        time.sleep(_LOOK_S)


@contextmanager
def running_driver(servers: str, folder: Path, code: Path | None = None) -> Iterator[Driver]:
    """Run a delivery process; `code`: a checkout of another release to run instead."""
    (port,) = pick_free(1)
    environment = {
        **os.environ,
        "HIFI_DELIVERY_BOOTSTRAP_SERVERS": servers,
        "HIFI_DELIVERY_FOLDER": str(folder),
        "HIFI_DELIVERY_METRICS_PORT": str(port),
        "HIFI_DELIVERY_ALLOW_PRIVATE": "true",
        "HIFI_DELIVERY_MAKES_CLASS_ARCHIVE": "false",
    }
    with folder.with_suffix(".log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "delivery"], env=environment, stdout=log, stderr=log, cwd=code
        )
        try:
            yield Driver(servers, port, process.pid)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
