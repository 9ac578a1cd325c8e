"""Keeps what is known of a destination: in one small file for each, shared by all workers.

Workers are processes, one per Kafka partition that is worked on; those of delivery and those of the
retrier may share a folder. Each looks and writes under the file's lock, for microseconds; a worker
that is killed lets go of it, and one that stands still is passed by. The file is advice, not truth:
without it a destination starts anew. A task asks for leave to send by its `Permits`.
"""

import errno
import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from shared.config.destination import Destination
from shared.event.envelope import History
from shared.flow.batch_size import most
from shared.flow.flow import (
    Blocking,
    Ended,
    Flow,
    SendLimits,
    after_attempt,
    blocked,
    parked,
    retried_locally,
)
from shared.flow.flow_record import (
    PUBLISH_EVERY_MS,
    FlowRecord,
    going_on,
    open_flow_record,
    store_name,
)
from shared.flow.starting import (
    Answer,
    at_its_part,
    is_calm,
    left,
    may_start,
    running,
    started,
)
from shared.retry.attempt import Attempt
from shared.runtime.clock import now_ms

# A page is written as a whole, so that no reader meets half a record.
_PAGE_BYTES = 4096
# Open at once: a worker meets each destination in some task or other.
FILES_MAX = 256
# What so many closed ones held is kept: of a thousand that are met in turn none is ever open.
_SEEN_MAX = 1_024
# A file's lock is needed for microseconds. A process that has had it for so long stands still, and
# the file is left alone for a while.
_LOCK_S_MAX, _PASS_BY_S = 0.5, 10.0
_LOCK_PAUSES_S = (0.00002, 0.005)
# Far more than a record has: a foreign file of any size is not read whole.
_RECORD_BYTES_MAX = 1_048_576


@dataclass(slots=True)
class Held:
    """What is known of a destination while nobody else may change it; it is changed here alone."""

    flow: Flow
    limits: SendLimits
    now_ms: int
    _record: FlowRecord
    _publish_every_ms: int = PUBLISH_EVERY_MS
    # The task that looks has nothing left to send.
    is_last: bool = False

    def ask(self, task: str, *, running_count: int, unasked: int = 0) -> Answer:
        """Whether a task that has so many requests under way may start one more."""
        self.flow, answer = may_start(
            self.flow,
            self.limits,
            task=task,
            running_count=running_count,
            now_ms=self.now_ms,
            unasked=unasked,
        )
        return answer

    @property
    def batch_count_max(self) -> int:
        """How many events go together."""
        return most(self.flow.batch_size, self.limits.to.request_count_max)

    def start(self, *, event_count: int) -> None:
        """A request with these events goes out."""
        self.flow = started(self.flow, self.limits, event_count=event_count, now_ms=self.now_ms)

    def runs(self, task: str, running_count: int) -> None:
        """A task has so many requests under way."""
        self.flow = running(self.flow, task, running_count)

    def enter(self, ended: Ended, *, roll: float) -> None:
        """A request has ended; `roll` is in [0, 1)."""
        self.flow = after_attempt(self.flow, self.limits, ended, now_ms=self.now_ms, roll=roll)

    def retry_locally(self, attempt: Attempt) -> None:
        """A request that failed is repeated in place."""
        self.flow = retried_locally(self.flow, attempt)

    def park(self, parks: Mapping[str, int]) -> None:
        """So many events wait elsewhere, by cause."""
        for cause, event_count in parks.items():
            self.flow = parked(self.flow, cause, event_count)

    def block(self, offset: int, history: History | None) -> None:
        """An event stays in its place, and all behind it; without a history, only for a moment."""
        if history is not None:
            since_ms, until_ms = history.first_attempt_at_ms, history.not_before_ms
            blocking = Blocking(offset, since_ms, until_ms, history.attempt_count)
            self.flow = blocked(self.flow, blocking)

    def leave(self, task: str) -> None:
        """A task has ended."""
        self.flow = left(self.flow, task)

    @property
    def record(self) -> FlowRecord:
        """The flow as it is now, with its state and since when it is in it."""
        if self.flow is not self._record.flow:
            self._record = self._record.with_flow(self.flow, now_ms=self.now_ms)
            self.flow = self._record.flow
        return self._record

    def to_publish(self) -> FlowRecord | None:
        """What others should hear of, if anything: each piece of news is given out once."""
        self.flow = at_its_part(self.flow, self.limits, now_ms=self.now_ms)
        every_ms = self._publish_every_ms
        if not self.record.is_to_publish(now_ms=self.now_ms, every_ms=every_ms):
            return None
        self._record = self.record.published(now_ms=self.now_ms)
        self.flow = self._record.flow
        return self._record


@dataclass(slots=True)
class _File:
    descriptor: int
    # What the file held when this process last saw it: mostly nobody else has written since.
    raw: bytes = b""
    record: FlowRecord | None = None
    # Until then it is not locked: whoever has it has it for too long.
    passed_by_until_s: float = 0.0


@dataclass(slots=True)
class FlowStore:
    """The files of a folder."""

    folder: Path
    # From the state topic, for a machine that has not sent to the destination before.
    published: Mapping[str, FlowRecord] = field(default_factory=dict)
    # How often others hear of a destination that fares as before.
    publish_every_ms: int = PUBLISH_EVERY_MS
    # For the records that it begins.
    _name: str = field(default_factory=lambda: secrets.token_hex(8))
    _files: dict[str, _File] = field(default_factory=dict)
    # Those that were closed.
    _seen: dict[str, _File] = field(default_factory=dict)

    @contextmanager
    def hold(self, limits: SendLimits, *, now_ms: int) -> Iterator[Held]:
        """Look at what is known of a destination, and change it, while nobody else does."""
        file = self._file(limits.to)
        is_ours = _lock(file)
        try:
            published = self.published.get(limits.to.id)
            name = store_name(self._name, now_ms=now_ms)
            known = _read(file) if is_ours else file.record
            record = going_on(known, published, limits, store=name, now_ms=now_ms)
            held = Held(record.flow, limits, now_ms, record, self.publish_every_ms)
            yield held
            if is_ours:
                _write(file, held.record)
            else:
                file.record = held.record
        finally:
            if is_ours:
                fcntl.flock(file.descriptor, fcntl.LOCK_UN)

    def path(self, destination: Destination) -> Path:
        # A name has no dot, so that this one cannot be another destination's.
        return self.folder / f"{destination.stream}.{destination.name}.json"

    def _file(self, destination: Destination) -> _File:
        # The one that was used last is the last.
        file = self._files.pop(destination.id, None)
        if file is None:
            if len(self._files) >= FILES_MAX:
                self._close_oldest()
            descriptor = self._open(self.path(destination))
            if file := self._seen.pop(destination.id, None):
                file.descriptor = descriptor
            else:
                file = _File(descriptor)
        self._files[destination.id] = file
        return file

    def _open(self, path: Path) -> int:
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:
            # Several workers may begin at the same time.
            self.folder.mkdir(parents=True, exist_ok=True)
            return self._open(path)
        except OSError as error:
            if error.errno != errno.EMFILE or not self._files:
                raise
            # Connections may take every descriptor; the task goes on with one of its own.
            self._close_oldest()
            return self._open(path)

    def _close_oldest(self) -> None:
        name = next(iter(self._files))
        file = self._seen[name] = self._files.pop(name)
        os.close(file.descriptor)
        if len(self._seen) > _SEEN_MAX:
            del self._seen[next(iter(self._seen))]


@dataclass(slots=True)
class Calm:
    """What a process need not ask or tell of a destination that was well a moment ago."""

    # So long it counts as well once it was seen to be.
    span_s: float = 0.0
    until_s: float = 0.0
    tell_at_s: float = 0.0
    untold: list[Ended] = field(default_factory=list)
    # Requests of this process that are under way, and those of them that its flow knows nothing of.
    running_count: int = 0
    unasked_count: int = 0

    def start(self, *, is_asked: bool) -> None:
        self.running_count += 1
        self.unasked_count += not is_asked

    def end(self, *, is_asked: bool) -> None:
        self.running_count -= 1
        self.unasked_count -= not is_asked


@dataclass(slots=True)
class Permits:
    """What one task asks of one destination's flow."""

    # A name for the task, by which the flow shares requests out.
    task: str
    store: FlowStore
    limits: SendLimits
    # While a destination is well, its flow is asked and told so often, and not for each request;
    # those of one process share it.
    calm: Calm = field(default_factory=Calm)
    # Told when there is something that others should hear of.
    on_news: Callable[[], None] | None = None
    _has_joined: bool = False
    _news: FlowRecord | None = None

    @contextmanager
    def look(self, *, tells: bool) -> Iterator[Held]:
        """Look at the flow while nobody else changes it; `tells` if something has ended."""
        self._has_joined = True
        with self.store.hold(self.limits, now_ms=now_ms()) as held:
            self._tell(held)
            yield held
            # Asked here, as an event that comes alone would pay for another look at the file.
            # If anything is told, it is what is known in the end.
            had_news = self._news is not None
            self._news = held.to_publish() or (self._news and held.record)
            if held.is_last:
                held.leave(self.task)
                self._has_joined = False
            if self._news is not None and not had_news and self.on_news is not None:
                self.on_news()
            until_s = time.monotonic() + self.calm.span_s
            is_well = is_calm(held.flow, self.limits, now_ms=held.now_ms)
            self.calm.until_s = until_s if is_well else 0.0
            if tells:
                self.calm.tell_at_s = until_s

    @property
    def is_slow(self) -> bool:
        """Whether the destination may be sent to and lets requests wait for longer than others can.

        What would only park need not go anywhere for it.
        """
        with self.store.hold(self.limits, now_ms=now_ms()) as held:
            is_shut = held.flow.breaker.until_ms > held.now_ms or self.limits.to.is_paused
            return held.flow.is_slow and not is_shut

    def may_skip(self, *, tells: bool) -> bool:
        """Whether a request may go without a look, as the destination was well a moment ago."""
        now_s = time.monotonic()
        return now_s < self.calm.until_s and not (tells and now_s >= self.calm.tell_at_s)

    def tell_later(self, delivered: Ended) -> None:
        self.calm.untold.append(delivered)

    def news(self) -> FlowRecord | None:
        """What others should hear of the destination, once; None if there is nothing new."""
        news, self._news = self._news, None
        return news

    def leave(self) -> None:
        """Send no more: this task's share of requests is the others'."""
        if self._has_joined:
            with self.store.hold(self.limits, now_ms=now_ms()) as held:
                self._tell(held)
                held.leave(self.task)

    def _tell(self, held: Held) -> None:
        """What ended since the flow was last told: deliveries, of which none is worth a roll."""
        for delivered in self.calm.untold:
            held.enter(delivered, roll=0.0)
        self.calm.untold.clear()


def _lock(file: _File) -> bool:
    """Whether the file is ours alone; not if a process has stood still while it was that one's.

    Everything else on the loop would wait as well; what this process learns stays in it then.
    """
    now_s = time.monotonic()
    if now_s < file.passed_by_until_s:
        return False
    pause_s, pause_s_max = _LOCK_PAUSES_S
    while True:
        try:
            fcntl.flock(file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > now_s + _LOCK_S_MAX:
                file.passed_by_until_s = time.monotonic() + _PASS_BY_S
                return False
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, pause_s_max)
        else:
            return True


def _read(file: _File) -> FlowRecord | None:
    raw = os.pread(file.descriptor, _RECORD_BYTES_MAX, 0)
    if raw != file.raw:
        file.raw, file.record = raw, open_flow_record(raw)
    return file.record


def _write(file: _File, record: FlowRecord) -> None:
    if record is file.record:
        return
    raw = record.to_json()
    raw = raw.ljust(-(-len(raw) // _PAGE_BYTES) * _PAGE_BYTES)
    os.pwrite(file.descriptor, raw, 0)
    if len(raw) != len(file.raw):
        os.ftruncate(file.descriptor, len(raw))
    file.raw, file.record = raw, record
