"""Claims Idempotency-Keys for requests, over all gateways (ADR 0060).

A claim is a record, and is decided once the gateway has read it back. If Kafka does not store it,
or the gateway cannot read it in time, the answer is 503 before any event is sent.
"""

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

import msgspec
import structlog

from gateway.answers import Answer
from gateway.fleet.idempotency import KeyBook, RequestRow, Verdict, digest_of
from gateway.intake.events import Event
from gateway.problems import Problem
from gateway.publish.publisher import Publisher
from gateway.publish.report import Fate, Report
from gateway.turns import search_turns
from shared.event.record import RecordIn
from shared.event.topics import REQUESTS
from shared.runtime.setup_error import KafkaUnavailableError

log = structlog.get_logger()

# A claim lasts for this many report deadlines: one each to make it, to check the request's events,
# and to send them.
_HOLDS_DEADLINES = 3
# An answer waits at most this long for its record. Without the record, a repeated request is
# refused as "in use" until the claim ends, and then the log is searched for its events.
_ENDED_S = 1.5
# The part of a deadline that a search for the events may take; its wait for a turn may be as long.
_SEARCH_DEADLINES = 0.5
# Pause between attempts to store how a request ended.
_AGAIN_S = 0.5
# Brokers' clocks differ by less than this.
_CLOCK_SLACK_MS = 5_000

# Kafka partition and offset of stored events, by their position among the request's events.
Places = Mapping[int, tuple[int, int]]


class Search(Protocol):
    """Finds events with these ids and values in a topic: event_search.find_stored."""

    async def __call__(
        self, topic: str, wanted: Sequence[tuple[str, bytes]], /, *, since_ms: int
    ) -> Places: ...


@dataclass(slots=True, eq=False)
class KeyClaim:
    """A key that this gateway holds for a request."""

    key: bytes
    row: RequestRow
    # From this time on, the claim could end before its events are stored.
    until_s: float
    # The earliest time of an earlier claim's events in the log; None without an earlier claim.
    since_ms: int | None = None
    # Whether some of this claim's events may already be stored.
    is_sent: bool = False

    def begin_sending(self) -> None:
        """Note that events will be sent; refuse if the claim could end before they are stored."""
        if monotonic() > self.until_s:
            raise _unchecked("it took too long to check the events")
        self.is_sent = True


class Claims:
    """Claims keys and records how their requests ended. `take` needs all records of the topic."""

    def __init__(
        self, publisher: Publisher, *, bytes_max: int, deadline_s: float, search: Search
    ) -> None:
        self._publisher = publisher
        self._deadline_s = deadline_s
        self._search = search
        self._book = KeyBook(bytes_max)
        # Number of a claim -> future of its verdict.
        self._waiting: dict[bytes, asyncio.Future[Verdict]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._search_s = _SEARCH_DEADLINES * deadline_s
        self._search_turns = search_turns(wait_s=self._search_s)

    async def begin(
        self, scope: str, content: Sequence[bytes], *, tenant: str
    ) -> KeyClaim | Answer:
        """Return the key for a request, or the answer to repeat; else raise Problem."""
        key = hashlib.sha256(scope.encode()).digest()[:16]
        holds_s = _HOLDS_DEADLINES * self._deadline_s
        row = RequestRow(os.urandom(8), tenant, digest_of(content), holds_ms=round(holds_s * 1000))
        claim = KeyClaim(key, row, until_s=monotonic() + holds_s - self._deadline_s)
        verdict = self._book.known(key, row)
        if verdict is None:
            verdict = await self._verdict(claim)
        if isinstance(verdict, Problem):
            raise verdict
        if isinstance(verdict, RequestRow):
            return verdict.answer
        claim.since_ms = verdict.since_ms
        return claim

    async def end(self, claim: KeyClaim, answer: Answer | None) -> None:
        """Record how the request ended; `answer` is None if it was aborted."""
        row = claim.row.end(answer, is_sent=claim.is_sent)
        task = self._spawn(self._settle(claim, row))
        await asyncio.wait({task}, timeout=_ENDED_S)

    async def release(self, claim: KeyClaim) -> None:
        """Free the key for the next request, without keeping an answer."""
        free = msgspec.structs.replace(claim.row, ended="free")
        await asyncio.wait({self._spawn(self._settle(claim, free))}, timeout=_ENDED_S)

    async def publish(
        self, claim: KeyClaim, topic: str, events: Sequence[Event]
    ) -> Sequence[Report]:
        """Store the events that no earlier request with this key has stored."""
        earlier = await self._stored(claim, topic, events) if claim.since_ms is not None else {}
        claim.begin_sending()
        if not earlier:
            return await self._publisher.publish(topic, events)
        left = [place for place in range(len(events)) if place not in earlier]
        reports = [
            Report(Fate.STORED, [place], partition, offset, is_earlier=True)
            for place, (partition, offset) in earlier.items()
        ]
        if left:
            for report in await self._publisher.publish(topic, [events[n] for n in left]):
                places = [left[position] for position in report.positions]
                reports.append(msgspec.structs.replace(report, positions=places))
        return reports

    def take(self, records: Sequence[RecordIn]) -> None:
        """Process the next records of the topic."""
        for record in records:
            try:
                row, verdict = self._book.take(record.key or b"", record.value, record.timestamp_ms)
            except ValueError as error:
                log.warning("requests.record_refused", origin=record.origin, error=str(error))
                continue
            waiting = self._waiting.get(row.claim)
            if waiting is not None and verdict is not None and not waiting.done():
                waiting.set_result(verdict)

    async def _stored(self, claim: KeyClaim, topic: str, events: Sequence[Event]) -> Places:
        """Return where an earlier claim stored events; nothing if the log is not read in time."""
        assert claim.since_ms is not None, "there was an earlier claim"
        wanted = [(event.id, event.value) for event in events]
        since_ms = claim.since_ms - _CLOCK_SLACK_MS
        async with self._search_turns.of(claim.row.tenant):
            try:
                async with asyncio.timeout(self._search_s):
                    return await self._search(topic, wanted, since_ms=since_ms)
            except (TimeoutError, KafkaUnavailableError) as error:
                # All events are sent again, with the same ids.
                log.warning("requests.not_searched", topic=topic, error=repr(error))
                return {}

    async def _verdict(self, claim: KeyClaim) -> Verdict:
        number = claim.row.claim
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        verdict: Verdict | None = None
        try:
            async with asyncio.timeout(self._deadline_s):
                reason = await self._write(claim.key, claim.row)
                if reason is not None:
                    raise _unchecked(reason)
                verdict = await waiting
        except TimeoutError as error:
            raise _unchecked("Kafka did not return the claim in time") from error
        finally:
            del self._waiting[number]
            if verdict is None:
                # Kafka may have stored the claim nevertheless, and it would block the key.
                free = msgspec.structs.replace(claim.row, ended="free")
                self._spawn(self._write(claim.key, free))
        return verdict

    async def _settle(self, claim: KeyClaim, row: RequestRow) -> None:
        """Store how the request ended; storing it twice is harmless. Stop when the claim ends."""
        while True:
            is_stored = await self._write(claim.key, row) is None
            if is_stored or monotonic() > claim.until_s:
                return
            await asyncio.sleep(_AGAIN_S)

    async def _write(self, key: bytes, row: RequestRow) -> str | None:
        """Store a row; return the reason if that failed."""
        event = Event.of(id="", key=key, value=row.to_bytes(), headers=())
        report = (await self._publisher.publish(REQUESTS, [event]))[0]
        return None if report.fate is Fate.STORED else report.reason

    def _spawn(self, work: Awaitable[object]) -> asyncio.Task[None]:
        async def done() -> None:
            await work

        task = asyncio.create_task(done())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _unchecked(reason: str) -> Problem:
    return Problem(
        "not_stored",
        "Nothing of this request was stored, because the gateway cannot find out now whether its"
        f" Idempotency-Key was used before ({reason}). Send it again.",
        headers=((b"retry-after", b"1"),),
    )
