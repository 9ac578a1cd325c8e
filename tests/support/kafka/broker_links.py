"""An embedded cluster whose brokers reach each other over links that can be cut.

Clients reach them as usual. Each broker knows the others by names, which its own Java resolves to
loopback addresses of its own: a link listens there, and passes on its bytes. A link that is cut
holds its bytes until it is restored, like a network that loses packets.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from itertools import permutations
from typing import Any

from deploy.local.broker_properties import BrokerAddress
from deploy.local.cluster import STOP_TIMEOUT_S, Cluster
from deploy.local.ports import pick_free
from shared.runtime.defaults import HOST

_PIECE = 65_536
_PATIENCE_S = 10.0


class Links:
    """A link from each broker to each other one; a thread of their own runs all links.

    They need Linux, as other systems have only one loopback address.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._whole: dict[int, asyncio.Event] = {}
        # Bytes that each broker's links have kept back since they were cut.
        self._kept_back: dict[int, int] = {}

    def open(self, ports: Mapping[int, Sequence[int]]) -> None:
        """Listen; raise OSError where this machine lacks some of these loopback addresses."""
        self._thread.start()
        try:
            self._ask(self._listen(ports))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        self._ask(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_S)
        self._loop.close()

    def cut(self, broker_id: int) -> None:
        """From now on, let no bytes pass between this broker and the others."""
        self._kept_back[broker_id] = 0
        self._loop.call_soon_threadsafe(self._whole[broker_id].clear)

    def mend(self, broker_id: int) -> int:
        """Restore the links; return how many bytes were kept back."""
        self._loop.call_soon_threadsafe(self._whole[broker_id].set)
        return self._kept_back.pop(broker_id, 0)

    def _ask(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(_PATIENCE_S)

    async def _listen(self, ports: Mapping[int, Sequence[int]]) -> None:
        self._whole = {broker_id: asyncio.Event() for broker_id in ports}
        for each in self._whole.values():
            each.set()
        for source, target in permutations(ports, 2):
            for port in ports[target]:
                await self._listen_at(source, target, port)

    async def _listen_at(self, source: int, target: int, port: int) -> None:
        ends = (source, target)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await self._pass(ends, b"")
                far_reader, far_writer = await asyncio.open_connection(HOST, port)
            except OSError:
                writer.close()
                return
            await asyncio.gather(
                self._pump(ends, reader, far_writer), self._pump(ends, far_reader, writer)
            )

        await asyncio.start_server(serve, address_of(source, target), port)

    async def _pump(
        self, ends: tuple[int, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while piece := await reader.read(_PIECE):
                await self._pass(ends, piece)
                writer.write(piece)
                await writer.drain()
        except OSError:
            pass
        finally:
            # The end of a connection does not get through, either.
            await self._pass(ends, b"")
            writer.close()

    async def _pass(self, ends: tuple[int, int], piece: bytes) -> None:
        for end in ends:
            if not self._whole[end].is_set():
                self._kept_back[end] = self._kept_back.get(end, 0) + len(piece)
                await self._whole[end].wait()

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def address_of(source: int, target: int) -> str:
    """Return the address at which the link from one broker to another listens."""
    return f"127.0.{source}.{target}"


class LinkedCluster(Cluster):
    """A cluster like that of `hifi up`, but with links between brokers, and no access control."""

    # None where this machine lacks the addresses: brokers then reach each other as usual.
    links: Links | None = None

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        super().stop(timeout_s)
        if self.links is not None:
            self.links.close()
            self.links = None

    def _write_properties(self) -> None:
        super()._write_properties()
        inner = dict(zip(self._brokers, pick_free(self._count), strict=True))
        links = Links()
        try:
            links.open(
                {one.broker_id: (inner[one.broker_id], one.controller_port) for one in self._all}
            )
        except OSError:
            return
        self.links = links
        for one in self._all:
            folder = self._broker_folder(one.broker_id)
            (folder / "hosts").write_text(_hosts(one.broker_id, self._brokers))
            with (folder / "server.properties").open("a") as file:
                # If two lines have the same name, the later one counts.
                file.write(_inner_listener(one, self._all, inner[one.broker_id]))

    @property
    def _all(self) -> list[BrokerAddress]:
        return list(self._brokers.values())

    def _java_argv(self, broker_id: int, options: Sequence[str]) -> list[str]:
        if self.links is not None:
            hosts = self._broker_folder(broker_id) / "hosts"
            options = [*options, f"-Djdk.net.hosts.file={hosts}"]
        return super()._java_argv(broker_id, options)


def _inner_listener(broker: BrokerAddress, brokers: Sequence[BrokerAddress], port: int) -> str:
    """Return the settings of a listener for brokers only, beside the one for clients."""
    client, name = f"PLAINTEXT://{HOST}:{broker.port}", _name(broker.broker_id)
    voters = [f"{one.broker_id}@{_name(one.broker_id)}:{one.controller_port}" for one in brokers]
    settings = {
        "listeners": f"{client},INNER://{HOST}:{port},CONTROLLER://{HOST}:{broker.controller_port}",
        "advertised.listeners": (
            f"{client},INNER://{name}:{port},CONTROLLER://{name}:{broker.controller_port}"
        ),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name": "INNER",
        "controller.quorum.voters": ",".join(voters),
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _hosts(broker_id: int, brokers: Iterable[int]) -> str:
    """Return the addresses of all names that a broker can find."""
    lines = [f"{HOST} localhost {_name(broker_id)}"]
    lines += [f"{address_of(broker_id, one)} {_name(one)}" for one in brokers if one != broker_id]
    return "\n".join(lines) + "\n"


def _name(broker_id: int) -> str:
    return f"broker-{broker_id}.test"
