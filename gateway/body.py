"""Decides how much of a body is read, how long we wait for it, and whose bytes it holds."""

import asyncio

from starlette.types import Receive

from gateway.admission import InFlight, body_too_large
from gateway.problems import Problem

_CLOSE = ((b"connection", b"close"),)


class ClientGoneError(Exception):
    """The client left before its body was complete; nobody is there to answer."""


class Body:
    """One request's body. Its bytes count as in flight from before they are read to `release`."""

    def __init__(
        self,
        receive: Receive,
        *,
        in_flight: InFlight,
        overdue_bytes: int,
        body_bytes_max: int,
        deadline_s: float,
    ) -> None:
        self._receive = receive
        self._in_flight = in_flight
        self._overdue_bytes = overdue_bytes
        self._body_bytes_max = body_bytes_max
        self._deadline_s = deadline_s
        self._held = 0

    async def read(self, content_length: str | None) -> bytes:
        """The whole body, or a Problem: too large, too slow, or no room for it."""
        # The HTTP parser has made sure that the header is a number.
        announced = 0 if content_length is None else int(content_length)
        if announced > self._body_bytes_max:
            raise await self._too_large()
        self._hold(announced)
        chunks: list[bytes] = []
        byte_count = 0
        while True:
            chunk, has_more = await self._chunk()
            chunks.append(chunk)
            byte_count += len(chunk)
            if byte_count > self._body_bytes_max:
                raise await self._too_large(has_more=has_more)
            self._hold(byte_count)
            if not has_more:
                return chunk if len(chunks) == 1 else b"".join(chunks)

    def release(self) -> None:
        self._in_flight.leave(self._held)
        self._held = 0

    def _hold(self, byte_count: int) -> None:
        """Count so many bytes as ours; those that were announced are counted already."""
        if byte_count > self._held:
            self._in_flight.enter(byte_count - self._held, overdue_bytes=self._overdue_bytes)
            self._held = byte_count

    async def _chunk(self) -> tuple[bytes, bool]:
        try:
            async with asyncio.timeout(self._deadline_s):
                message = await self._receive()
        except TimeoutError as error:
            raise Problem(
                "body_timeout",
                f"No byte of the body came for {self._deadline_s:g} s.",
                headers=_CLOSE,
            ) from error
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        return message.get("body", b""), message.get("more_body", False)

    async def _too_large(self, *, has_more: bool = True) -> Problem:
        """Read on up to one cap: a client that is still sending would not see our answer."""
        byte_count = 0
        while has_more and byte_count <= self._body_bytes_max:
            chunk, has_more = await self._chunk()
            byte_count += len(chunk)
        return body_too_large(self._body_bytes_max, closes=has_more)
