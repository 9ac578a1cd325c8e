"""Holds events in bounded memory, and makes batches by count, bytes and time."""

import threading
import time
from collections import deque
from collections.abc import Sequence
from itertools import islice

from hifi_client.errors import ClosedError, FullError
from hifi_client.sending.fates import Fates, Stretch

# The memory of an event besides its bytes: an object, and its place in a list.
EVENT_OVERHEAD_BYTES = 64


class Batch:
    """Events that are sent together, and the place of each in their Fates."""

    __slots__ = ("born_s", "count", "fates", "line_bytes", "pieces", "places", "sure_bytes")

    def __init__(
        self, lines: list[bytes], fates: Fates, *, born_s: float, places: list[int] | None = None
    ) -> None:
        # Single lines, or texts of several lines, each with a line break.
        self.pieces = lines
        self.count = len(lines)
        self.fates = fates
        self.born_s = born_s
        # The events' places in the fates; None if they are 0, 1, 2 and so on.
        self.places = places
        # Including a line break for each line.
        self.line_bytes = 0
        # Up to this size there is certainly room, in the batch and in memory.
        self.sure_bytes = 0

    @classmethod
    def of_body(cls, body: bytes, fates: Fates, *, born_s: float) -> "Batch":
        batch = cls([body], fates, born_s=born_s)
        batch.count = body.count(b"\n") + (not body.endswith(b"\n"))
        return batch

    @property
    def charged_bytes(self) -> int:
        return self.line_bytes + self.count * (EVENT_OVERHEAD_BYTES - 1)

    @property
    def body(self) -> bytes:
        """All events, with line breaks between them, and perhaps after the last one."""
        if len(self.pieces) in {1, self.count}:
            return b"\n".join(self.pieces)
        return b"".join(each if each.endswith(b"\n") else each + b"\n" for each in self.pieces)

    @property
    def lines(self) -> list[bytes]:
        """Each event as its own line, for uses that need single events."""
        if len(self.pieces) < self.count:
            self.pieces = self.body.removesuffix(b"\n").split(b"\n")
        return self.pieces

    def place(self, nth: int) -> int:
        return nth if self.places is None else self.places[nth]

    def part(self, chosen: range | tuple[int, ...]) -> "Batch":
        """Return a batch of some of the events."""
        lines, places = self.lines, [self.place(nth) for nth in chosen]
        return Batch([lines[nth] for nth in chosen], self.fates, born_s=self.born_s, places=places)


class Buffer:
    """Holds events between the threads that send and those that post; any thread may use it."""

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
        # The memory of all events here and in flight, except the open batch.
        self._bytes = 0
        self._waiting = 0
        self._is_flushing = self._is_closed = False

    @property
    def used_bytes(self) -> int:
        with self._lock:
            return self._byte_count()

    def put(self, line: bytes, *, wait_s: float | None) -> tuple[Fates, int]:
        """Return the event's place. Wait for room, without limit if `wait_s` is None."""
        size = len(line) + 1
        with self._lock:
            batch = self._open
            if batch is None or batch.line_bytes + size > batch.sure_bytes:
                batch = self._batch_with_room(size, wait_s)
            nth = batch.count
            self._add(batch, line, size, 1)
            return batch.fates, nth

    def put_many(
        self, lines: Sequence[bytes], stretches: list[Stretch], *, wait_s: float | None
    ) -> None:
        """Put lines in order, and add their places; without room for all, keep the first ones."""
        at = 0
        with self._lock:
            while at < len(lines):
                batch = self._open
                if batch is None or batch.line_bytes + len(lines[at]) >= batch.sure_bytes:
                    batch = self._batch_with_room(len(lines[at]) + 1, wait_s)
                pieces, first, size = batch.pieces, batch.count, batch.line_bytes
                begun = at
                for line in islice(lines, at, at + self._count_max - first):
                    # The first line has room in any case.
                    if size + len(line) >= batch.sure_bytes and at > begun:
                        break
                    pieces.append(line)
                    size += len(line) + 1
                    at += 1
                batch.count, batch.line_bytes = first + at - begun, size
                stretches.append((batch.fates, first, at - begun))
                self._seal_if_full(batch)

    def put_text(
        self, text: bytes, count: int, stretches: list[Stretch], *, wait_s: float | None
    ) -> bool:
        """Put `count` lines as one text, with line breaks, if one batch has room for all."""
        size, cost = len(text), len(text) + count * (EVENT_OVERHEAD_BYTES - 1)
        with self._lock:
            open_count = 0 if self._open is None else self._open.count
            if open_count + count > self._count_max or size > self._batch_bytes_max:
                return False
            batch = self._batch_with_room(size, wait_s, cost=cost)
            has_room = batch.line_bytes + size <= self._batch_bytes_max
            if batch.count + count > self._count_max or not has_room:
                return False
            # A single event may exceed memory, but many together may not.
            if self._byte_count() + cost > self._bytes_max:
                return False
            stretches.append((batch.fates, batch.count, count))
            self._add(batch, text, size, count)
            return True

    def take(self, *, timeout_s: float | None = None) -> Batch | None:
        """Return the next batch once it is full or old enough; None if closed or not in time."""
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
        """Note that taken events have left memory."""
        with self._lock:
            self._bytes -= charged_bytes
            if self._waiting:
                self._has_room.notify_all()

    def flush(self, *, is_on: bool) -> None:
        """Set whether batches go at once instead of waiting for more events."""
        with self._lock:
            self._is_flushing = is_on
            self._is_ready.notify_all()

    def close(self) -> None:
        """Accept no more events; those already here can still be taken."""
        with self._lock:
            self._is_closed = self._is_flushing = True
            if self._open is not None:
                self._open.sure_bytes = 0
            self._is_ready.notify_all()
            self._has_room.notify_all()

    def _add(self, batch: Batch, piece: bytes, size: int, count: int) -> None:
        batch.pieces.append(piece)
        batch.count += count
        batch.line_bytes += size
        self._seal_if_full(batch)

    def _seal_if_full(self, batch: Batch) -> None:
        if batch.count >= self._count_max or batch.line_bytes >= self._batch_bytes_max:
            self._seal()

    def _byte_count(self) -> int:
        return self._bytes + (0 if self._open is None else self._open.charged_bytes)

    def _batch_with_room(
        self, size: int, wait_s: float | None, *, cost: int | None = None
    ) -> Batch:
        """Wait for room, and return the batch for a line. Most events do not need this call."""
        self._wait_for_room(size - 1 + EVENT_OVERHEAD_BYTES if cost is None else cost, wait_s)
        if self._is_closed:
            raise ClosedError(
                "The sender is closed, or was started before this process was forked: make"
                " another one."
            )
        batch = self._open
        if batch is not None and batch.line_bytes + size - 1 > self._batch_bytes_max:
            self._seal()
            batch = None
        if batch is None:
            batch = self._open = Batch([], Fates(), born_s=time.monotonic())
            self._is_ready.notify()
        room = self._bytes_max - self._bytes - self._count_max * EVENT_OVERHEAD_BYTES
        batch.sure_bytes = min(self._batch_bytes_max, room)
        return batch

    def _seal(self) -> None:
        assert self._open is not None, "there is a batch to seal"
        self._bytes += self._open.charged_bytes
        self._sealed.append(self._open)
        self._open = None
        self._is_ready.notify()

    def _wait_for_room(self, cost: int, wait_s: float | None) -> None:
        until_s = None if wait_s is None else time.monotonic() + wait_s
        self._waiting += 1
        try:
            while (
                (used := self._byte_count())
                and used + cost > self._bytes_max
                and not self._is_closed
            ):
                left_s = None if until_s is None else until_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    raise FullError(
                        f"Memory is full: {used:,} bytes of events are waiting, and"
                        f" {self._bytes_max:,} are allowed. Send slower, or wait longer."
                    )
                self._has_room.wait(left_s)
        finally:
            self._waiting -= 1
