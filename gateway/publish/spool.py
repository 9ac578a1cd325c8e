"""Keeps events that Kafka cannot take on a local disk, when their sender agreed to that.

202 is a smaller promise than 200: the event is on this machine's disk, and on no other. It is given
only after fsync, and only for what Kafka certainly does not have. When Kafka is back the events are
sent, with the ids they had: at least once, after those that came meanwhile.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time

import structlog

from gateway.intake.events import Event
from gateway.publish.ledger import AckLedger, Request
from gateway.publish.publisher import Publisher
from gateway.publish.report import Fate, Report
from gateway.publish.spool_file import SUFFIX, InDoubtError, Spooled, SpoolFile, frame
from shared.metric_names import (
    GATEWAY_SPOOL_SET_ASIDE_EVENTS,
    GATEWAY_SPOOLED_AGE_SECONDS,
    GATEWAY_SPOOLED_BYTES,
    GATEWAY_SPOOLED_EVENTS,
)
from shared.runtime.clock import now_ms
from shared.runtime.metrics import Metrics
from shared.runtime.setup_error import SetupError

log = structlog.get_logger()

# How soon after Kafka is back it gets what was spooled.
_LOOK_S = 0.5
# A file that Kafka did not take all of, or that nobody could read, is tried again ever more seldom.
_AGAIN_S_MAX = 30.0
# What is sent side by side: enough to fill Kafka's batches, and little enough to hold beside what
# the gateway has in flight. A request that is larger goes alone.
_TOGETHER_BYTES = 4_000_000
# A topic that Kafka does not know for so long, while it takes others, was deleted.
_GONE_S = 600.0


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why something is not on the disk, or why nobody knows whether it is."""

    why: str
    may_be_there: bool = False


@dataclass(slots=True, eq=False)
class Spool:
    """The spool of one process. Several may share a folder: each has files of its own in it."""

    folder: Path
    bytes_max: int
    publisher: Publisher
    ledger: AckLedger | None = None
    _filling: SpoolFile | None = field(default=None, init=False)
    # To be sent: files that we have filled, and those of processes that are gone.
    _full: list[SpoolFile] = field(default_factory=list, init=False)
    _waiting: list[tuple[bytes, int, asyncio.Future[_Refusal | None]]] = field(
        default_factory=list, init=False
    )
    _writer: asyncio.Task[None] | None = field(default=None, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _folder_bytes: int = field(default=0, init=False)
    # Topics that Kafka does not know, and since when.
    _unknown_since_s: dict[str, float] = field(default_factory=dict, init=False)
    _count_set_aside: Callable[[int], None] = field(default=lambda _: None, init=False)

    def start(self) -> None:
        """Find what an earlier process has left, or say in one sentence why there is no spool."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._look()
        except OSError as error:
            raise SetupError(
                f"HIFI_GATEWAY_SPOOL is {self.folder}, where nothing can be kept"
                f" ({error.strerror}): name a folder that the gateway may write to."
            ) from error

    def measure(self, metrics: Metrics) -> None:
        files = self._files
        self._count_set_aside = metrics.counter(GATEWAY_SPOOL_SET_ASIDE_EVENTS).inc
        metrics.gauge(GATEWAY_SPOOLED_BYTES).set_function(
            lambda: sum(file.byte_count for file in files())
        )
        metrics.gauge(GATEWAY_SPOOLED_EVENTS).set_function(
            lambda: sum(file.event_count for file in files())
        )
        metrics.gauge(GATEWAY_SPOOLED_AGE_SECONDS).set_function(
            lambda: max((time() - file.made_at_s for file in files()), default=0.0)
        )

    @property
    def has_room(self) -> bool:
        return self._folder_bytes < self.bytes_max

    async def keep(
        self,
        topic: str,
        events: Sequence[Event],
        reports: Sequence[Report],
        request: Request,
    ) -> list[Report]:
        """Put on disk what Kafka certainly does not have; the reports as they are then."""
        positions = [p for r in reports if r.fate is Fate.NOT_STORED for p in r.positions]
        if not positions:
            return list(reports)
        refusal = await self._put(topic, [events[position] for position in positions], request)
        others = [report for report in reports if report.fate is not Fate.NOT_STORED]
        if refusal is None:
            return [*others, Report(Fate.SPOOLED, positions, reason="on this gateway's disk only")]
        log.warning("spool.refused", error=refusal.why, in_doubt=refusal.may_be_there)
        if refusal.may_be_there:
            return [*others, Report(Fate.UNKNOWN, positions, reason=refusal.why)]
        return list(reports)

    async def run(self) -> None:
        """Send what is spooled whenever Kafka takes it, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            if self.publisher.problem is None:
                try:
                    await self._send_all()
                except OSError as error:
                    # The disk is in trouble; what Kafka takes need not wait for it.
                    log.warning("spool.not_read", error=str(error))
                except Exception:
                    # A fault of ours; what was spooled must not wait for our next start.
                    log.exception("spool.failed")

    async def _send_all(self) -> None:
        async with self._lock:
            if self._filling is not None:
                self._full.append(self._filling)
                self._filling = None
        await asyncio.to_thread(self._look)
        for file in list(self._full):
            if file.due_at_s <= monotonic():
                await self._look_after(file)

    async def _look_after(self, file: SpoolFile) -> None:
        """Send what is in a file; its troubles are its own."""
        try:
            if await self._drain(file):
                file.remove()
                self._full.remove(file)
                return
        except Exception:
            log.exception("spool.file_failed", path=str(file.path))
        file.wait_s = min(max(2 * file.wait_s, _LOOK_S), _AGAIN_S_MAX)
        file.due_at_s = monotonic() + file.wait_s

    def stop(self) -> None:
        """Let go of the files: they stay for whoever comes next."""
        for file in self._files():
            file.close()
        self._full.clear()
        self._filling = None

    def _files(self) -> list[SpoolFile]:
        # Whoever reads the metrics looks from another thread.
        full, filling = self._full, self._filling
        return full if filling is None else [*full, filling]

    def _look(self) -> None:
        """Take over what nobody owns, and see how much there is of all processes."""
        ours = {file.path for file in self._files()}
        folder_bytes = 0
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            # Another process may have sent and removed it meanwhile.
            with suppress(FileNotFoundError):
                file = None if path in ours else SpoolFile.found(path)
                if file is not None:
                    log.warning("spool.found", path=str(path), events=file.event_count)
                    self._full.append(file)
                folder_bytes += path.stat().st_size
        self._folder_bytes = folder_bytes

    async def _put(self, topic: str, events: Sequence[Event], request: Request) -> _Refusal | None:
        """None once they are on the disk; or why they are not."""
        packed = frame(topic, events, request)
        if self._folder_bytes + len(packed) > self.bytes_max:
            return _Refusal(f"{self._folder_bytes} bytes of {self.bytes_max} are spooled")
        self._folder_bytes += len(packed)
        written: asyncio.Future[_Refusal | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((packed, len(events), written))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_all())
        return await written

    async def _write_all(self) -> None:
        """Write what waits, all of it with one fsync, until nothing waits."""
        while self._waiting:
            async with self._lock:
                taken, self._waiting = self._waiting, []
                frames = [packed for packed, _, _ in taken]
                count = sum(events for _, events, _ in taken)
                refusal = await asyncio.to_thread(self._append, frames, count)
            for _, _, written in taken:
                if not written.done():
                    written.set_result(refusal)
        self._writer = None

    def _append(self, frames: Sequence[bytes], event_count: int) -> _Refusal | None:
        """None when the disk has them; or what it says."""
        try:
            if self._filling is None:
                self._filling = SpoolFile.made(self.folder)
            self._filling.append(frames, event_count)
        except OSError as error:
            # Another file may have more luck, and this one is sent as it is.
            if self._filling is not None:
                self._full.append(self._filling)
                self._filling = None
            may_be_there = isinstance(error, InDoubtError)
            return _Refusal(f"the disk did not take it: {error}", may_be_there=may_be_there)
        return None

    async def _drain(self, file: SpoolFile) -> bool:
        """Send what is in a file; whether nothing is left to do for it."""
        together: list[Spooled] = []
        byte_count, is_done = 0, True
        for request in file.requests():
            if together and byte_count + request.byte_count > _TOGETHER_BYTES:
                is_done = await self._send(file, together) and is_done
                together, byte_count = [], 0
            together.append(request)
            byte_count += request.byte_count
        return await self._send(file, together) and is_done

    async def _send(self, file: SpoolFile, requests: Sequence[Spooled]) -> bool:
        answers = await asyncio.gather(
            *(self.publisher.publish(each.topic, each.events) for each in requests)
        )
        for each, reports in zip(requests, answers, strict=True):
            if all(report.fate is Fate.STORED for report in reports):
                self._finish(file, each)
                # From here on the request can be followed as any other. Only now: what is sent
                # again as a whole would be entered twice.
                if self.ledger is not None and each.request is not None:
                    self.ledger.note(
                        each.topic, each.events, reports, request=each.request, now_ms=now_ms()
                    )
            if not any(report.is_topic_unknown for report in reports):
                self._unknown_since_s.pop(each.topic, None)
            elif self._is_gone(each.topic):
                path = await asyncio.to_thread(file.set_aside, each)
                self._finish(file, each)
                self._count_set_aside(len(each.events))
                log.error(
                    "spool.set_aside",
                    path=str(path),
                    topic=each.topic,
                    events=len(each.events),
                    request=each.request and each.request.id,
                    reason="Kafka has no such topic; renamed to .spool, the file is sent again",
                )
        left = [each.at for each in requests if each.at not in file.done]
        if left:
            log.warning("spool.not_taken", path=str(file.path), requests=len(left))
        return not left

    def _is_gone(self, topic: str) -> bool:
        return monotonic() - self._unknown_since_s.setdefault(topic, monotonic()) >= _GONE_S

    def _finish(self, file: SpoolFile, request: Spooled) -> None:
        file.done.add(request.at)
        file.event_count -= len(request.events)
