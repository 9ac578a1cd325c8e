"""Gives tests a TLS server that speaks HTTP/1.1 and HTTP/2, and behaves the same way in both.

A behaviour is a function that gets each request as a ServedExchange, in the connection's thread.
"""

import contextlib
import socket
import ssl
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, RequestReceived, StreamEnded
from h2.exceptions import StreamClosedError
from h2.settings import SettingCodes, Settings

from tests.support.servers.raw_server import accepting

_READ_BYTES = 65_536
_RESET = struct.pack("ii", 1, 0)


class ServedExchange(ABC):
    """A request whose head has arrived, and the ways to answer it."""

    def __init__(self, connection: socket.socket, headers: Mapping[str, str]) -> None:
        self.connection = connection
        self.headers = headers

    @abstractmethod
    def read(self) -> bytes:
        """Read and return the body."""

    @abstractmethod
    def hint(self) -> None:
        """Send an answer that is not the final one."""

    @abstractmethod
    def begin(self, status: int, **headers: str) -> None:
        """Send the head of an answer; underscores in names become hyphens."""

    @abstractmethod
    def part(self, data: bytes) -> None:
        """Send a part of the answer's body."""

    @abstractmethod
    def end(self) -> None:
        """End the answer."""

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.begin(status, content_length=str(len(body)), **headers)
        if body:
            self.part(body)
        self.end()

    def close(self) -> None:
        """Close the connection, without an answer or in the middle of one."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()

    def reset(self) -> None:
        """Reset the connection."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.connection.close()


Behaviour: TypeAlias = Callable[[Any], object]


@dataclass
class HttpsServer:
    """The server's address, and what has reached it."""

    port: int
    # The protocol of each connection.
    protocols: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/"


class _Http1Exchange(ServedExchange):
    def __init__(self, connection: socket.socket, received: bytearray) -> None:
        self._received = received
        while b"\r\n\r\n" not in received:
            received += _received(connection)
        head, _, rest = bytes(received).partition(b"\r\n\r\n")
        received[:] = rest
        lines = (line.partition(": ") for line in head.decode("latin-1").split("\r\n")[1:])
        super().__init__(connection, {name.lower(): value for name, _, value in lines})

    def read(self) -> bytes:
        length = int(self.headers["content-length"])
        while len(self._received) < length:
            self._received += _received(self.connection)
        body = bytes(self._received[:length])
        del self._received[:length]
        return body

    def hint(self) -> None:
        self.connection.sendall(b"HTTP/1.1 103 Early Hints\r\nretry-after: 5\r\n\r\n")

    def begin(self, status: int, **headers: str) -> None:
        fields = "".join(
            f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()
        )
        self.connection.sendall(f"HTTP/1.1 {status} Said\r\n{fields}\r\n".encode("latin-1"))

    def part(self, data: bytes) -> None:
        self.connection.sendall(data)

    def end(self) -> None:
        """Do nothing: its length has ended it."""


class _Http2Connection:
    """The server's side of a connection in HTTP/2; one exchange is served at a time."""

    def __init__(self, connection: socket.socket, streams_max: int) -> None:
        self.socket = connection
        self.state = H2Connection(H2Configuration(client_side=False, header_encoding="latin-1"))
        limits = {SettingCodes.MAX_CONCURRENT_STREAMS: streams_max}
        self.state.local_settings = Settings(client=False, initial_values=limits)
        self.state.initiate_connection()
        self.flush()
        self.bodies: dict[int, bytearray] = {}
        self.whole: set[int] = set()
        self.heads: list[tuple[int, dict[str, str]]] = []

    def next_exchange(self) -> "ServedHttp2":
        while not self.heads:
            self.receive()
        return ServedHttp2(self, *self.heads.pop(0))

    def receive(self) -> None:
        for event in self.state.receive_data(_received(self.socket)):
            match event:
                case RequestReceived():
                    stream = event.stream_id or 0
                    self.heads.append((stream, {str(k): str(v) for k, v in event.headers or ()}))
                    self.bodies[stream] = bytearray()
                case DataReceived():
                    stream = event.stream_id or 0
                    self.bodies[stream] += event.data or b""
                    # Only what is read is acknowledged, in `read`.
                case StreamEnded():
                    self.whole.add(event.stream_id or 0)
                case _:
                    pass
        self.flush()

    def flush(self) -> None:
        self.socket.sendall(self.state.data_to_send())


class ServedHttp2(ServedExchange):
    """A request over HTTP/2, and what only HTTP/2 can answer."""

    def __init__(self, inner: _Http2Connection, stream: int, headers: dict[str, str]) -> None:
        super().__init__(inner.socket, headers)
        self.inner = inner
        self.stream = stream

    def read(self) -> bytes:
        taken = bytearray()
        while self.stream not in self.inner.whole or self.inner.bodies[self.stream]:
            body = self.inner.bodies[self.stream]
            if not body:
                self.inner.receive()
                continue
            taken += body
            self.inner.state.acknowledge_received_data(len(body), self.stream)
            body.clear()
            self.inner.flush()
        return bytes(taken)

    def hint(self) -> None:
        self._send_head(103, {"retry-after": "5"})

    def begin(self, status: int, **headers: str) -> None:
        self._send_head(status, headers)

    def part(self, data: bytes) -> None:
        state = self.inner.state
        while data:
            while (window := state.local_flow_control_window(self.stream)) <= 0:
                self.inner.receive()
            length = min(window, state.max_outbound_frame_size)
            state.send_data(self.stream, data[:length])
            data = data[length:]
            self.inner.flush()

    def end(self) -> None:
        self.inner.state.end_stream(self.stream)
        self.inner.flush()

    def refuse(self, code: ErrorCodes) -> None:
        """Reset the stream alone."""
        self.inner.state.reset_stream(self.stream, code)
        self.inner.flush()

    def say_goodbye(self, *, last_stream: int) -> None:
        """Announce the end of the connection, and the last stream that is still answered (GOAWAY).

        The package's own GOAWAY would end the connection for it too.
        """
        self.connection.sendall(b"\0\0\x08\x07\0\0\0\0\0" + struct.pack(">II", last_stream, 0))

    def _send_head(self, status: int, headers: Mapping[str, str]) -> None:
        named = [(name.replace("_", "-"), value) for name, value in headers.items()]
        self.inner.state.send_headers(self.stream, [(":status", str(status)), *named])
        self.inner.flush()


@contextmanager
def scripted_https(
    certificate: tuple[object, object],
    behave: Behaviour,
    *,
    offers: tuple[str, ...],
    streams_max: int = 100,
) -> Iterator[HttpsServer]:
    """Run a server with a certificate and its key, for the protocols that it offers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*map(str, certificate))
    context.set_alpn_protocols(list(offers))
    server = HttpsServer(0)
    threads: list[threading.Thread] = []

    def serve(accepted: socket.socket) -> None:
        # A client may end a stream in the middle of its answer.
        with contextlib.suppress(OSError, StreamClosedError), accepted:
            accepted.settimeout(10)
            with context.wrap_socket(accepted, server_side=True) as secured:
                protocol = secured.selected_alpn_protocol() or "http/1.1"
                server.protocols.append(protocol)
                if protocol == "h2":
                    connection = _Http2Connection(secured, streams_max)
                    while True:
                        behave(connection.next_exchange())
                received = bytearray()
                while True:
                    behave(_Http1Exchange(secured, received))

    def take(accepted: socket.socket) -> None:
        threads.append(threading.Thread(target=serve, args=(accepted,), daemon=True))
        threads[-1].start()

    try:
        with accepting(take) as server.port:
            yield server
    finally:
        for thread in threads:
            thread.join(10)


def _received(connection: socket.socket) -> bytes:
    data = connection.recv(_READ_BYTES)
    if not data:
        raise ConnectionError
    return data
