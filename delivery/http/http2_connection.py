"""Speaks HTTP/2 over one connection, which serves several requests at once.

Only this file knows the package h2. It reports how an exchange ended as exactly as connection.py.
A stream that waits for room takes at most its window of memory, whatever the other side sends.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from delivery.http.connection import (
    REPLY_BYTES_MAX,
    Connection,
    ExchangeError,
    Reply,
    ReplyLimits,
    WireProtocol,
)
from delivery.http.reply_room import RoomPlace
from shared.retry.attempt import Failure
from shared.runtime.certificates import refusal_of_ours

# The bytes of all answers that may be under way on a connection. A stream may have 65,535 of them.
_WINDOW_BYTES = 16 * 1_048_576
# How many frames an answer may have, and how many more for each KB of a report. The package needs
# some 30 µs for a frame, in which the worker sends nothing else.
_FRAMES_MAX, _FRAMES_PER_KB = 1_000, 1
_FRAME_HEAD_BYTES = 9
_FRAME_BYTES_MAX = 16_384
_GOAWAY = 7
_STREAM_BITS = 0x7FFF_FFFF

Fields: TypeAlias = list[tuple[bytes, bytes]]


@dataclass(slots=True)
class _OpenStream:
    """A request on its way, and its answer."""

    stream: int
    done: asyncio.Future[Reply]
    limits: ReplyLimits
    # The part of the body that the other side has not allowed us to send yet.
    rest: memoryview
    # The bytes that the connection had received when this request began.
    received_before: int
    # The bytes that the connection has written up to the end of this request; 0 until then.
    ends_at: int = 0
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    body_bytes_max: int = REPLY_BYTES_MAX
    place: RoomPlace | None = None
    # Bytes of the answer that were not acknowledged, so that no more than a window arrives.
    kept_bytes: int = 0


class Http2Connection(WireProtocol):
    """One connection, and its exchanges."""

    def __init__(self) -> None:
        self.used_at_s = 0.0
        self._transport: asyncio.Transport
        self._h2 = H2Connection(H2Configuration(header_encoding="latin-1"))
        settings = {SettingCodes.ENABLE_PUSH: 0, SettingCodes.MAX_HEADER_LIST_SIZE: REPLY_BYTES_MAX}
        self._h2.local_settings = Settings(client=True, initial_values=settings)
        self._exchanges: dict[int, _OpenStream] = {}
        self._exchange_count = 0
        self._frames = bytearray()
        self._frames_left = _FRAMES_MAX
        self._received_bytes = 0
        self._written_bytes = 0
        self._is_reusable = True

    @property
    def is_busy(self) -> bool:
        return bool(self._exchanges)

    @property
    def has_room(self) -> bool:
        """Whether it takes another request beside those under way."""
        return self._is_open and len(self._exchanges) < (
            self._h2.remote_settings.max_concurrent_streams
        )

    @property
    def is_usable(self) -> bool:
        """Whether another exchange can be tried while there is none."""
        return self.has_room and self.is_silent(self._transport)

    async def exchange(self, fields: Fields, body: bytes, limits: ReplyLimits) -> Reply:
        """Send a request and wait for its answer; ExchangeError when none comes."""
        if not self._is_open:
            detail, is_stale = "closed before the request could be sent", self._exchange_count > 0
            raise ExchangeError(Failure.RESET_BEFORE_SENT, detail, is_stale=is_stale)
        loop = asyncio.get_running_loop()
        stream = self._h2.get_next_available_stream_id()
        exchange = _OpenStream(
            stream, loop.create_future(), limits, memoryview(body), self._received_bytes
        )
        self._exchanges[stream] = exchange
        self._frames_left = sum(map(_frames_max, self._exchanges.values()))
        timer = loop.call_at(limits.until_s, self._on_deadline, exchange)
        try:
            self._h2.send_headers(stream, fields, end_stream=not body)
            self._send_rest(exchange)
            self._flush()
            return await exchange.done
        finally:
            timer.cancel()
            self._leave(exchange)
            self._exchange_count += 1
            self.used_at_s = loop.time()
            if not self._is_reusable and not self._exchanges:
                self.abort()

    def abort(self) -> None:
        """Close at once, even if bytes have not left yet."""
        self._is_reusable = False
        self._transport.abort()

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a stream"
        self._transport = transport
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_WINDOW_BYTES)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._received_bytes += len(data)
        self._frames += data
        try:
            for frame in self._whole_frames():
                for event in self._h2.receive_data(frame):
                    self._on_event(event)
        except ProtocolError as error:
            self._end_all(Failure.RESPONSE_UNREADABLE, f"not HTTP/2: {error}")
        else:
            # A window may have grown.
            for exchange in self._exchanges.values():
                self._send_rest(exchange)
        self._flush()

    def eof_received(self) -> bool:
        # With False the transport closes itself, and calls connection_lost.
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_reusable = False
        # In TLS 1.3 a refusal may come after our part of the handshake; nobody reads the request.
        refused = refusal_of_ours(exc) if self._exchange_count == 0 else None
        detail = str(exc) if exc else "closed without an answer"
        for exchange in self._exchanges.values():
            if refused:
                self._fail(exchange, Failure.CLIENT_CERTIFICATE_REFUSED, refused)
                continue
            is_silent = exchange.received_before == self._received_bytes
            is_stale = is_silent and self._exchange_count > 0
            self._fail(exchange, self._reset(exchange), detail, is_stale=is_stale)

    def _whole_frames(self) -> Iterator[bytes]:
        """Yield the whole frames that have arrived, except GOAWAY, which we handle ourselves.

        The package gives up all exchanges at a GOAWAY, even those that the other side promises to
        finish: servers send it after some requests, or before they restart.
        """
        while len(self._frames) >= _FRAME_HEAD_BYTES:
            length = int.from_bytes(self._frames[:3])
            if length > _FRAME_BYTES_MAX:
                raise ProtocolError(f"a frame of {length} bytes")
            end = _FRAME_HEAD_BYTES + length
            if len(self._frames) < end:
                return
            self._frames_left -= 1
            if self._frames_left < 0:
                raise ProtocolError("more frames than an answer needs")
            frame = bytes(self._frames[:end])
            del self._frames[:end]
            if frame[3] == _GOAWAY:
                self._on_goaway(frame[_FRAME_HEAD_BYTES:])
            else:
                yield frame

    def _on_goaway(self, payload: bytes) -> None:
        """Let the exchanges end that the other side will finish; the others may go elsewhere."""
        self._is_reusable = False
        last_stream = int.from_bytes(payload[:4]) & _STREAM_BITS
        for exchange in self._exchanges.values():
            if exchange.stream > last_stream:
                self._refuse(exchange, "the destination ends the connection")

    def _on_event(self, event: Event) -> None:
        found = self._exchanges.get(getattr(event, "stream_id", None) or 0)
        if found is None:
            return
        match event:
            case ResponseReceived():
                self._on_head(found, event)
            case DataReceived():
                self._on_data(found, event)
            case StreamEnded():
                self._end(found, is_whole=True)
            case StreamReset(error_code=ErrorCodes.REFUSED_STREAM):
                self._refuse(found, "the destination refuses the stream")
            case StreamReset():
                detail = f"the destination resets the stream ({event.error_code})"
                self._fail(found, self._reset(found), detail)
            case _:
                # Other frames say nothing about the answer.
                pass

    def _on_head(self, exchange: _OpenStream, event: ResponseReceived) -> None:
        headers = {str(name): str(value) for name, value in event.headers or ()}
        exchange.status = int(headers.pop(":status"))
        exchange.headers = headers
        if Reply(exchange.status, headers).may_report:
            exchange.body_bytes_max = max(REPLY_BYTES_MAX, exchange.limits.report_bytes_max)

    def _on_data(self, exchange: _OpenStream, event: DataReceived) -> None:
        exchange.body += event.data or b""
        exchange.kept_bytes += event.flow_controlled_length or 0
        if len(exchange.body) > exchange.body_bytes_max:
            del exchange.body[exchange.body_bytes_max :]
            self._end(exchange, is_whole=False)
        elif len(exchange.body) > REPLY_BYTES_MAX and exchange.place is None:
            self._enter_room(exchange)
        elif exchange.place is None or exchange.place.is_taken:
            self._acknowledge(exchange)

    def _enter_room(self, exchange: _OpenStream) -> None:
        """Let more arrive once there is room for the longest report."""
        limits = exchange.limits
        assert limits.room is not None, "long reports need a room"

        def go_on() -> None:
            self._acknowledge(exchange)
            self._flush()

        exchange.place = RoomPlace(limits.tenant, exchange.body_bytes_max, go_on)
        limits.room.enter(exchange.place)

    def _acknowledge(self, exchange: _OpenStream) -> None:
        self._h2.acknowledge_received_data(exchange.kept_bytes, exchange.stream)
        exchange.kept_bytes = 0

    def _on_deadline(self, exchange: _OpenStream) -> None:
        if self._is_sent(exchange):
            self._fail(exchange, Failure.READ_TIMEOUT, "no complete answer in time")
        else:
            self._fail(exchange, Failure.SEND_TIMEOUT, "the request was not taken in time")

    def _end(self, exchange: _OpenStream, *, is_whole: bool) -> None:
        """End an exchange with the answer so far."""
        if not exchange.done.done():
            body, is_early = bytes(exchange.body), not self._is_sent(exchange)
            reply = Reply(exchange.status, exchange.headers, body, is_whole, is_early)
            exchange.done.set_result(reply)

    def _fail(
        self, exchange: _OpenStream, failure: Failure, detail: str, *, is_stale: bool = False
    ) -> None:
        """End an exchange without an answer, unless the head of one has arrived."""
        if exchange.status:
            self._end(exchange, is_whole=False)
        elif not exchange.done.done():
            exchange.done.set_exception(ExchangeError(failure, detail, is_stale=is_stale))

    def _refuse(self, exchange: _OpenStream, detail: str) -> None:
        """End an exchange that the other side promises not to process (RFC 9113, 8.7)."""
        self._fail(exchange, Failure.RESET_BEFORE_SENT, detail, is_stale=True)

    def _end_all(self, failure: Failure, detail: str) -> None:
        self._is_reusable = False
        for exchange in self._exchanges.values():
            self._fail(exchange, failure, detail)
        if not self._exchanges:
            self.abort()

    def _leave(self, exchange: _OpenStream) -> None:
        """Forget an exchange, and reset its stream if that has not ended."""
        del self._exchanges[exchange.stream]
        if exchange.place is not None and exchange.limits.room is not None:
            exchange.limits.room.leave(exchange.place)
        try:
            self._acknowledge(exchange)
            self._h2.reset_stream(exchange.stream, ErrorCodes.CANCEL)
        except ProtocolError:
            # Its stream has ended, or the whole connection.
            pass
        self._flush()

    def _send_rest(self, exchange: _OpenStream) -> None:
        """Send as much of a body as the other side allows."""
        while exchange.rest and not exchange.done.done():
            window = self._h2.local_flow_control_window(exchange.stream)
            length = min(window, self._h2.max_outbound_frame_size)
            if length <= 0:
                break
            data, exchange.rest = bytes(exchange.rest[:length]), exchange.rest[length:]
            self._h2.send_data(exchange.stream, data, end_stream=not exchange.rest)
        if not exchange.rest and not exchange.ends_at:
            self._flush()
            exchange.ends_at = self._written_bytes

    def _flush(self) -> None:
        if data := self._h2.data_to_send():
            self._transport.write(data)
            self._written_bytes += len(data)

    def _is_sent(self, exchange: _OpenStream) -> bool:
        """Whether the whole request has left."""
        left_bytes = self._written_bytes - self._unsent_bytes
        return bool(exchange.ends_at) and exchange.ends_at <= left_bytes

    @property
    def _unsent_bytes(self) -> int:
        """The bytes that have not left; a little more, as some are encrypted."""
        in_tls = self.raw.get_write_buffer_size() if self.raw is not None else 0
        return self._transport.get_write_buffer_size() + in_tls

    def _reset(self, exchange: _OpenStream) -> Failure:
        is_sent = self._is_sent(exchange)
        return Failure.RESET_AFTER_SENT if is_sent else Failure.RESET_BEFORE_SENT

    @property
    def _is_open(self) -> bool:
        return self._is_reusable and not self._transport.is_closing()


def _frames_max(exchange: _OpenStream) -> int:
    return _FRAMES_MAX + exchange.limits.report_bytes_max * _FRAMES_PER_KB // 1_024


class Opening(WireProtocol):
    """A connection whose protocol is not known until its TLS handshake has ended."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a stream"
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data

    def handed_over(self) -> Connection | Http2Connection:
        """Return the connection in the protocol that the other side has chosen."""
        secured = self._transport.get_extra_info("ssl_object")
        is_http2 = secured is not None and secured.selected_alpn_protocol() == "h2"
        connection = Http2Connection() if is_http2 else Connection()
        connection.raw = self.raw
        self._transport.set_protocol(connection)
        connection.connection_made(self._transport)
        if self._received:
            connection.data_received(bytes(self._received))
        return connection
