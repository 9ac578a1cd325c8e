"""Keeps the state of each destination in one small file, shared by all workers.

Workers are processes, one for each Kafka partition that is being processed. Those of delivery and
of the retrier may share a folder. Each reads and writes under the file's lock, for microseconds. A
killed worker releases the lock, and others do not wait for a frozen one. The file is advice, not
truth: without it a destination starts from scratch. A task asks its `Permits` for permission to
send.
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
    EndedRequest,
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
# The maximum number of open files: sooner or later, a worker has a task for every destination.
FILES_MAX = 256
# The contents of this many closed files are kept: if a thousand are used in turn, the next one is
# never open.
_SEEN_MAX = 1_024
# A file's lock is needed for microseconds. A process that has held it for 0.5 s is frozen, and
# others leave the file alone for 10 s.
_LOCK_S_MAX, _PASS_BY_S = 0.5, 10.0
_LOCK_PAUSES_S = (0.00002, 0.005)
# Far more than a record has, so that a large foreign file is not read whole.
_RECORD_BYTES_MAX = 1_048_576


@dataclass(slots=True)
class LockedFlow:
    """A destination's flow while it is locked; only this class changes it."""

    flow: Flow
    limits: SendLimits
    now_ms: int
    _record: FlowRecord
    _publish_every_ms: int = PUBLISH_EVERY_MS
    # Whether the task that looks has nothing left to send.
    is_last: bool = False

    def ask(self, task: str, *, running_count: int, unasked: int = 0) -> Answer:
        """Say whether a task with `running_count` requests under way may start one more."""
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
        """The maximum number of events in one request."""
        return most(self.flow.batch_size, self.limits.to.request_count_max)

    def start(self, *, event_count: int) -> None:
        """Note that a request with this many events is sent."""
        self.flow = started(self.flow, self.limits, event_count=event_count, now_ms=self.now_ms)

    def runs(self, task: str, running_count: int) -> None:
        """Note that a task has `running_count` requests under way."""
        self.flow = running(self.flow, task, running_count)

    def enter(self, ended: EndedRequest, *, roll: float) -> None:
        """Note that a request has ended; `roll` is in [0, 1)."""
        self.flow = after_attempt(self.flow, self.limits, ended, now_ms=self.now_ms, roll=roll)

    def retry_locally(self, attempt: Attempt) -> None:
        """Note that a failed request is repeated in place."""
        self.flow = retried_locally(self.flow, attempt)

    def park(self, parks: Mapping[str, int]) -> None:
        """Count events that wait elsewhere, by cause."""
        for cause, event_count in parks.items():
            self.flow = parked(self.flow, cause, event_count)

    def block(self, offset: int, history: History | None) -> None:
        """Note an event that blocks all behind it; without a history it blocks only briefly."""
        if history is not None:
            since_ms, until_ms = history.first_attempt_at_ms, history.not_before_ms
            blocking = Blocking(offset, since_ms, until_ms, history.attempt_count)
            self.flow = blocked(self.flow, blocking)

    def leave(self, task: str) -> None:
        """Note that a task has ended."""
        self.flow = left(self.flow, task)

    @property
    def record(self) -> FlowRecord:
        """The present flow, with its state and when it entered that state."""
        if self.flow is not self._record.flow:
            self._record = self._record.with_flow(self.flow, now_ms=self.now_ms)
            self.flow = self._record.flow
        return self._record

    def to_publish(self) -> FlowRecord | None:
        """Return the news to publish, if any; each piece of news is returned once."""
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
    # The file's contents when this process last read it: usually nobody else has written since.
    raw: bytes = b""
    record: FlowRecord | None = None
    # Do not try to lock it until then: its holder has had it for too long.
    passed_by_until_s: float = 0.0


@dataclass(slots=True)
class FlowStore:
    """The files of a folder."""

    folder: Path
    # From the state topic, for a machine that has not sent to the destination before.
    published: Mapping[str, FlowRecord] = field(default_factory=dict)
    # How often the unchanged state of a destination is published.
    publish_every_ms: int = PUBLISH_EVERY_MS
    # The store's name in records that it begins.
    _name: str = field(default_factory=lambda: secrets.token_hex(8))
    _files: dict[str, _File] = field(default_factory=dict)
    # Closed files.
    _seen: dict[str, _File] = field(default_factory=dict)

    @contextmanager
    def lock(self, limits: SendLimits, *, now_ms: int) -> Iterator[LockedFlow]:
        """Lock a destination's flow to read and change it."""
        file = self._file(limits.to)
        is_ours = _lock(file)
        try:
            published = self.published.get(limits.to.id)
            name = store_name(self._name, now_ms=now_ms)
            known = _read(file) if is_ours else file.record
            record = going_on(known, published, limits, store=name, now_ms=now_ms)
            locked = LockedFlow(record.flow, limits, now_ms, record, self.publish_every_ms)
            yield locked
            if is_ours:
                _write(file, locked.record)
            else:
                file.record = locked.record
        finally:
            if is_ours:
                fcntl.flock(file.descriptor, fcntl.LOCK_UN)

    def path(self, destination: Destination) -> Path:
        # A name has no dot, so that this one cannot be another destination's.
        return self.folder / f"{destination.stream}.{destination.name}.json"

    def _file(self, destination: Destination) -> _File:
        # The last entry is the one used last.
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
            # Connections may take every descriptor: close one of our own files.
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
    """Lets a process skip looks at the flow of a destination that was well a moment ago."""

    # How long to skip looks after a look has found the destination well.
    span_s: float = 0.0
    until_s: float = 0.0
    tell_at_s: float = 0.0
    untold: list[EndedRequest] = field(default_factory=list)
    # This process's requests under way, and how many of them the flow does not know about.
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
    """One task's access to one destination's flow."""

    # A name for the task, by which the flow divides requests.
    task: str
    store: FlowStore
    limits: SendLimits
    # While a destination is well, its flow is read and written once in `span_s` instead of for each
    # request; the tasks of one process share this object.
    calm: Calm = field(default_factory=Calm)
    # Called when there is news for others.
    on_news: Callable[[], None] | None = None
    _has_joined: bool = False
    _news: FlowRecord | None = None

    @contextmanager
    def look(self, *, tells: bool) -> Iterator[LockedFlow]:
        """Look at the flow while nobody else changes it; `tells` if requests have ended."""
        self._has_joined = True
        with self.store.lock(self.limits, now_ms=now_ms()) as locked:
            self._tell(locked)
            yield locked
            # Asked in this look, because a second one would be too costly for a single event. News,
            # if any, carries the latest state.
            had_news = self._news is not None
            self._news = locked.to_publish() or (self._news and locked.record)
            if locked.is_last:
                locked.leave(self.task)
                self._has_joined = False
            if self._news is not None and not had_news and self.on_news is not None:
                self.on_news()
            until_s = time.monotonic() + self.calm.span_s
            is_well = is_calm(locked.flow, self.limits, now_ms=locked.now_ms)
            self.calm.until_s = until_s if is_well else 0.0
            if tells:
                self.calm.tell_at_s = until_s

    @property
    def is_slow(self) -> bool:
        """Say whether the destination takes requests, but answers too slowly for others to wait.

        Events that would only be parked need not change lanes.
        """
        with self.store.lock(self.limits, now_ms=now_ms()) as locked:
            is_shut = locked.flow.breaker.until_ms > locked.now_ms or self.limits.to.is_paused
            return locked.flow.is_slow and not is_shut

    def may_skip(self, *, tells: bool) -> bool:
        """Say whether a request may skip the look, as the destination was well a moment ago."""
        now_s = time.monotonic()
        return now_s < self.calm.until_s and not (tells and now_s >= self.calm.tell_at_s)

    def tell_later(self, delivered: EndedRequest) -> None:
        self.calm.untold.append(delivered)

    def news(self) -> FlowRecord | None:
        """Return the news about the destination, once; None if there is nothing new."""
        news, self._news = self._news, None
        return news

    def leave(self) -> None:
        """Send no more, and leave this task's share of requests to others."""
        if self._has_joined:
            with self.store.lock(self.limits, now_ms=now_ms()) as locked:
                self._tell(locked)
                locked.leave(self.task)

    def _tell(self, locked: LockedFlow) -> None:
        """Record the deliveries that ended since the last look; they need no random number."""
        for delivered in self.calm.untold:
            locked.enter(delivered, roll=0.0)
        self.calm.untold.clear()


def _lock(file: _File) -> bool:
    """Lock the file; False if a frozen process holds the lock.

    Waiting longer would stall the whole loop; without the lock, this process keeps its news.
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
