"""Runs the gateway with settings from the environment, until SIGTERM or Ctrl-C."""

import asyncio
import signal

import uvloop

from gateway.http.allocator import tune
from gateway.server import serve
from gateway.settings import Settings
from shared.runtime.logs import configure_logs
from shared.runtime.settings import operator_errors, read_settings


def main() -> None:
    """Run the gateway; exit with 0 after a drain, with 1 and one sentence if it cannot start."""
    settings = read_settings(Settings, program="hifi gateway")
    with operator_errors("hifi gateway"):
        configure_logs(service="gateway", level=settings.log_level)
        tune()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve_until_told(settings))


async def serve_until_told(settings: Settings) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(settings, stop=stop)


if __name__ == "__main__":
    main()
