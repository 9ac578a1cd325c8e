"""Answers the page of dead letters from Kafka: looks through them, counts, and sends again."""

import asyncio
import heapq
import time
import uuid
from collections.abc import Iterable

import structlog

from observe.console.pages.dead_page import ROWS_MAX, DeadPageQuery, LetterRow, Letters
from shared.event.envelope import Malformed
from shared.event.topics import stream_and_name
from shared.retry.dead_letter import DeadLetterFilter, Letter, Place
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka.dead_letters import open_dead_letters, redrive

log = structlog.get_logger()

# What a person waits for a page; the rest is said to be missing.
_LOOK_S_MAX = 8.0
# As `hifi dead redrive` by default: a destination that has just come back is not run over.
RATE_PER_S = 500.0
# A page answers within this; what is left is sent by asking again.
_REDRIVE_S_MAX = 25.0


class KafkaDeadDesk:
    """The desk that the console runs with; one look at a time, as each reads what it can."""

    def __init__(self, bootstrap_servers: str, *, schedule: RetrySchedule) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._schedule = schedule
        self._one = asyncio.Lock()

    async def look(self, wanted: DeadPageQuery, *, streams: frozenset[str]) -> Letters:
        """Count all that match, and keep the newest."""
        filters = _filters(wanted)
        newest: list[tuple[int, Place, Letter]] = []
        matching = redrivable = 0
        is_whole = True
        async with self._one, open_dead_letters(self._bootstrap_servers) as letters:
            marked = await letters.redriven()
            until_s = time.monotonic() + _LOOK_S_MAX
            async for page in letters.pages(filters):
                for letter in _seen(page.letters, streams):
                    matching += 1
                    redrivable += letter.can_be_redriven and letter.place not in marked
                    entry = (letter.dead_at_ms, letter.place, letter)
                    if len(newest) < ROWS_MAX:
                        heapq.heappush(newest, entry)
                    else:
                        heapq.heappushpop(newest, entry)
                if time.monotonic() > until_s and page.next is not None:
                    is_whole = False
                    break
        rows = [
            _row(letter, is_redriven=place in marked)
            for _, place, letter in sorted(newest, key=lambda entry: entry[:2], reverse=True)
        ]
        return Letters(tuple(rows), matching, redrivable, is_whole)

    async def redrive(self, wanted: DeadPageQuery, *, streams: frozenset[str]) -> int:
        """Stream by stream, as one re-drive is of one stream."""
        redrive_id = uuid.uuid4().hex
        sent = 0
        for stream in sorted(streams):
            if wanted.stream not in {"", stream}:
                continue
            done = await redrive(
                self._bootstrap_servers,
                _filters(wanted, stream=stream),
                redrive_id=redrive_id,
                schedule=self._schedule,
                rate_per_s=RATE_PER_S,
                duration_s_max=_REDRIVE_S_MAX,
            )
            sent += done.count
        return sent


def _filters(wanted: DeadPageQuery, *, stream: str = "") -> DeadLetterFilter:
    return DeadLetterFilter(
        stream=stream or wanted.stream or None,
        destination=wanted.destination or None,
        reason=wanted.reason or None,
        event_id=wanted.event_id or None,
    )


def _seen(letters: Iterable[Letter], streams: frozenset[str]) -> Iterable[Letter]:
    return (letter for letter in letters if letter.stream in streams)


def _row(letter: Letter, *, is_redriven: bool) -> LetterRow:
    status = detail = attempts = ""
    if isinstance(letter.opened, Malformed):
        detail = letter.opened.problem
    else:
        _, history = letter.opened.travel
        status = "" if history.last_status is None else str(history.last_status)
        detail, attempts = history.last_detail, str(history.attempt_count)
    return LetterRow(
        event_id=letter.event_id,
        stream=letter.stream,
        destination=stream_and_name(letter.destination_id)[1],
        reason=letter.reason,
        last_status=status,
        last_detail=detail,
        attempts=attempts,
        dead_at_ms=letter.dead_at_ms,
        is_redriven=is_redriven,
    )
