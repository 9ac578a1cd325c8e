"""Holds events in bounded memory, and cuts batches by count, bytes and time."""

import threading
import time
from collections import deque

from hifi_client.errors import ClosedError, FullError
from hifi_client.sending.fates import Fates

# What an event costs besides its bytes: an object, its place in a list.
EVENT_OVERHEAD_BYTES = 64


class Batch:
    """Events that go together, and where each of them stands in the fates of all."""

    __slots__ = ("born_s", "charged_bytes", "fates", "line_bytes", "lines", "places")

    def __init__(
        self, lines: list[bytes], fates: Fates, *, born_s: float, places: list[int] | None = None
    ) -> None:
        self.lines = lines
        self.fates = fates
        self.born_s = born_s
        # None: the events stand as they do in the fates.
        self.places = places
        self.line_bytes = 0
        self.charged_bytes = 0

    def place(self, nth: int) -> int:
        return nth if self.places is None else self.places[nth]

    def part(self, chosen: range | tuple[int, ...]) -> "Batch":
        """Some of the events, in a batch of their own."""
        lines = [self.lines[nth] for nth in chosen]
        places = [self.place(nth) for nth in chosen]
        return Batch(lines, self.fates, born_s=self.born_s, places=places)


class Buffer:
    """Events between those who send and those who post. All of it may be called by any thread."""

    def __init__(
        self, *, batch_count_max: int, batch_bytes_max: int, linger_s: float, bytes_max: int
    ) -> None:
        self._count_max, self._batch_bytes_max = batch_count_max, batch_bytes_max
        self._linger_s, self._bytes_max = linger_s, bytes_max
        lock = threading.Lock()
        self._lock = lock
        self._is_ready, self._has_room = threading.Condition(lock), threading.Condition(lock)
        self._open: Batch | None = None
        self._sealed: deque[Batch] = deque()
        # Of all events here and under way.
        self._bytes = 0
        self._waiting = 0
        self._is_flushing = self._is_closed = False

    @property
    def held_bytes(self) -> int:
        return self._bytes

    def put(self, line: bytes, *, wait_s: float | None) -> tuple[Fates, int]:
        """Where the event stands. Waits for room, for ever if `wait_s` is None."""
        cost = len(line) + EVENT_OVERHEAD_BYTES
        with self._lock:
            if self._bytes + cost > self._bytes_max and self._bytes:
                self._wait_for_room(cost, wait_s)
            if self._is_closed:
                raise ClosedError(
                    "The sender is closed, or was begun before this process was forked: make"
                    " another one."
                )
            batch = self._open
            if batch is not None and batch.line_bytes + len(line) > self._batch_bytes_max:
                self._seal()
                batch = None
            if batch is None:
                batch = self._open = Batch([], Fates(), born_s=time.monotonic())
                self._is_ready.notify()
            nth = len(batch.lines)
            batch.lines.append(line)
            batch.line_bytes += len(line) + 1
            batch.charged_bytes += cost
            self._bytes += cost
            if nth + 1 >= self._count_max or batch.line_bytes >= self._batch_bytes_max:
                self._seal()
            return batch.fates, nth

    def take(self, *, timeout_s: float | None = None) -> Batch | None:
        """The next batch, as soon as it is full or has waited long enough; None at the end."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._lock:
            while True:
                if self._sealed:
                    return self._sealed.popleft()
                now_s = time.monotonic()
                wait_s: float | None = None
                if self._open is not None:
                    wait_s = self._open.born_s + self._linger_s - now_s
                    if wait_s <= 0 or self._is_flushing:
                        self._seal()
                        continue
                elif self._is_closed:
                    return None
                if until_s is not None:
                    left_s = until_s - now_s
                    if left_s <= 0:
                        return None
                    wait_s = left_s if wait_s is None else min(wait_s, left_s)
                self._is_ready.wait(wait_s)

    def release(self, charged_bytes: int) -> None:
        """What was taken has left memory."""
        with self._lock:
            self._bytes -= charged_bytes
            if self._waiting:
                self._has_room.notify_all()

    def flush(self, *, is_on: bool) -> None:
        """Whether batches wait for more events."""
        with self._lock:
            self._is_flushing = is_on
            self._is_ready.notify_all()

    def close(self) -> None:
        """Nothing is put any more; what is here can be taken."""
        with self._lock:
            self._is_closed = self._is_flushing = True
            self._is_ready.notify_all()
            self._has_room.notify_all()

    def _seal(self) -> None:
        assert self._open is not None, "there is one to be sealed"
        self._sealed.append(self._open)
        self._open = None
        self._is_ready.notify()

    def _wait_for_room(self, cost: int, wait_s: float | None) -> None:
        until_s = None if wait_s is None else time.monotonic() + wait_s
        self._waiting += 1
        try:
            while self._bytes and self._bytes + cost > self._bytes_max and not self._is_closed:
                left_s = None if until_s is None else until_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    raise FullError(
                        f"{self._bytes:,} bytes of events wait to be sent, and that is as much as"
                        f" memory may hold ({self._bytes_max:,}): send slower, or wait longer."
                    )
                self._has_room.wait(left_s)
        finally:
            self._waiting -= 1
