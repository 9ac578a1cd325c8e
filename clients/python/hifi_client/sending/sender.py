"""Sends events to a stream, and makes each event's fate available."""

import atexit
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from hifi_client.errors import ClosedError, FullError, GatewayError, SetupError
from hifi_client.sending.buffer import Buffer
from hifi_client.sending.connection import read_target
from hifi_client.sending.events import Given, Lines, line_of, lines_of, unbroken
from hifi_client.sending.fates import Outcome, Sent, SentMany, Stretch
from hifi_client.sending.json_writer import write_json
from hifi_client.sending.posting import Poster, Posts

log = logging.getLogger("hifi_client")

OnOutcome: TypeAlias = Callable[[Outcome], object]
WhenFull: TypeAlias = Literal["block", "raise"]
_STREAM = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")
_LOOK_S = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """The options of a sender; pass them to it by name."""

    # The API key. Default: the environment's HIFI_API_KEY; without either, no key is sent.
    key: str | None = None
    # Whether to sign requests, for keys that must sign.
    is_signing: bool = False
    # A function that writes a dict as JSON, such as orjson.dumps. Default: msgspec if installed,
    # or the standard library.
    encode: Callable[[dict[str, Any]], bytes | str] | None = None
    # 'gzip', 'zstd' or None.
    compression: str | None = None
    # A batch is sent when it reaches this many events or bytes, or this age.
    batch_count_max: int = 500
    batch_bytes_max: int = 1_000_000
    linger_s: float = 0.05
    # Requests in flight at once; 1 keeps the order of events.
    parallel_max: int = 4
    # The memory limit for events. When memory is full, `send` waits, or raises FullError.
    memory_bytes_max: int = 32_000_000
    when_full: WhenFull = "block"
    # How long an event is tried before its fate is not_stored or unknown; with a spool, forever.
    give_up_s: float = 120.0
    # How long each step of a request may take: to connect, to write, to read.
    timeout_s: float = 30.0
    # Whether the gateway remembers each request for a day, so that a repeated request is stored
    # only once. It takes some 5 ms for each request.
    is_idempotent: bool = False
    # A folder for this process only, where events are stored before they are sent.
    spool: Path | str | None = None
    spool_bytes_max: int = 1_000_000_000
    # Called with each event's final outcome, from one of the sender's threads.
    on_outcome: OnOutcome | None = None
    # How long the process waits at its end until events are sent.
    exit_s: float = 10.0
    # Authorities for the gateway's certificate, if not the machine's own.
    ca_file: Path | str | None = None
    # The sender's own certificate and its key, if the gateway identifies senders by certificates.
    client_certificate: tuple[Path | str, Path | str] | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.batch_count_max <= 5_000 or not 1 <= self.batch_bytes_max <= 4_000_000:  # noqa: PLR2004
            raise SetupError("A batch may have 1 to 5,000 events and at most 4,000,000 bytes.")
        if self.when_full not in {"block", "raise"} or self.parallel_max < 1:
            raise SetupError("when_full must be 'block' or 'raise', and parallel_max at least 1.")
        if min(self.linger_s, self.give_up_s, self.exit_s) < 0 or self.timeout_s <= 0:
            raise SetupError("linger_s, give_up_s and exit_s are at least 0, timeout_s above 0.")


class Sender:
    """Sends to one stream, from any thread; without a spool, it starts work at the first event."""

    def __init__(self, url: str, stream: str, **options: Any) -> None:
        try:
            self.options = chosen = Options(**options)
        except TypeError as error:
            raise SetupError(f"A sender has no such option ({error}).") from error
        if not _STREAM.fullmatch(stream):
            raise SetupError(
                f"{stream!r} is not a stream name: use up to 100 of a to z, 0 to 9, - and _."
            )
        key = os.environ.get("HIFI_API_KEY") if chosen.key is None else chosen.key
        target = read_target(
            url, ca_file=chosen.ca_file, client_certificate=chosen.client_certificate
        )
        self._poster = Poster(target, stream, key or None, chosen)
        self._stream = stream
        self._buffer = Buffer(
            batch_count_max=chosen.batch_count_max,
            batch_bytes_max=chosen.batch_bytes_max,
            linger_s=chosen.linger_s,
            bytes_max=chosen.memory_bytes_max,
        )
        self._wait_s = None if chosen.when_full == "block" else 0.0
        self._encode = write_json if chosen.encode is None else unbroken(chosen.encode)
        self._starting = threading.Lock()
        self._posts: Posts | None = None
        self._is_closed = False
        _OPEN.add(self)
        if chosen.spool is not None:
            self._start()

    def send(self, event: Given, *, event_id: str | None = None, key: str | None = None) -> Sent:
        """Take an event; get its outcome later with `sent.wait()` or `await sent`.

        Events with the same `key` go to one Kafka partition, in order (it becomes the event's
        `partitionkey`). Wait while memory is full, or raise FullError, according to `when_full`.
        """
        return self.send_within(self._wait_s, event, event_id=event_id, key=key)

    def send_within(
        self,
        wait_s: float | None,
        event: Given,
        *,
        event_id: str | None = None,
        key: str | None = None,
    ) -> Sent:
        """Do as `send`, but wait at most this long for room (None: without limit)."""
        if self._posts is None:
            self._start()
        found_id, line = line_of(event, event_id=event_id, key=key, encode=self._encode)
        fates, nth = self._buffer.put(line, wait_s=wait_s)
        return Sent(found_id, fates, nth)

    def send_many(self, events: Iterable[Given], *, key: str | None = None) -> SentMany:
        """Take events in order, at less cost than `send` for each of them.

        If one is not an event, none is taken. If `when_full` is "raise", some may be taken before
        memory is full; FullError has these in `sent`.
        """
        return self.send_many_within(self._wait_s, events, key=key)

    def send_many_within(
        self, wait_s: float | None, events: Iterable[Given], *, key: str | None = None
    ) -> SentMany:
        """Do as `send_many`, but wait at most this long for room (None: without limit)."""
        ids, lines = self.lines_of(events, key=key)
        stretches: list[Stretch] = []
        sent = SentMany(ids, stretches)
        try:
            self.put_lines(wait_s, lines, stretches)
        except FullError as error:
            error.sent = sent
            raise
        return sent

    def lines_of(
        self, events: Iterable[Given], *, key: str | None = None
    ) -> tuple[list[str], Lines]:
        """Return the ids of events, and their lines."""
        return lines_of(events, key=key, encode=self._encode)

    def put_lines(self, wait_s: float | None, lines: Lines, stretches: list[Stretch]) -> None:
        """Take the lines beyond `stretches`, and add their places; on FullError some are taken."""
        if self._posts is None:
            self._start()
        taken = sum(count for _, _, count in stretches)
        if lines.text is not None and not taken:
            try:
                if self._buffer.put_text(lines.text, len(lines), stretches, wait_s=wait_s):
                    return
            except FullError:
                # Take as many of them as memory has room for, without another wait.
                wait_s = 0.0
        self._buffer.put_many(lines.each()[taken:], stretches, wait_s=wait_s)

    @property
    def problem(self) -> str:
        """The current problem in a sentence; empty if there is none."""
        return self._poster.pace.problem

    def check(self) -> None:
        """Ask the gateway whether it would accept an event; raise GatewayError if not."""
        problem = self._poster.rehearse()
        if problem:
            raise GatewayError(problem)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Send all waiting events; return whether each got its final fate in time."""
        if self._posts is None:
            return True
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._buffer.flush(is_on=True)
        try:
            while not self._is_idle():
                if until_s is not None and time.monotonic() >= until_s:
                    return False
                time.sleep(_LOOK_S)
            return True
        finally:
            self._buffer.flush(is_on=False)

    def close(self, timeout_s: float | None = None) -> None:
        """Send events for up to `timeout_s` (default `exit_s`); settle or spool the rest."""
        if self._is_closed:
            return
        self._is_closed = True
        _OPEN.discard(self)
        self._buffer.close()
        if self._posts is None:
            return
        wait_s = self.options.exit_s if timeout_s is None else timeout_s
        until_s = time.monotonic() + wait_s
        while not self._is_idle() and time.monotonic() < until_s:
            if self._posts.may_leave and self.problem:
                break
            time.sleep(_LOOK_S)
        self._posts.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self) -> None:
        with self._starting:
            if self._is_closed:
                raise ClosedError("The sender is closed: make another one.")
            if self._posts is not None:
                return
            if self.options.spool is None:
                self._posts = Posts(self._poster, self._buffer)
                return
            try:
                from hifi_client.spooling.posts import SpooledPosts  # noqa: PLC0415
            except ImportError as error:
                raise SetupError("A spool needs a POSIX system: it locks its folder.") from error
            folder = Path(self.options.spool)
            self._posts = SpooledPosts(self._poster, self._buffer, folder, self._stream)

    def _is_idle(self) -> bool:
        return self._buffer.used_bytes == 0 and (self._posts is None or self._posts.is_idle)

    def forked(self) -> None:
        """Close the sender in a forked child, as its threads and its spool are the parent's.

        A sender that has not started yet may start in the child.
        """
        if self._posts is None:
            return
        self._is_closed = True
        _OPEN.discard(self)
        self._buffer = Buffer(batch_count_max=1, batch_bytes_max=1, linger_s=0, bytes_max=1)
        self._buffer.close()
        if self._posts is not None:
            self._posts.abandon()


# Strong references: events must be sent even if the caller drops the sender.
_OPEN: set[Sender] = set()


def _close_all() -> None:
    for sender in list(_OPEN):
        try:
            sender.close()
        except Exception:
            log.exception("A sender could not be closed.")


def _forked() -> None:
    for sender in list(_OPEN):
        sender.forked()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
