"""A server that tests start by the hundred."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from shared.runtime.serving.server import HttpServer

LOOK_S = 0.005
# No request of a test takes longer.
STOP_TIMEOUT_S = 10.0


class QuickServer(HttpServer):
    """Stops within a hundredth of a second; uvicorn takes 0.2 s, and tests start hundreds."""

    # The context that lasts while the server serves.
    followed: Callable[[], AbstractContextManager[None]] = nullcontext
    # Called in the server's own loop when it stops; afterwards the loop may be gone.
    stops: Callable[[], Awaitable[object]] = partial(asyncio.sleep, 0)

    async def main_loop(self) -> None:
        await self.on_tick(0)
        with self.followed():
            while not self.should_exit:  # noqa: ASYNC110 - a flag of uvicorn's
                await asyncio.sleep(LOOK_S)
        await self.stops()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for each in sockets or ():
            each.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        async with asyncio.timeout(STOP_TIMEOUT_S):
            while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)
