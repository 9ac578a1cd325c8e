"""Serves HTTP with uvicorn: its settings, who hears signals, which port."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from shared.runtime.setup_error import SetupError

# Connections that wait to be accepted while the loop is busy (the kernel's own cap is 4,096).
_BACKLOG = 2_048


class HttpServer(uvicorn.Server):
    """A server that leaves signals to the process: several may run in it, and we drain first."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def server_config(app: ASGIApp, *, drain_s: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # What a proxy says of its clients decides nothing here, and the wrapper costs.
        proxy_headers=False,
        date_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=drain_s,
    )


@contextlib.contextmanager
def listening(what: str, *, host: str, port: int, setting: str) -> Iterator[socket.socket]:
    """A socket on the port, or one sentence that says who else may have it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise SetupError(
            f"{what} cannot listen on {host}:{port} ({error.strerror}):"
            f" stop what uses that port, or set {setting}."
        ) from error
    with bound:
        yield bound
