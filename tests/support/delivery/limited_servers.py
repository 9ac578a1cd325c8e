"""Destinations with a limit, in simulated time; each reports how much it could have taken."""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from shared.retry.attempt import Response

# A refusal is this fast.
_REFUSAL_MS = 5.0


def asks_for_a_second(server: "LimitedServer") -> "LimitedServer":
    """Return the same server, but each refusal asks for a pause of a second."""
    return _AskingServer(server)


class LimitedServer(Protocol):
    """Answers a request that arrives at a time, and says how long that takes."""

    def answer(self, at_ms: float) -> tuple[Response, float]: ...

    def could_do(self, seconds: float) -> float:
        """Return the number of requests that the server could have answered in `seconds`."""


@dataclass
class AtOnce:
    """Takes a number of requests at once, which may change, and refuses more."""

    limit_at: Callable[[float], float]
    answer_ms: float
    status: int
    dice: random.Random
    busy: list[float] = field(default_factory=list)

    def answer(self, at_ms: float) -> tuple[Response, float]:
        while self.busy and self.busy[0] <= at_ms:
            heapq.heappop(self.busy)
        if len(self.busy) >= int(self.limit_at(at_ms / 1000)):
            return Response(self.status), _REFUSAL_MS
        took_ms = self.answer_ms * self.dice.uniform(0.8, 1.2)
        heapq.heappush(self.busy, at_ms + took_ms)
        return Response(200), took_ms

    def could_do(self, seconds: float) -> float:
        limits = sum(int(self.limit_at(second + 0.5)) for second in range(int(seconds)))
        return limits * 1000 / self.answer_ms


@dataclass
class PerSecond:
    """Takes `rate` requests in each second of its clock, and refuses the rest."""

    rate: int
    answer_ms: float
    status: int
    dice: random.Random
    second: int = -1
    taken: int = 0

    def answer(self, at_ms: float) -> tuple[Response, float]:
        if int(at_ms // 1000) != self.second:
            self.second, self.taken = int(at_ms // 1000), 0
        if self.taken >= self.rate:
            return Response(self.status), _REFUSAL_MS
        self.taken += 1
        return Response(200), self.answer_ms * self.dice.uniform(0.8, 1.2)

    def could_do(self, seconds: float) -> float:
        return self.rate * seconds


@dataclass
class Knee:
    """Refuses nothing, but each request above a number delays all later ones by a factor."""

    limit: int
    answer_ms: float
    factor: float
    dice: random.Random
    busy: list[float] = field(default_factory=list)

    def answer(self, at_ms: float) -> tuple[Response, float]:
        while self.busy and self.busy[0] <= at_ms:
            heapq.heappop(self.busy)
        above = max(0, len(self.busy) + 1 - self.limit)
        took_ms = self.answer_ms * self.factor**above * self.dice.uniform(0.9, 1.1)
        heapq.heappush(self.busy, at_ms + took_ms)
        return Response(200), took_ms

    def could_do(self, seconds: float) -> float:
        return self.limit * seconds * 1000 / self.answer_ms


@dataclass
class Failing:
    """Fails a share of its requests at any pace."""

    part: float
    answer_ms: float
    dice: random.Random

    def answer(self, at_ms: float) -> tuple[Response, float]:  # noqa: ARG002 - at any time
        status = 500 if self.dice.random() < self.part else 200
        return Response(status), self.answer_ms * self.dice.uniform(0.8, 1.2)

    def could_do(self, seconds: float) -> float:
        """Return the number of requests in `seconds`, one at a time."""
        return (1 - self.part) * seconds * 1000 / self.answer_ms


@dataclass
class _AskingServer:
    server: LimitedServer

    def answer(self, at_ms: float) -> tuple[Response, float]:
        attempt, took_ms = self.server.answer(at_ms)
        return (attempt if attempt.status == 200 else Response(attempt.status, "1")), took_ms

    def could_do(self, seconds: float) -> float:
        return self.server.could_do(seconds)
