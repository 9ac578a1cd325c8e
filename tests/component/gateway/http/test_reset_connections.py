"""A broker resets its connections at any moment: clients continue with a new one."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.admin import ApiVersionResponse_v0
from aiokafka.protocol.metadata import MetadataRequest, MetadataResponse_v1

from shared.runtime.kafka.clients import KafkaClient, new_client, running

_HEAD = struct.Struct(">ihhi")
_SIZE = struct.Struct(">i")
_METADATA, _API_VERSIONS = 3, 18
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)
_PATIENCE_S = 10.0


class ResettingBroker:
    """Claims to be the only broker, and resets its connections on demand."""

    def __init__(self) -> None:
        self.port = 0
        self.asked = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        while True:
            try:
                head = await reader.readexactly(_HEAD.size)
                size, api, _, number = _HEAD.unpack(head)
                await reader.readexactly(size + _SIZE.size - _HEAD.size)
            except (OSError, EOFError):
                return
            answer = _SIZE.pack(number) + self._answer(api)
            writer.write(_SIZE.pack(len(answer)) + answer)

    def reset(self) -> None:
        """Reset all connections, as if the process were killed with `kill -9`."""
        for writer in self._writers:
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            writer.transport.abort()
        self._writers.clear()

    def _answer(self, api: int) -> bytes:
        if api == _API_VERSIONS:
            answer = ApiVersionResponse_v0(0, [(_METADATA, 0, 1), (_API_VERSIONS, 0, 0)])
        else:
            assert api == _METADATA
            self.asked += 1
            answer = MetadataResponse_v1([(1, "127.0.0.1", self.port, None)], 1, [])
        raw: bytes = answer.encode()
        return raw


def play(test: Callable[[ResettingBroker, KafkaClient], Awaitable[None]]) -> None:
    async def main() -> None:
        broker = ResettingBroker()
        server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
        broker.port = server.sockets[0].getsockname()[1]
        servers = f"127.0.0.1:{broker.port}"
        async with server, running(new_client(servers), servers) as client:
            assert await client.force_metadata_update()
            await test(broker, client)
        broker.reset()

    # The gateway runs uvloop, which reports a closed socket differently from asyncio.
    uvloop.run(main())


async def until_closed(client: KafkaClient) -> None:
    """Wait until the loop has seen the reset, which the client's reader has not seen yet."""
    (connection,) = client._conns.values()
    async with asyncio.timeout(_PATIENCE_S):
        while not connection._writer.transport.is_closing():  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(0)
    assert connection.connected(), "the client must not know of the reset yet"


@pytest.mark.parametrize("turns", range(4))
def test_a_reset_ends_only_the_request_that_it_meets(turns: int) -> None:
    async def test(broker: ResettingBroker, client: KafkaClient) -> None:
        broker.reset()
        await until_closed(client)
        for _ in range(turns):
            await asyncio.sleep(0)
        with contextlib.suppress(KafkaConnectionError):
            await client.send(1, MetadataRequest([]))
        assert await client.send(1, MetadataRequest([]))

    play(test)


@pytest.mark.parametrize("turns", range(4))
def test_a_client_still_learns_who_leads_after_a_reset(turns: int) -> None:
    async def test(broker: ResettingBroker, client: KafkaClient) -> None:
        broker.reset()
        await until_closed(client)
        for _ in range(turns):
            await asyncio.sleep(0)
        asked = broker.asked
        # The client asks for a new topic at once; for a known one it would wait.
        client.add_topic("new")
        async with asyncio.timeout(_PATIENCE_S):
            while not await client.force_metadata_update():  # noqa: ASYNC110 - no event for it
                await asyncio.sleep(0.01)
        assert broker.asked > asked

    play(test)
