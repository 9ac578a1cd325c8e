"""Handles requests with events that arrive in one piece without uvicorn.

Uvicorn makes a scope, a task, an event and several messages for each request, which is half the
cost of a request with one event. Here a request is one call, and its answer another. All other
requests (in pieces, pipelined, over TLS, with anything unusual in the head) go through uvicorn, so
the rules for heads and bodies stay in one place.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeAlias

import structlog

from gateway.ingest.whole_head import WholeHead, read_whole_head
from gateway.problems import CONTENT_TYPE, Problem
from shared.runtime.serving.deadlines import BadHead, DeadlineProtocol

log = structlog.get_logger()

_CLOSE = (b"connection", b"close")
# A status line, headers and a body.
Respond: TypeAlias = Callable[[bytes, list[tuple[bytes, bytes]], bytes], None]


class Door(Protocol):
    """The handler that takes requests in one piece."""

    def post(self, head: WholeHead, body: bytes, respond: Respond) -> bool:
        """Take a request and call `respond` once; return False to leave the request to uvicorn."""


class Outbox:
    """Answers that are written together, in one turn of the loop.

    Kafka reports on the events of many requests at once. Writes with other work between them wake
    a reader for each write, and waking a reader takes longer than writing.
    """

    def __init__(self) -> None:
        self._answers: list[tuple[DoorProtocol, bytes]] = []

    def put(self, connection: "DoorProtocol", answer: bytes) -> None:
        if not self._answers:
            connection.loop.call_soon(self._send)
        self._answers.append((connection, answer))

    def _send(self) -> None:
        answers, self._answers = self._answers, []
        for connection, answer in answers:
            try:
                connection.send_answer(answer)
            except Exception:
                # A bug in one connection: the other connections must get their answers.
                log.exception("answer.not_sent")


class DoorProtocol(DeadlineProtocol):
    """The protocol of a connection with a door. `bounded` sets the connection's owner."""

    door: Door
    outbox: Outbox

    def told(self, bad: BadHead) -> tuple[bytes, bytes]:
        """Answer in the same form as every other problem."""
        return CONTENT_TYPE, Problem(bad.code, bad.detail).to_json("none")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._head: WholeHead | None = None
        self._is_under_way = False
        # Whether this request is the last one; whether the client has closed its side.
        self._is_last = self._has_said_all = False
        # Bytes that arrived during a request.
        self._behind: list[bytes] = []
        # When the last request ended, if the door took it.
        self._idle_since_s: float | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        super().connection_lost(exc)

    @property
    def closes_at_s(self) -> float | None:
        if self._is_under_way:
            return None
        if self._idle_since_s is not None:
            return self._idle_since_s + self.timeout_keep_alive
        return super().closes_at_s

    def shutdown(self) -> None:
        if self._is_under_way:
            self._is_last = True
        else:
            super().shutdown()

    def eof_received(self) -> bool:  # type: ignore[override]  # as above it
        self._has_said_all = True
        return self._is_under_way or super().eof_received()

    def data_received(self, data: bytes) -> None:
        if self._is_under_way:
            self._behind.append(data)
            self.flow.pause_reading()
        elif not self._enters(data):
            self._idle_since_s = None
            super().data_received(data)

    def _enters(self, data: bytes) -> bool:
        """Start the request if the door takes it; return whether it did."""
        if not self._is_between_requests() or self.scheme == "https" or self.flow.write_paused:
            return False
        head = self._head
        begun, length = (0, 0) if head is None else head.find_body(data)
        if not begun:
            head = self._head = read_whole_head(data, head_bytes_max=self.head_bytes_max)
            if head is None:
                return False
            begun, length = head.find_body(data)
        assert head is not None, "a body was found after a head"
        if len(data) - begun != length:
            return False
        self._is_under_way = True
        if not self.door.post(head, data[begun:], self._respond):
            self._is_under_way = False
            return False
        if self._head_timer is not None:
            self._head_came()
        self._unset_keepalive_if_required()
        return True

    def _is_between_requests(self) -> bool:
        if self._is_dropping or self._is_in_head or self._is_in_body or self._head_bytes:
            return False
        return self.cycle is None or self.cycle.response_complete

    def _respond(self, status_line: bytes, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Queue the answer, to be written with all other answers of this turn of the loop."""
        headers = [*self.server_state.default_headers, *headers]
        lines = [b"%b: %b\r\n" % header for header in headers]
        self._is_last |= _CLOSE in headers
        self.outbox.put(self, b"".join((status_line, *lines, b"\r\n", body)))

    def send_answer(self, answer: bytes) -> None:
        """Send the answer, then handle the bytes that arrived in the meantime."""
        self._is_under_way = False
        if self.transport.is_closing():
            return
        self.transport.write(answer)
        if self._is_last:
            self.transport.close()
            return
        self._idle_since_s = self.loop.time()
        if self._idle_timer is None:
            self._watch_idle(self.timeout_keep_alive)
        if self._behind:
            data = b"".join(self._behind)
            self._behind.clear()
            self.flow.resume_reading()
            self.data_received(data)
        if self._has_said_all and not self.eof_received():
            self.transport.close()

    def _watch_idle(self, within_s: float) -> None:
        self._idle_timer = self.loop.call_later(within_s, self._may_be_idle)

    def _may_be_idle(self) -> None:
        """Close the connection if it is idle; one timer serves many requests."""
        self._idle_timer = None
        if self._is_under_way:
            self._watch_idle(self.timeout_keep_alive)
        elif self._idle_since_s is not None:
            left_s = self._idle_since_s + self.timeout_keep_alive - self.loop.time()
            if left_s > 0:
                self._watch_idle(left_s)
            else:
                self.transport.close()
