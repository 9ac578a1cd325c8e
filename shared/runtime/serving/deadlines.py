"""Limits the time and the size of a request's head.

uvicorn has no deadline before it calls the application: a client that sends a byte now and then
would hold its connection forever. Readers of a body have their own deadlines.
"""

import asyncio
import weakref
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from shared.runtime.serving.crowd import Crowd
from shared.runtime.serving.server import PlainProtocol

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

# Keys in a request's state: the client must stay for its answer; the client has finished sending.
_WATCHES, _SAID_ALL = "watches", "said all"
# How many bytes of a body to keep at most before its reader begins: as many as uvloop reads at a
# time.
_HIGH_WATER_BYTES = 262_144
# How long a refused client may keep sending (nginx: lingering_timeout 5 s, for silence).
_LINGER_S = 2.0
_REASONS = {400: b"Bad Request", 408: b"Request Timeout", 431: b"Request Header Fields Too Large"}


class BadHead(NamedTuple):
    """The reason why a request is refused."""

    status: int
    code: str
    detail: str


def stays(state: MutableMapping[str, Any]) -> bool:
    """Mark a request with a long or endless answer: a client that stops sending counts as gone.

    Return False if the client is gone already, because it has stopped sending.
    """
    state[_WATCHES] = True
    return not state.get(_SAID_ALL)


class DeadlineProtocol(PlainProtocol):
    """uvicorn's HTTP/1.1 with deadlines. `bounded` sets the limits."""

    head_deadline_s = 10.0
    head_bytes_max = 32_768
    crowd: Crowd

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]  # uvicorn narrows it as well
        self._is_in_head = False
        self._is_in_body = False
        # Whether we have sent our last bytes: we drop all input, and cannot answer any more.
        self._is_dropping = False
        self._head_bytes = 0
        self._segment_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._one_write = _OneWrite(self.transport, self._close_kindly)
        self._await_head()
        if not self.crowd.enter(self, self._address):
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.crowd.leave(self, self._address)
        self._head_came()
        super().connection_lost(exc)

    @property
    def closes_at_s(self) -> float | None:
        """When it is closed if nothing arrives; None while it has a request."""
        timer = self.timeout_keep_alive_task or self._head_timer
        return None if timer is None else timer.when()

    def close(self) -> None:
        """Close an idle connection."""
        self.transport.close()

    def shutdown(self) -> None:
        """Shut down like uvicorn, but still answer a request whose head is arriving."""
        if not self._head_bytes:
            super().shutdown()

    def data_received(self, data: bytes) -> None:
        if self._is_dropping:
            return
        cycle, was_in_body = self.cycle, self._is_in_body
        self._segment_bytes = len(data)
        super().data_received(data)
        if self._is_in_head or self._is_idle():
            if self.cycle is cycle and not was_in_body:
                # Otherwise an unknown part of the data belongs to an earlier request.
                self._head_bytes += len(data)
            if self._head_timer is None:
                self._await_head()
            if self._head_bytes > self.head_bytes_max:
                self._refuse_head()
        elif self._head_timer is not None:
            self._head_came()

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn closes in any case
        """Return whether the transport stays open: a client may stop sending before its answer."""
        cycle: RequestResponseCycle | None = self.pipeline[0][0] if self.pipeline else self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body or self.scheme == "https":
            return False
        if cycle.scope["state"].get(_WATCHES):
            return False
        cycle.scope["state"][_SAID_ALL] = True
        cycle.keep_alive = False
        return True

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header like uvicorn, but in one call, because it is done so often."""
        # Blanks after a value do not belong to it (RFC 9112, 5.1); the parser keeps them.
        name, value = name.lower(), value.rstrip(b" \t")
        if name == b"expect":
            self.expect_100_continue |= value.lower() == b"100-continue"
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._head_bytes + self._segment_bytes > self.head_bytes_max:
            # The head may be too large, unless a part of the body came with it.
            byte_count = sum(len(name) + len(value) + 4 for name, value in self.headers)
            if byte_count + len(self.url) > self.head_bytes_max:
                self._refuse_head()
                # The parser stops here.
                raise ValueError("the head is too large")
        self._is_in_head = False
        self._is_in_body = True
        self._head_bytes = 0
        state = self.scope["state"]
        if self.scheme == "https":
            # The application may ask for the peer.
            tls = self.transport.get_extra_info("ssl_object")
            state["peer_certificate"] = tls.getpeercert() if tls else None
        super().on_headers_complete()
        cycle: RequestResponseCycle = self.cycle
        cycle.transport = self._one_write  # type: ignore[assignment]  # all that a cycle uses
        # A body that came together with its head needs no wait with a deadline. The reference is
        # weak because the cycle has the state: a reference cycle left 3,000 requests a second to
        # the garbage collector, which stopped everything for 45 ms each time.
        state["cycle"] = weakref.ref(cycle)

    def on_message_complete(self) -> None:
        # After an offer to upgrade, the body has not come yet.
        self._is_in_body = self.parser.should_upgrade()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        # The answer to a HEAD has no body to be sent with it.
        self._one_write.flush()
        super().on_response_complete()

    def on_body(self, body: bytes) -> None:
        """Add a piece of the body like uvicorn, but let the reader join the pieces."""
        cycle = self.cycle
        if cycle.response_complete:
            return
        pieces: Any = cycle.body
        if type(pieces) is not _Pieces:
            pieces = cycle.body = _Pieces()  # type: ignore[assignment]  # all that a cycle uses
        pieces.take(body)
        if pieces.byte_count > _HIGH_WATER_BYTES:
            self.flow.pause_reading()
        cycle.message_event.set()

    def send_400_response(self, msg: str) -> None:
        """Answer requests that are not HTTP, in the format of all other problems."""
        self._refuse(BadHead(400, "invalid_http", msg))

    def _close_kindly(self) -> None:
        """Close; but if the client is still sending, first drop its bytes for a while.

        Otherwise the client would see a reset instead of the answer.
        """
        if not self._is_in_body or not self.transport.can_write_eof():
            self.transport.close()
            return
        self._is_dropping = True
        self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(_LINGER_S, self.transport.close)

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _is_idle(self) -> bool:
        """Return whether there is neither a request nor uvicorn's timer, which blank lines stop."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None:
            return True
        # After an answer, the rest of a body may still arrive and is dropped.
        is_answered = cycle.response_complete and not self._is_in_body
        return is_answered and self.timeout_keep_alive_task is None

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_deadline_s, self._head_is_late)

    def _head_came(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self._head_bytes == 0:
            # Nothing was asked, so there is nothing to answer.
            self.transport.close()
            return
        detail = f"The request's headers did not arrive within {self.head_deadline_s:g} s."
        self._refuse(BadHead(408, "head_timeout", detail))

    def _refuse_head(self) -> None:
        detail = f"A request's line and headers have at most {self.head_bytes_max} bytes."
        self._refuse(BadHead(431, "head_too_large", detail))

    def told(self, bad: BadHead) -> tuple[bytes, bytes]:
        """Return the content type and the body of the answer."""
        return b"text/plain; charset=utf-8", f"{bad.detail}\n".encode()

    def _refuse(self, bad: BadHead) -> None:
        """Answer outside of any request, and close."""
        self._head_came()
        if self.transport is None or self.transport.is_closing():
            return
        content_type, body = self.told(bad)
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            % (bad.status, _REASONS[bad.status], content_type, len(body))
            + body
        )
        self.transport.close()


P = TypeVar("P", bound=DeadlineProtocol)


def bounded(
    protocol: type[P], *, head_deadline_s: float, head_bytes_max: int, crowd: Crowd, **more: Any
) -> type[P]:
    """Return the protocol with these limits and other attributes."""
    limits = {"head_deadline_s": head_deadline_s, "head_bytes_max": head_bytes_max, "crowd": crowd}
    return type("BoundedProtocol", (protocol,), {**limits, **more})


class _Pieces:
    """The unread pieces of a body."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.byte_count = 0

    def take(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self.byte_count += len(piece)

    def __len__(self) -> int:
        return self.byte_count

    def __bytes__(self) -> bytes:
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)


class _OneWrite:
    """A transport that sends an answer's head together with its body, in one system call."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self._transport = transport
        self._close = close
        self._head = b""
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 1"):
            self._head = data
            return
        self._transport.write(data)

    def flush(self) -> None:
        if self._head:
            self.write(b"")

    def close(self) -> None:
        self.flush()
        self._close()
