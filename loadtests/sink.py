"""A destination that notes which events of a load test have arrived, and how old each was.

It runs as a separate process (`python -m loadtests.sink --host HOST`) and prints its port. It must
share the generator's clock, so it runs on the generator's machine.
"""

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import uvloop

from loadtests.events import find
from loadtests.recorder import Range, merged

_LENGTH = b"content-length:"
_TAKEN = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
_ANSWER_S = 120.0
# Hifi's requests to a destination are much smaller than this.
_REQUEST_BYTES_MAX = 128 * 1_048_576


@dataclass
class RunArrivals:
    """The arrivals of one run."""

    # By worker: a byte for each number, which is 1 if the event has arrived.
    numbers: dict[int, bytearray] = field(default_factory=lambda: defaultdict(bytearray))
    events: int = 0
    repeats: int = 0
    # The number of events of each age in ms, by the second in which they were due.
    ages_ms: dict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    # The number of events by second of arrival.
    seconds: Counter[int] = field(default_factory=Counter)
    last_us: int = 0

    def note(self, worker: int, number: int, due_us: int, now_us: int) -> None:
        numbers = self.numbers[worker]
        if number >= len(numbers):
            numbers.extend(bytes(max(1_000_000, number + 1 - len(numbers))))
        if numbers[number]:
            self.repeats += 1
            return
        numbers[number] = 1
        self.events += 1
        self.ages_ms[due_us // 1_000_000][max(0, (now_us - due_us) // 1000)] += 1
        self.seconds[now_us // 1_000_000] += 1
        self.last_us = now_us

    def missing(
        self, acked: Iterable[tuple[int, Iterable[Range]]]
    ) -> list[tuple[int, list[Range]]]:
        """Return the acknowledged events that have not arrived, by worker."""
        lost = []
        for worker, ranges in acked:
            numbers = self.numbers[worker]
            gone = [
                (number, number + 1)
                for first, end in ranges
                # Quick check first: ranges are nearly always complete.
                if numbers.count(1, first, end) != end - first
                for number in range(first, end)
                if number >= len(numbers) or not numbers[number]
            ]
            if gone:
                lost.append((worker, merged(gone)))
        return lost

    def figures(self) -> dict[str, Any]:
        return {
            "events": self.events,
            "repeats": self.repeats,
            "ages_ms": {second: dict(ages) for second, ages in self.ages_ms.items()},
            "seconds": dict(self.seconds),
            "last_us": self.last_us,
        }


class Taking(asyncio.Protocol):
    """Speaks enough HTTP for a sender that always gives a content-length."""

    # How long each answer takes, for all connections.
    slow_s = 0.0

    def __init__(self, runs: dict[str, RunArrivals]) -> None:
        self._runs = runs
        self._read = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._read += data
        while (head_end := self._read.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._read[:head_end])
            length = int(head.lower().partition(_LENGTH)[2].split(b"\r\n", 1)[0] or 0)
            if length > _REQUEST_BYTES_MAX:
                self._transport.abort()
                return
            end = head_end + 4 + length
            if len(self._read) < end:
                return
            body = bytes(self._read[head_end + 4 : end])
            del self._read[:end]
            self._take(head.split(b" ", 2)[1].decode(), body)

    def _take(self, path: str, body: bytes) -> None:
        match path.strip("/").split("/"):
            case ["figures", run]:
                self._answer(self._runs[run].figures())
            case ["missing", run]:
                self._answer(self._runs[run].missing(json.loads(body)))
            case ["slow", seconds]:
                Taking.slow_s = float(seconds)
                self._answer(Taking.slow_s)
            case _:
                now_us = time.time_ns() // 1000
                for each in find(body):
                    self._runs[each.run.decode()].note(
                        each.worker, each.number, each.due_us, now_us
                    )
                if Taking.slow_s:
                    later = asyncio.get_running_loop().call_later
                    later(Taking.slow_s, self._transport.write, _TAKEN)
                else:
                    self._transport.write(_TAKEN)

    def _answer(self, thing: Any) -> None:
        body = json.dumps(thing).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._transport.write(head % len(body) + body)


class Sink:
    """The client of a sink in another process."""

    def __init__(self, url: str) -> None:
        self.url = url

    def figures(self, run: str) -> dict[str, Any]:
        figures: dict[str, Any] = self._ask(f"figures/{run}", None)
        for name in ("ages_ms", "seconds"):
            figures[name] = {int(key): value for key, value in figures[name].items()}
        return figures

    def missing(self, run: str, acked: Any) -> list[tuple[int, list[Range]]]:
        return [
            (worker, [(first, end) for first, end in ranges])
            for worker, ranges in self._ask(f"missing/{run}", json.dumps(acked).encode())
        ]

    def be_slow(self, seconds: float) -> float:
        """Delay each answer from now on; return the delay that the sink reports."""
        return float(self._ask(f"slow/{seconds}", b""))

    def _ask(self, path: str, body: bytes | None) -> Any:
        with urllib.request.urlopen(self.url + path, data=body, timeout=_ANSWER_S) as answer:  # noqa: S310 - ours
            return json.load(answer)


@contextmanager
def running_sink(host: str = "127.0.0.1") -> Iterator[Sink]:
    """Run a sink as a separate process, at an address that delivery can reach."""
    process = subprocess.Popen(
        [sys.executable, "-m", "loadtests.sink", "--host", host], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield Sink(f"http://{host}:{int(process.stdout.readline())}/")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def _serve() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    listener = socket.create_server((parser.parse_args().host, 0), backlog=1024)
    runs: dict[str, RunArrivals] = defaultdict(RunArrivals)
    server = await asyncio.get_running_loop().create_server(lambda: Taking(runs), sock=listener)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve())
