"""A destination that reports each event's age on arrival, and others that count or misbehave.

It runs as a separate process (`python -m benchmarks.lag_sink`) and prints its ports as one JSON
line. An event has its creation time as `"made_ns":N`; sender and sink share a machine's clock.
"""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from urllib.request import urlopen

import uvloop

_MADE = re.compile(rb'"made_ns":(\d+)')
_NOTED = re.compile(rb'"id":"(\d+)","made_ns":(\d+)')
_LABEL = b"hifi-maybe-duplicate:"
_EVENTS = re.compile(rb"hifi-events: (\d+)")
_LENGTH = b"content-length:"
_OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
_TOO_MANY = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 5\r\ncontent-length: 0\r\n\r\n"
# Longer than any of Hifi's timeouts.
_SLOW_S = 30.0
# Long enough that a request is always open, but not slow.
_NOTING_S = 0.2
# Pause between pieces of an endless answer: each read succeeds, but the answer never ends.
_DRIP_S = 0.5


@dataclass(frozen=True, slots=True)
class LagSink:
    """Reads the sink's figures; `ports` has a port for each way in which the sink behaves."""

    ports: dict[str, int]

    def url(self, manner: str) -> str:
        return f"http://127.0.0.1:{self.ports[manner]}/"

    def take_lags_ms(self) -> list[float]:
        """Return the age of each event since the last call."""
        lags_ms: list[float] = self._ask("figures")
        return lags_ms

    def counted(self) -> "EventCount":
        """Return the count of the events since the last call that the sink only counts."""
        return EventCount(*self._ask("counts"))

    def take_notes(self) -> "list[Note]":
        """Return each event that the `noting` port got since the last call."""
        return [Note(*each) for each in self._ask("notes")]

    def _ask(self, what: str) -> Any:
        with urlopen(self.url(what), timeout=30) as answer:  # noqa: S310 - loopback, ours
            return json.load(answer)


class EventCount(NamedTuple):
    """The number of events after the first request, and the time until the last."""

    events: int
    span_s: float

    @property
    def per_s(self) -> float:
        return self.events / self.span_s if self.span_s else 0.0


class Note(NamedTuple):
    """An arrived event: its destination, its number, whether it is labelled a repeat, its age."""

    path: str
    number: int
    is_labelled: bool
    lag_ms: float


class _Requests(asyncio.Protocol):
    """Speaks enough HTTP for senders that always give a content-length."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._read = bytearray()
        self._needed = 0

    def data_received(self, data: bytes) -> None:
        self._read += data
        while self._read:
            if not self._needed:
                head_end = self._read.find(b"\r\n\r\n")
                if head_end < 0:
                    return
                head = bytes(self._read[:head_end]).lower()
                length = head.partition(_LENGTH)[2].split(b"\r\n", 1)[0]
                self._needed = head_end + 4 + int(length or 0)
            if len(self._read) < self._needed:
                return
            request = bytes(self._read[: self._needed])
            del self._read[: self._needed]
            self._needed = 0
            self.answer(request)

    def answer(self, request: bytes) -> None:
        raise NotImplementedError

    def answer_late(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(_OK)


class _Quick(_Requests):
    lags_ms: list[float] = []  # noqa: RUF012 - one list for all connections is the point

    def answer(self, request: bytes) -> None:
        now_ns = time.time_ns()
        self.transport.write(_OK)
        self.lags_ms += [(now_ns - int(made)) / 1e6 for made in _MADE.findall(request)]


class _Figures(_Requests):
    def answer(self, request: bytes) -> None:  # noqa: ARG002 - whatever is asked
        body = json.dumps(_Quick.lags_ms).encode()
        _Quick.lags_ms.clear()
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)


class _Counting(_Requests):
    """Counts events by the requests' headers, which costs less than reading each event."""

    events = 0
    first_s = last_s = 0.0

    def answer(self, request: bytes) -> None:
        self.transport.write(_OK)
        kind = _Counting
        kind.last_s = time.monotonic()
        if kind.first_s:
            kind.events += int(_EVENTS.search(request)[1])  # type: ignore[index]
        else:
            kind.first_s = kind.last_s


class _Counts(_Requests):
    def answer(self, request: bytes) -> None:  # noqa: ARG002 - whatever is asked
        kind = _Counting
        body = json.dumps([kind.events, kind.last_s - kind.first_s]).encode()
        kind.events, kind.first_s, kind.last_s = 0, 0.0, 0.0
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)


class _Noting(_Requests):
    notes: list[tuple[str, int, bool, float]] = []  # noqa: RUF012 - as above

    def answer(self, request: bytes) -> None:
        now_ns = time.time_ns()
        asyncio.get_running_loop().call_later(_NOTING_S, self.answer_late)
        head, _, body = request.partition(b"\r\n\r\n")
        path, is_labelled = head.split(b" ", 2)[1].decode(), _LABEL in head.lower()
        self.notes += [
            (path, int(number), is_labelled, (now_ns - int(made)) / 1e6)
            for number, made in _NOTED.findall(body)
        ]


class _Notes(_Requests):
    def answer(self, request: bytes) -> None:  # noqa: ARG002 - whatever is asked
        body = json.dumps(_Noting.notes).encode()
        _Noting.notes.clear()
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)


class _Slow(_Requests):
    def answer(self, request: bytes) -> None:  # noqa: ARG002 - each is answered late
        asyncio.get_running_loop().call_later(_SLOW_S, self.answer_late)


class _Limiting(_Requests):
    def answer(self, request: bytes) -> None:  # noqa: ARG002 - each is one too many
        self.transport.write(_TOO_MANY)


class _Dripping(_Requests):
    def answer(self, request: bytes) -> None:  # noqa: ARG002 - no answer is ever complete
        self.transport.write(b"HTTP/1.1 200 OK\r\n")
        self._drip()

    def _drip(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(b"x-drip: 1\r\n")
            asyncio.get_running_loop().call_later(_DRIP_S, self._drip)


_MANNERS: dict[str, type[_Requests]] = {
    "quick": _Quick,
    "figures": _Figures,
    "counting": _Counting,
    "counts": _Counts,
    "noting": _Noting,
    "notes": _Notes,
    "slow": _Slow,
    "limiting": _Limiting,
    "dripping": _Dripping,
}


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    servers = {
        manner: await loop.create_server(kind, "127.0.0.1", 0) for manner, kind in _MANNERS.items()
    }
    ports = {manner: server.sockets[0].getsockname()[1] for manner, server in servers.items()}
    print(json.dumps(ports), flush=True)
    await asyncio.Event().wait()


@contextmanager
def running_lag_sink() -> Iterator[LagSink]:
    """Run the sink as a separate process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.lag_sink"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield LagSink(json.loads(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        uvloop.run(_serve())
