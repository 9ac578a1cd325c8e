"""Sends requests to a target, directly or through a tunnel, over HTTP/1.1 or HTTP/2.

One class, because all four ways reuse connections alike, and report failures alike
(tests/contract/test_endpoint.py).
"""

import ssl
from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

from delivery.http.connection import (
    Connection,
    ExchangeError,
    Reply,
    ReplyLimits,
    WireProtocol,
)
from delivery.http.http2_connection import Http2Connection, Opening
from delivery.http.idle import IdleConnections
from delivery.http.outgoing_request import OutgoingRequest, RequestHead, header_lines
from shared.retry.attempt import Failure

_Wire = TypeVar("_Wire", bound=WireProtocol)
_Opened: TypeAlias = Connection | Http2Connection


class Connector(Protocol):
    """A way to a host: a Dialer, or a Tunnel."""

    async def connect(
        self, make: Callable[[], _Wire], tls: ssl.SSLContext | None, limits: ReplyLimits
    ) -> _Wire:
        """Return the protocol of a new connection; ExchangeError if there is none."""


class Endpoint:
    """The open connections to a target, and the first lines of every request to it."""

    def __init__(
        self,
        head: RequestHead,
        connector: Connector,
        tls: ssl.SSLContext | None,
        idle: IdleConnections,
        *,
        offers_http2: bool = False,
    ) -> None:
        self._head = head
        self._connector = connector
        self._tls = tls
        self._idle = idle
        self._offers_http2 = offers_http2
        self._waiting: list[_Opened] = []
        # HTTP/2 connections with requests under way; there may be room for more.
        self._shared: list[Http2Connection] = []
        self._is_closed = False

    async def post(self, request: OutgoingRequest, limits: ReplyLimits) -> tuple[Reply, bool]:
        """Send a request; return the answer, and whether it answers a second copy.

        A connection that the other side closed while it was idle is nobody's failure: the request
        is sent again over a new one, and says that it may be a repeat.
        """
        lines = header_lines({**request.headers, "content-length": str(len(request.body))})
        connection = self._take()
        if connection is None:
            connection = await self._connect(limits)
            return await self._exchange(connection, request, lines, limits), False
        try:
            return await self._exchange(connection, request, lines, limits), False
        except ExchangeError as error:
            if not error.is_stale:
                raise
            first = error
        again = first.failure is not Failure.RESET_BEFORE_SENT
        try:
            connection = await self._connect(limits)
            reply = await self._exchange(connection, request, lines, limits, may_be_duplicate=again)
        except ExchangeError as error:
            # The first copy may have arrived: a later error must not hide that.
            raise (first if again else error) from error
        return reply, again

    def close(self) -> None:
        self._is_closed = True
        self._idle.close(self._waiting)

    async def _connect(self, limits: ReplyLimits) -> _Opened:
        if not self._offers_http2:
            return await self._connector.connect(Connection, self._tls, limits)
        opening = await self._connector.connect(Opening, self._tls, limits)
        return opening.handed_over()

    def _take(self) -> _Opened | None:
        for connection in self._shared:
            if connection.has_room:
                return connection
        return self._idle.take(self._waiting)

    async def _exchange(
        self,
        connection: _Opened,
        request: OutgoingRequest,
        lines: bytes,
        limits: ReplyLimits,
        *,
        may_be_duplicate: bool = False,
    ) -> Reply:
        if isinstance(connection, Http2Connection):
            fields = request.fields(self._head, may_be_duplicate=may_be_duplicate)
            return await self._beside(connection, fields, request.body, limits)
        text = request.text(self._head, lines, may_be_duplicate=may_be_duplicate)
        reply = await connection.exchange(text, limits)
        self._keep(connection)
        return reply

    async def _beside(
        self,
        connection: Http2Connection,
        fields: list[tuple[bytes, bytes]],
        body: bytes,
        limits: ReplyLimits,
    ) -> Reply:
        """Send a request over a connection that others may share."""
        if connection not in self._shared:
            self._shared.append(connection)
        try:
            return await connection.exchange(fields, body, limits)
        finally:
            if not connection.is_busy:
                self._shared.remove(connection)
                self._keep(connection)

    def _keep(self, connection: _Opened) -> None:
        if self._is_closed:
            connection.abort()
        else:
            self._idle.put(connection, self._waiting)
