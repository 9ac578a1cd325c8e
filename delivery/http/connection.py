"""Speaks HTTP/1.1 over one connection, and reports exactly how an exchange ended.

Only this file knows the HTTP parser. A general client costs more than the rest of a delivery and
does not report what we must know about a failure: whether the whole request was sent, whether any
byte of an answer arrived, and whether the connection had been used before.
"""

import asyncio
import select
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import httptools

from delivery.http.partial_reply import MULTI_STATUS, PARTIAL_TYPE
from delivery.http.reply_room import ReplyRoom, RoomPlace
from shared.retry.attempt import Failure
from shared.runtime.certificates import refusal_of_ours

# At most this much of a reply is read: enough to reuse the connection after sensible ones. A head
# must fit as well.
REPLY_BYTES_MAX = 65_536
_PART_BYTES = 262_144
_NOTHING = memoryview(b"")
_SWITCHING_PROTOCOLS = 101
_FIRST_FINAL_STATUS = 200
_FRAMING = {"content-length", "transfer-encoding"}


class ReplyLimits(NamedTuple):
    """How long to wait for a reply, and how much to read of a report on events."""

    until_s: float
    report_bytes_max: int = 0
    # The room for reports that are longer than other replies, and the tenant that takes it.
    room: ReplyRoom | None = None
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: its whole head, and as much of its body as arrived and fitted."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    # Whether the body is complete.
    is_whole: bool = True
    # Whether the answer came before the whole request had left.
    is_early: bool = False

    @property
    def is_success(self) -> bool:
        return 200 <= self.status <= 299  # noqa: PLR2004 - the success class of RFC 9110

    @property
    def is_report(self) -> bool:
        """Whether its media type marks it as a report on the single events of a batch."""
        return self.headers.get("content-type", "").lower().startswith(PARTIAL_TYPE)

    @property
    def is_json(self) -> bool:
        """Whether its media type is JSON."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        return kind == "application/json" or kind.endswith("+json")

    @property
    def coding(self) -> str:
        """The coding of its body; empty if there is none."""
        coding = self.headers.get("content-encoding", "").strip().lower()
        return "" if coding == "identity" else coding

    @property
    def may_report(self) -> bool:
        return self.is_success and (self.status == MULTI_STATUS or self.is_report)


class ExchangeError(Exception):
    """The exchange ended without an answer."""

    def __init__(self, failure: Failure, detail: str = "", *, is_stale: bool = False) -> None:
        super().__init__(detail)
        self.failure = failure
        self.detail = detail
        # The connection had been idle since an earlier exchange, and was closed without an answer:
        # most likely the other side closed it before our request arrived.
        self.is_stale = is_stale


class WireProtocol(asyncio.Protocol):
    """A protocol that knows the socket's own transport, if there is TLS above it.

    TLS passes all bytes on at once. Only the socket's transport knows which of them have left.
    """

    raw: asyncio.Transport | None = None

    @staticmethod
    def is_silent(transport: asyncio.Transport) -> bool:
        """Whether the other side has sent nothing since the last look.

        Between two tasks no loop reads the socket; readable data then means that it was closed.
        """
        poller = select.poll()
        poller.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poller.poll(0)


class Connection(WireProtocol):
    """One connection, one exchange at a time."""

    def __init__(self) -> None:
        self.used_at_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        # A field may continue on the next line (RFC 9112, 5.2). Besides that, this only allows more
        # characters within values; the framing of bodies stays as strict.
        self._parser.set_dangerous_leniencies(lenient_headers=True)
        self._done: asyncio.Future[Reply] | None = None
        # The part of a request that was not given to the transport yet.
        self._rest = _NOTHING
        self._is_paused = False
        self._is_reusable = True
        self._exchange_count = 0
        self._received_bytes = 0
        self._has_head = False
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._body_bytes_max = REPLY_BYTES_MAX
        self._limits = ReplyLimits(0.0)
        self._place: RoomPlace | None = None

    @property
    def is_usable(self) -> bool:
        """Whether another exchange can be tried: it is alive, idle, and got no unexpected data."""
        if self._transport is None or self._transport.is_closing() or not self._is_reusable:
            return False
        return self.is_silent(self._transport)

    async def exchange(self, request: bytes, limits: ReplyLimits) -> Reply:
        """Send a request and wait for its answer; ExchangeError when none comes."""
        assert self._transport is not None, "connected"
        loop = asyncio.get_running_loop()
        self._done = loop.create_future()
        self._received_bytes = 0
        self._forget_head()
        self._limits = limits
        timer = loop.call_at(limits.until_s, self._on_deadline)
        try:
            self._rest = memoryview(request)
            self._write_rest()
            if self._transport.is_closing():
                # The connection was lost before, or the first bytes were answered with a reset.
                detail = "closed before the request could be sent"
                is_stale = self._exchange_count > 0
                self._end(Failure.RESET_BEFORE_SENT, detail, is_stale=is_stale)
            return await self._done
        except BaseException:
            self.abort()
            raise
        finally:
            timer.cancel()
            # Even an empty part of a request keeps all of it.
            self._rest = _NOTHING
            self._leave_room()
            self._exchange_count += 1
            self.used_at_s = loop.time()
            if not self._is_reusable:
                self.abort()

    def abort(self) -> None:
        """Close at once, even if bytes have not left yet."""
        self._is_reusable = False
        if self._transport is not None:
            self._transport.abort()

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a stream"
        self._transport = transport
        # With these limits the transport reports whether all bytes went to the kernel, or to TLS.
        transport.set_write_buffer_limits(high=1, low=0)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._write_rest()

    def data_received(self, data: bytes) -> None:
        if self._done is None or self._done.done():
            self._is_reusable = False
            return
        self._received_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._finish(is_reusable=False, is_whole=False)
        except httptools.HttpParserError as error:
            self._end(Failure.RESPONSE_UNREADABLE, f"not HTTP/1.1: {error}")
        if not self._has_head and self._received_bytes > REPLY_BYTES_MAX:
            self._end(Failure.RESPONSE_UNREADABLE, f"a head of over {REPLY_BYTES_MAX} bytes")

    def eof_received(self) -> bool:
        # With False the transport closes itself, and calls connection_lost.
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_reusable = False
        if self._received_bytes:
            # A body without framing ends with its connection.
            is_whole = exc is None and self._headers.keys().isdisjoint(_FRAMING)
            detail = "closed in the middle of the head"
            self._end(Failure.RESPONSE_UNREADABLE, detail, is_whole=is_whole)
            return
        # In TLS 1.3 a refusal may come after our part of the handshake; nobody reads the request.
        if self._exchange_count == 0 and (refused := refusal_of_ours(exc)):
            self._end(Failure.CLIENT_CERTIFICATE_REFUSED, refused)
            return
        failure = Failure.RESET_BEFORE_SENT if self._is_unsent else Failure.RESET_AFTER_SENT
        detail = str(exc) if exc else "closed without an answer"
        self._end(failure, detail, is_stale=self._exchange_count > 0)

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        if self._done is None or self._done.done():
            self._is_reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        self._has_head = self._is_final
        if Reply(self._status, self._headers).may_report:
            self._body_bytes_max = max(REPLY_BYTES_MAX, self._limits.report_bytes_max)
        if not self._is_final:
            self._headers = {}

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > self._body_bytes_max:
            del self._body[self._body_bytes_max :]
            self._finish(is_reusable=False, is_whole=False)
        elif len(self._body) > REPLY_BYTES_MAX and self._place is None:
            self._enter_room()

    def on_message_complete(self) -> None:
        if self._is_final:
            self._finish(is_reusable=self._parser.should_keep_alive(), is_whole=True)

    def _write_rest(self) -> None:
        """Write in parts, so that of a long request it is known that it has not left as a whole."""
        assert self._transport is not None, "connected"
        # A lost connection takes all bytes, and loses them.
        socket = self.raw or self._transport
        while self._rest and not self._is_paused and not socket.is_closing():
            part, self._rest = self._rest[:_PART_BYTES], self._rest[_PART_BYTES:]
            self._transport.write(part)

    @property
    def _is_unsent(self) -> bool:
        """Whether a part of the request has not left."""
        is_in_tls = self.raw is not None and self.raw.get_write_buffer_size() > 0
        return self._is_paused or bool(self._rest) or is_in_tls

    def _enter_room(self) -> None:
        """Continue reading once there is room for the longest report."""
        limits, transport = self._limits, self._transport
        assert limits.room is not None, "long reports need a room"
        assert transport is not None, "connected"
        transport.pause_reading()
        self._place = RoomPlace(limits.tenant, self._body_bytes_max, transport.resume_reading)
        limits.room.enter(self._place)

    def _leave_room(self) -> None:
        if self._place is not None and self._limits.room is not None:
            self._limits.room.leave(self._place)
            self._place = None

    @property
    def _is_final(self) -> bool:
        """Whether this is the answer itself, not an interim one (100 Continue, 103 Early Hints)."""
        return self._status >= _FIRST_FINAL_STATUS or self._status == _SWITCHING_PROTOCOLS

    def _forget_head(self) -> None:
        self._has_head = False
        self._status = 0
        self._headers = {}
        self._body = bytearray()
        self._body_bytes_max = REPLY_BYTES_MAX

    def _on_deadline(self) -> None:
        if self._is_unsent:
            self._end(Failure.SEND_TIMEOUT, "the request was not taken in time")
        else:
            self._end(Failure.READ_TIMEOUT, "no complete answer in time")

    def _end(
        self, failure: Failure, detail: str, *, is_stale: bool = False, is_whole: bool = False
    ) -> None:
        """End the exchange; once the head is there, it has an answer, even if its body is cut."""
        if self._has_head:
            self._finish(is_reusable=False, is_whole=is_whole)
        elif self._done is not None and not self._done.done():
            self._is_reusable = False
            self._done.set_exception(ExchangeError(failure, detail, is_stale=is_stale))

    def _finish(self, *, is_reusable: bool, is_whole: bool) -> None:
        if self._done is not None and not self._done.done():
            # If the answer came early, the rest of the request is still in the connection.
            is_early = self._is_unsent
            self._is_reusable = self._is_reusable and is_reusable and not is_early
            body = bytes(self._body)
            self._done.set_result(Reply(self._status, self._headers, body, is_whole, is_early))
