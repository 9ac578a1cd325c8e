"""Sends events to a stream: two lines are enough, and each event's fate is available."""

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
    """How a sender sends; every one may be given to it by name."""

    # An API key; HIFI_API_KEY of the environment if none is given. Without either no key is sent.
    key: str | None = None
    # Whether requests are signed with it (keys that must sign).
    is_signing: bool = False
    # Writes a dict as JSON instead of msgspec or the standard library, such as orjson.dumps.
    encode: Callable[[dict[str, Any]], bytes | str] | None = None
    # 'gzip', 'zstd' or None.
    compression: str | None = None
    # A batch goes when it reaches this many events or bytes, or this age.
    batch_count_max: int = 500
    batch_bytes_max: int = 1_000_000
    linger_s: float = 0.05
    # Requests under way at once; 1 keeps the order of events.
    parallel_max: int = 4
    # The memory limit for events. When it is full `send` waits, or raises FullError.
    memory_bytes_max: int = 32_000_000
    when_full: WhenFull = "block"
    # How long an event is tried before its fate is not_stored or unknown; not with a spool.
    give_up_s: float = 120.0
    # How long one step of a request may take: to connect, to write, to read.
    timeout_s: float = 30.0
    # Whether the gateway remembers each request for a day, so that what is sent twice is stored
    # once. Costs it some 5 ms a request.
    is_idempotent: bool = False
    # A folder for this process alone: events are on disk before they are sent.
    spool: Path | str | None = None
    spool_bytes_max: int = 1_000_000_000
    # Called with each event's final outcome, from a thread of the sender's.
    on_outcome: OnOutcome | None = None
    # How long the end of the process waits for requests under way.
    exit_s: float = 10.0
    # Authorities of the gateway's certificate, if they are not those of the machine.
    ca_file: Path | str | None = None
    # The sender's own certificate and its key, where the gateway knows senders by those.
    client_certificate: tuple[Path | str, Path | str] | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.batch_count_max <= 5_000 or not 1 <= self.batch_bytes_max <= 4_000_000:  # noqa: PLR2004
            raise SetupError("A batch has 1 to 5,000 events and at most 4,000,000 bytes.")
        if self.when_full not in {"block", "raise"} or self.parallel_max < 1:
            raise SetupError("when_full must be 'block' or 'raise', and parallel_max at least 1.")
        if min(self.linger_s, self.give_up_s, self.exit_s) < 0 or self.timeout_s <= 0:
            raise SetupError("linger_s, give_up_s, exit_s and timeout_s are no less than 0.")


class Sender:
    """Sends to one stream. Any thread may use it; nothing is sent before the first event."""

    def __init__(self, url: str, stream: str, **options: Any) -> None:
        try:
            self.options = chosen = Options(**options)
        except TypeError as error:
            raise SetupError(f"A sender has no such option ({error}).") from error
        if not _STREAM.fullmatch(stream):
            raise SetupError(
                f"{stream!r} is no name of a stream: a to z, 0 to 9, - and _, 100 at most."
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
        """Take an event, and report its outcome later: `sent.wait()`, `await sent`.

        `key` orders: events of one key lie in one Kafka partition (`partitionkey` of the event).
        Waits while memory is full, or raises FullError, as `when_full` says.
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
        """As `send`, but wait at most this long for room (None: without limit)."""
        if self._posts is None:
            self._start()
        found_id, line = line_of(event, event_id=event_id, key=key, encode=self._encode)
        fates, nth = self._buffer.put(line, wait_s=wait_s)
        return Sent(found_id, fates, nth)

    def send_many(self, events: Iterable[Given], *, key: str | None = None) -> SentMany:
        """Take events in order, for less than `send` costs for each of them.

        All of them or, if one is no event, none. Where `when_full` is "raise" some may be taken
        before memory is full: FullError has these in `sent`.
        """
        return self.send_many_within(self._wait_s, events, key=key)

    def send_many_within(
        self, wait_s: float | None, events: Iterable[Given], *, key: str | None = None
    ) -> SentMany:
        """As `send_many`, but wait at most this long for room (None: without limit)."""
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
        """The ids of events, and how they go."""
        return lines_of(events, key=key, encode=self._encode)

    def put_lines(self, wait_s: float | None, lines: Lines, stretches: list[Stretch]) -> None:
        """Take those that do not stand anywhere yet, and add where; these stay if room ends."""
        if self._posts is None:
            self._start()
        taken = sum(count for _, _, count in stretches)
        if lines.text is not None and not taken:
            try:
                if self._buffer.put_text(lines.text, len(lines), stretches, wait_s=wait_s):
                    return
            except FullError:
                # Where memory has room for some of them, these are taken; the wait is over.
                wait_s = 0.0
        self._buffer.put_many(lines.each()[taken:], stretches, wait_s=wait_s)

    @property
    def problem(self) -> str:
        """The current problem, in a sentence; empty while all is well."""
        return self._poster.pace.problem

    def check(self) -> None:
        """Ask the gateway whether it would take an event; GatewayError says why not."""
        problem = self._poster.rehearse()
        if problem:
            raise GatewayError(problem)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Send all waiting events, and wait until each has its final fate; False if it has not."""
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
        """Send the rest for up to `timeout_s` (`exit_s`); settle or spool what remains."""
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
        return self._buffer.held_bytes == 0 and (self._posts is None or self._posts.is_idle)

    def forked(self) -> None:
        """Close the sender in a child: its threads and its spool are the parent's.

        One that has not begun may begin in the child.
        """
        if self._posts is None:
            return
        self._is_closed = True
        _OPEN.discard(self)
        self._buffer = Buffer(batch_count_max=1, batch_bytes_max=1, linger_s=0, bytes_max=1)
        self._buffer.close()
        if self._posts is not None:
            self._posts.abandon()


# Strongly: an event must be sent even if the caller drops the sender.
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
