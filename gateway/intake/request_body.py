"""Reads a request's body within its limits of size, time and memory."""

import asyncio
from dataclasses import dataclass
from time import monotonic

import msgspec
from starlette.types import Message, Receive

from gateway.intake.admission import body_too_large
from gateway.intake.byte_budget import ByteBudget
from gateway.intake.encodings import opened
from gateway.problems import Problem
from gateway.settings import Settings

_CLOSE = ((b"connection", b"close"),)


class ClientGoneError(Exception):
    """The client disconnected before its body was complete, so there is nobody to answer."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    body_bytes_max: int
    decompressed_bytes_max: int
    ratio_max: int
    # The longest pause between two pieces, and the longest time from the head to the last piece.
    stall_s: float
    total_s: float

    @classmethod
    def of(cls, settings: Settings, body_bytes_max: int) -> "BodyLimits":
        return cls(
            body_bytes_max=body_bytes_max,
            decompressed_bytes_max=settings.decompressed_bytes_max,
            ratio_max=settings.ratio_max,
            stall_s=settings.receive_deadline_s,
            total_s=settings.receive_total_s,
        )


class Body(msgspec.Struct, eq=False):
    """One request's body. Its bytes count as in flight from their arrival to `release`.

    Announced bytes do not count: otherwise a client could announce many bytes, send none, and keep
    everybody else out.
    """

    receive: Receive
    byte_budget: ByteBudget
    tenant: str
    overdue_bytes: int
    limits: BodyLimits
    # Bytes that have arrived, even if dropped since, to charge a quota.
    byte_count: int = 0
    # Bytes that are held now.
    used_bytes: int = 0
    _until_s: float = 0.0
    # The timeout of the wait for the next piece.
    _wait: asyncio.Timeout | None = None
    _is_dropped: bool = False

    async def read(
        self, content_length: str | None, *, is_whole: bool = False, waits: bool = False
    ) -> bytes:
        """Return the whole body; raise Problem if it is too large or slow, or has no room.

        `waits` if the client sends its body only after a 100 Continue.
        """
        # The HTTP parser guarantees that the header is a number.
        announced = 0 if content_length is None else int(content_length)
        self._until_s = monotonic() + self.limits.total_s
        if announced > self.limits.body_bytes_max:
            if waits:
                raise body_too_large(self.limits.body_bytes_max, closes=True)
            raise await self._too_large()
        if is_whole:
            # The body arrived together with the head, so no deadline can pass.
            self._hold(announced)
            chunk, has_more = self._content(await self.receive())
        else:
            # If there is no room, refuse before the client sends all of its body.
            self.byte_budget.check(announced, tenant=self.tenant, overdue_bytes=self.overdue_bytes)
            chunk, has_more = await self._chunk()
        if not has_more and len(chunk) == announced:
            self._hold(announced)
            return chunk
        chunks = [chunk]
        byte_count = len(chunk)
        while True:
            if byte_count > self.limits.body_bytes_max:
                raise await self._too_large(has_more=has_more)
            self._hold(byte_count)
            if not has_more and byte_count < announced:
                raise Problem("invalid_http", "The body ended before its Content-Length.")
            if not has_more:
                return chunk if len(chunks) == 1 else b"".join(chunks)
            chunk, has_more = await self._chunk()
            chunks.append(chunk)
            byte_count += len(chunk)

    def decompress(self, encoding: str, wire: bytes) -> bytes:
        """Return the body without its encoding; the additional bytes are held, too."""
        if encoding == "identity":
            return wire
        return opened(
            encoding,
            wire,
            bytes_max=self.limits.decompressed_bytes_max,
            ratio_max=self.limits.ratio_max,
            hold=lambda byte_count: self._grow(len(wire), byte_count),
        )

    def release(self) -> None:
        if self.used_bytes:
            self.byte_budget.leave(self.used_bytes, tenant=self.tenant)
            self.used_bytes = 0

    def drop(self) -> None:
        """Drop an incomplete body, because others need the room."""
        self.release()
        self._is_dropped = True
        if self._wait is not None:
            self._wait.reschedule(0.0)

    def _hold(self, byte_count: int) -> None:
        """Hold this many bytes in all."""
        if byte_count > self.used_bytes:
            self.byte_budget.enter(
                byte_count - self.used_bytes, tenant=self.tenant, overdue_bytes=self.overdue_bytes
            )
            self.used_bytes = byte_count

    def _grow(self, wire_bytes: int, byte_count: int) -> None:
        self._hold(wire_bytes + byte_count)
        self.byte_count = max(wire_bytes, byte_count)

    async def _chunk(self) -> tuple[bytes, bool]:
        left_s = self._until_s - monotonic()
        wait_s = min(self.limits.stall_s, left_s)
        self.byte_budget.begin_wait(self)
        try:
            async with asyncio.timeout(wait_s) as self._wait:
                message = await self.receive()
        except TimeoutError as error:
            if self._is_dropped:
                raise _dropped() from error
            detail = (
                f"No byte of the body arrived for {self.limits.stall_s:g} s."
                if wait_s < left_s
                else f"The body did not arrive completely within {self.limits.total_s:g} s."
            )
            raise Problem("body_timeout", detail, headers=_CLOSE) from error
        finally:
            self._wait = None
            self.byte_budget.end_wait(self)
        if self._is_dropped:
            raise _dropped()
        return self._content(message)

    async def _too_large(self, *, has_more: bool = True) -> Problem:
        """Read as much as the limit once more: a client that still sends would miss the answer."""
        byte_count = 0
        while has_more and byte_count <= self.limits.body_bytes_max:
            chunk, has_more = await self._chunk()
            byte_count += len(chunk)
        return body_too_large(self.limits.body_bytes_max, closes=has_more)

    def _content(self, message: Message) -> tuple[bytes, bool]:
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        chunk = message.get("body", b"")
        self.byte_count += len(chunk)
        return chunk, message.get("more_body", False)


def _dropped() -> Problem:
    return Problem(
        "overloaded",
        "Nothing of this request was stored: its body was still incomplete when the gateway"
        " needed the room for other requests. Send the request again later.",
        headers=((b"retry-after", b"1"), *_CLOSE),
    )
