"""Serves HTTP with uvicorn: its settings, its protocol, its signals and its port."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import httptools
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shared.runtime import defaults
from shared.runtime.setup_error import SetupError

# Connections that may wait for acceptance while the loop is busy (the kernel's limit is 4,096).
_BACKLOG = 2_048
# A connection is not counted before its TLS handshake; over a poor line that takes 1 or 2 s.
_TLS_WITHIN_S = 10.0
_CLOSE = (b"connection", b"close")
_LOOK_S = 0.02


class HttpServer(uvicorn.Server):
    """A server that leaves signals to the process, which may run several, and drains them first."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start like uvicorn with our sockets, but with a time limit for TLS handshakes."""
        config, loop = self.config, asyncio.get_running_loop()

        def protocol() -> asyncio.Protocol:
            made: asyncio.Protocol = config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=self.server_state, app_state={}, _loop=loop
            )
            return made

        self.servers = [
            await loop.create_server(
                protocol,
                sock=each,
                ssl=config.ssl,
                backlog=config.backlog,
                ssl_handshake_timeout=_TLS_WITHIN_S if config.ssl else None,
            )
            for each in sockets or ()
        ]
        self.started = True
        self.listens.set()

    async def let_go(self, *, within_s: float) -> None:
        """Make each answer the last of its connection; wait until all are gone or time is up."""
        # Answers take their headers from the second list, which uvicorn fills from the first.
        self.config.encoded_headers.append(_CLOSE)
        self.server_state.default_headers = [*self.server_state.default_headers, _CLOSE]
        for connection in self.server_state.connections:
            # Started answers already have their headers.
            if isinstance(connection, PlainProtocol) and connection.cycle is not None:
                connection.cycle.keep_alive = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self.server_state.connections:  # noqa: ASYNC110 - uvicorn has no event
                    await asyncio.sleep(_LOOK_S)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class PlainProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1, which declines every offer to upgrade but still reads the body.

    The parser treats the bytes after such a request's head as another protocol. So the body and
    everything after it goes to a second parser, which gets the framing headers of the head.
    """

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            while data:
                data = self._parse(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _parse(self, data: bytes) -> bytes:
        """Feed the parser; return the rest of the data after an offer to upgrade."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            (offset,) = offer.args
            self.parser = httptools.HttpRequestParser(_BehindHead(self))
            framing = b"".join(
                b"%b: %b\r\n" % header for header in self.headers if header[0] in _FRAMING
            )
            self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % framing)
            return data[offset:]
        return b""


class PlainHead:
    """The head of a request, as reported by the parser."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def takes(self, head: bytes) -> bool:
        """Return whether a head is HTTP/1.1, and more requests may follow it."""
        parser = httptools.HttpRequestParser(self)
        try:
            parser.feed_data(head)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            return False
        is_last = parser.should_upgrade() or not parser.should_keep_alive()
        return parser.get_http_version() == "1.1" and not is_last

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value.rstrip(b" \t")))


_FRAMING = {b"content-length", b"transfer-encoding"}


class _BehindHead:
    """Receives a parser's events for a protocol that already knows the first head."""

    def __init__(self, protocol: PlainProtocol) -> None:
        self._protocol = protocol
        self._is_known = True
        self.on_body = protocol.on_body
        self.on_message_complete = protocol.on_message_complete

    def on_message_begin(self) -> None:
        if not self._is_known:
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._is_known:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_known:
            self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._is_known:
            self._protocol.on_headers_complete()
        self._is_known = False


def server_config(
    app: ASGIApp,
    *,
    drain_s: int,
    keep_alive_s: int = defaults.KEEP_ALIVE_S,
    backlog: int = _BACKLOG,
) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=PlainProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # Proxies' headers about clients are not used, and the wrapper takes time.
        proxy_headers=False,
        date_header=False,
        backlog=backlog,
        timeout_keep_alive=keep_alive_s,
        timeout_graceful_shutdown=drain_s,
    )


@contextlib.contextmanager
def listening(what: str, *, host: str, port: int, setting: str) -> Iterator[socket.socket]:
    """Open a socket on the port; raise SetupError with one sentence if it is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise SetupError(
            f"{what} cannot listen on {host}:{port} ({error.strerror}):"
            f" stop the program on that port, or set {setting}."
        ) from error
    with bound:
        yield bound
