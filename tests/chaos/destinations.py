"""Plays every destination of a chaos run on one port, in the moods of the plan.

The path of a request identifies its destination. A destination keeps each event that it accepted,
even when its answer was lost on purpose: that event may arrive again, labelled.
"""

import asyncio
import gzip
import json
import socket
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

from tests.chaos.recount import Arrival

# `hang` and `slow_body` make the sender wait for longer than the run's `timeout_s`.
_HANG_S = 8.0
# How many requests at once the mood `limit` accepts.
_LIMIT = 1
_ACCEPTED = b'{"taken":true}'
# A rate-limited event may not come again for this long, give or take a moment for the answer's way.
_RETRY_AFTER_S, _ON_ITS_WAY_S = 1, 0.1
_PLAIN = {
    "throttle": (429, f"retry-after: {_RETRY_AFTER_S}\r\n"),
    "unavailable": (503, ""),
    "unauthorized": (401, ""),
    "redirect": (302, "location: http://127.0.0.1:9/\r\n"),
    "gone": (410, ""),
}


@dataclass(frozen=True, slots=True)
class PostedRequest:
    """A request of Hifi's: its destination, its events, and whether it is labelled as a repeat."""

    path: str
    ids: list[str]
    is_labelled: bool

    def arrivals(self, ids: list[str]) -> Iterator[Arrival]:
        _, tenant, stream, name = self.path.split("/")
        for event_id in ids:
            yield Arrival(tenant, f"{stream}/{name}", event_id, self.is_labelled)


@dataclass
class Destinations:
    """All destinations; started by `open_destinations`."""

    url: str = ""
    # How often each mood has answered: a mood that no request met proves nothing.
    served: Counter[str] = field(default_factory=Counter)
    # Once set, one event of the next request is denied after it was answered with 200.
    denies_one: bool = False
    denied: list[str] = field(default_factory=list)
    # Events that came again earlier than the answer to them allowed.
    early: list[Arrival] = field(default_factory=list)
    # Until when each rate-limited event of a path may not come again (monotonic).
    _limited_until_s: dict[tuple[str, str], float] = field(default_factory=dict)
    # How long `refuse_slowly` thinks about a request.
    slow_s: float = 1.0
    _arrivals: list[Arrival] = field(default_factory=list)
    _moods: dict[str, tuple[str, float]] = field(default_factory=dict)
    # The paths that always refuse slowly, and the time until which each is down at first.
    _picky: dict[str, float] = field(default_factory=dict)
    _under_way: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def picky(self) -> list[str]:
        """Return the paths of the destinations that always refuse slowly."""
        return list(self._picky)

    @property
    def arrivals(self) -> list[Arrival]:
        return list(self._arrivals)

    def url_of(self, tenant: str, stream: str, name: str) -> str:
        return f"{self.url}/{tenant}/{stream}/{name}"

    def put_in_mood(self, path: str, mood: str, *, for_s: float) -> None:
        self._moods[path] = mood, time.monotonic() + for_s

    def make_picky(self, path: str, *, down_s: float) -> None:
        """Make a destination refuse some events slowly, even when all others are calm."""
        self._picky[path] = time.monotonic() + down_s

    def calm(self) -> None:
        self._moods.clear()

    def mood_of(self, path: str) -> str:
        if path in self._picky:
            return "unavailable" if time.monotonic() < self._picky[path] else "refuse_slowly"
        mood, until_s = self._moods.get(path, ("", 0.0))
        return mood if time.monotonic() < until_s else ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await self._serve_one(reader, writer)
        except (OSError, asyncio.IncompleteReadError, _LeftError):
            pass
        finally:
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        path = first.split(" ")[1]
        mood = self.mood_of(path)
        if mood == "reset_before":
            self.served[mood] += 1
            _reset(writer)
        body = await reader.readexactly(int(headers["content-length"]))
        posted = PostedRequest(
            path, _ids(body, headers), headers.get("hifi-maybe-duplicate") == "1"
        )
        self._note_early(posted, mood)
        self._under_way[path] += 1
        try:
            await self._answer(posted, mood, writer)
            await writer.drain()
        finally:
            self._under_way[path] -= 1

    def _note_early(self, posted: PostedRequest, mood: str) -> None:
        """Note events that come too early, and until when a rate-limited one has to wait."""
        now_s = time.monotonic()
        # A process that died may not have known of the answer; what it sends again is labelled.
        if not posted.is_labelled:
            known = {one: self._limited_until_s.get((posted.path, one), 0.0) for one in posted.ids}
            self.early += posted.arrivals(
                [one for one, until_s in known.items() if now_s < until_s]
            )
        if mood == "throttle":
            until_s = now_s + _RETRY_AFTER_S - _ON_ITS_WAY_S
            self._limited_until_s |= {(posted.path, one): until_s for one in posted.ids}

    async def _answer(self, posted: PostedRequest, mood: str, writer: asyncio.StreamWriter) -> None:
        if mood:
            self.served[mood] += 1
        if mood in _PLAIN:
            status, more = _PLAIN[mood]
            writer.write(_reply(status, b"no", more))
        elif mood == "limit":
            await self._limit(posted, writer)
        elif mood.endswith("_207"):
            self._partial(posted, writer, mood)
        elif mood == "refuse_some" and any(_is_refused(one) for one in posted.ids):
            # The refused event must be found by halving the batch.
            writer.write(_reply(400, b"one of them"))
        elif mood == "refuse_slowly":
            await self._refuse_slowly(posted, writer)
        else:
            self._take(posted, posted.ids)
            await self._answer_badly(mood, writer)

    async def _answer_badly(self, mood: str, writer: asyncio.StreamWriter) -> None:
        """Answer after accepting everything: with 200, or with something that hides it."""
        match mood:
            case "hang":
                await asyncio.sleep(_HANG_S)
                raise _LeftError
            case "reset_after":
                _reset(writer)
            case "garbage":
                writer.write(b"\x16\x03\x01 what is HTTP?\r\n\r\n")
                raise _LeftError
            case "slow_body":
                reply = _reply(200, _ACCEPTED)
                writer.write(reply[: -len(_ACCEPTED)])
                for byte in _ACCEPTED:
                    writer.write(bytes([byte]))
                    # This raises when the other end has given up.
                    await writer.drain()
                    await asyncio.sleep(_HANG_S / len(_ACCEPTED))
            case _:
                writer.write(_reply(200, _ACCEPTED))

    async def _limit(self, posted: PostedRequest, writer: asyncio.StreamWriter) -> None:
        if self._under_way[posted.path] > _LIMIT:
            writer.write(_reply(429, b"one at a time"))
            return
        await asyncio.sleep(0.05)
        self._take(posted, posted.ids)
        writer.write(_reply(200, _ACCEPTED))

    async def _refuse_slowly(self, posted: PostedRequest, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(self.slow_s)
        if any(_is_disliked(one) for one in posted.ids):
            writer.write(_reply(422, b"one of them"))
            return
        self._take(posted, posted.ids)
        writer.write(_reply(200, _ACCEPTED))

    def _partial(self, posted: PostedRequest, writer: asyncio.StreamWriter, mood: str) -> None:
        """Accept two of three events and say so; a cut, packed or long reply is unreadable."""
        failed = set(posted.ids[::3])
        self._take(posted, [one for one in posted.ids if one not in failed])
        entries = [{"id": one, "status": 503} for one in sorted(failed)]
        if mood == "long_207":
            # Hifi reads at most two entries for each event.
            entries *= 9
        body, more = json.dumps({"failed": entries}).encode(), ""
        if mood == "packed_207":
            body, more = gzip.compress(body), "content-encoding: gzip\r\n"
        reply = _reply(207, body, more)
        writer.write(reply[:-5] if mood == "cut_207" else reply)
        if mood == "cut_207":
            raise _LeftError

    def _take(self, posted: PostedRequest, ids: list[str]) -> None:
        if self.denies_one and ids:
            self.denies_one = False
            self.denied = [ids[0]]
            ids = ids[1:]
        self._arrivals.extend(posted.arrivals(ids))


class _LeftError(Exception):
    """The destination has left the connection."""


def _reset(writer: asyncio.StreamWriter) -> NoReturn:
    """Reset the connection, which drops everything that is still unsent."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    raise _LeftError


def _reply(status: int, body: bytes, more: str = "") -> bytes:
    head = f"HTTP/1.1 {status} Said\r\ncontent-length: {len(body)}\r\n"
    return f"{head}content-type: application/json\r\n{more}\r\n".encode() + body


def _ids(body: bytes, headers: dict[str, str]) -> list[str]:
    if headers.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    if headers["content-type"].startswith("application/x-ndjson"):
        events = [json.loads(line) for line in body.splitlines() if line]
    else:
        events = json.loads(body)
    return [event["id"] for event in events]


def _is_refused(event_id: str) -> bool:
    return event_id.endswith("7")


def _is_disliked(event_id: str) -> bool:
    """Return True for six in a hundred."""
    return int(event_id.rpartition(".")[2]) % 17 == 7


@contextmanager
def open_destinations() -> Iterator[Destinations]:
    """Run the destinations on a free port, in a thread of their own."""
    destinations = Destinations()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="destinations", daemon=True)
    thread.start()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(destinations.serve, "127.0.0.1", 0)

    async def stop(server: asyncio.Server) -> None:
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    destinations.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield destinations
    finally:
        asyncio.run_coroutine_threadsafe(stop(server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
