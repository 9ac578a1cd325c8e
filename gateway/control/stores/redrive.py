"""Reads dead letters from Kafka, counts them, and sends them again.

A redrive sends chunks of letters. Each chunk's waiting records, receipts and marks are one
transaction. A new redrive of a stream ends an earlier one that still runs, so two redrives never
send the same dead letter.
"""

import asyncio
import heapq
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol

from shared.event.record import KafkaPartition
from shared.event.topics import DEAD, OUTCOME_BYTES_MAX, REDRIVEN
from shared.retry.dead_letter import (
    Age,
    DeadLetterFilter,
    Letter,
    Place,
    marked_place,
    open_letter,
    redriven_rows,
)
from shared.retry.schedule import RetrySchedule
from shared.runtime.clock import now_ms
from shared.runtime.kafka.lookup.letter_blocks import BlockReader, LetterBlocks
from shared.runtime.kafka.only_writer import only_writer, rows_of
from shared.runtime.kafka.reader import KafkaReader, open_reader
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.setup_error import KafkaUnavailableError

_PAGE_LETTERS_MAX = 500
# Kafka delivers some 50,000 records in a second (measured with 300 bytes each).
SCAN_MAX = 50_000
# Bytes of all events on a page with more than one. A page is decoded and encoded again, and few
# pages are read at once, so this bounds the gateway's memory for them.
PAGE_BYTES_MAX = 4_000_000
# People wait at most this long for a page; then it ends early, and its counts are incomplete.
_SURVEY_S_MAX = 8.0
# A redrive answers before the 30 s after which clients commonly give up.
REDRIVE_S_MAX = 20.0
# Bits in a piece of marks (4 KiB): small enough that a lone mark takes little memory.
_PIECE_BITS = 32_768
_AGE = attrgetter("age")
# Letters in one transaction, so that many share its cost of some 20 ms (measured).
_CHUNK = 100


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """Some dead letters, and the place to continue from; None at the end."""

    letters: tuple[Letter, ...]
    next: Place | None


@dataclass(slots=True)
class Redriven:
    """The result of a redrive, or of a dry run."""

    # Letters sent again; in a dry run, letters that would be sent again.
    count: int = 0
    # Letters that an earlier redrive has sent again.
    already: int = 0
    # Letters that could not be opened.
    malformed: int = 0
    # The place to continue from if there may be more.
    next: Place | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """A redrive's expected result, the newest letters, and which of them were sent again."""

    counts: Redriven
    newest: tuple[Letter, ...]
    marked: AbstractSet[Place]
    # Letters that would be sent, by stream.
    streams: Mapping[str, int]


class DeadLetters:
    """The dead letters at one moment. Made by `open_dead_letters`."""

    def __init__(
        self,
        reader: KafkaReader,
        spans: dict[KafkaPartition, tuple[int, int]],
        blocks: LetterBlocks,
    ) -> None:
        self._reader = reader
        self._spans = spans
        self._blocks = blocks

    async def pages(
        self,
        wanted: DeadLetterFilter,
        *,
        count_max: int = _PAGE_LETTERS_MAX,
        keeps_values: bool = False,
        until_s: float = math.inf,
    ) -> AsyncIterator[DeadLetterPage]:
        """Yield all wanted letters, page by page, without those that are added meanwhile."""
        after: Place | None = None
        while True:
            page = await self.page(
                wanted,
                after=after,
                count_max=count_max,
                keeps_values=keeps_values,
                until_s=until_s,
            )
            yield page
            if page.next is None:
                return
            after = page.next

    async def page(
        self,
        wanted: DeadLetterFilter,
        *,
        after: Place | None = None,
        count_max: int,
        keeps_values: bool = False,
        until_s: float = math.inf,
    ) -> DeadLetterPage:
        """Return at most `count_max` wanted letters; read at most `SCAN_MAX`, until `until_s`."""
        letters: list[Letter] = []
        looked = kept_bytes = 0
        for partition, span in await self._ranges(wanted, after):
            seen = BlockReader(self._blocks, partition, span[0])
            async for records in self._reader.range({partition: span}):
                for record in records:
                    letter = open_letter(record, keeps_value=keeps_values)
                    seen.see(record.origin.offset, letter.stream)
                    looked += 1
                    if wanted.takes(letter):
                        kept_bytes += len(letter.value)
                        if letters and kept_bytes > PAGE_BYTES_MAX:
                            return DeadLetterPage(tuple(letters), letter.place)
                        letters.append(letter)
                    if (
                        len(letters) == count_max
                        or looked == SCAN_MAX
                        or time.monotonic() > until_s
                    ):
                        after_it = Place(record.origin.partition, record.origin.offset + 1)
                        return DeadLetterPage(tuple(letters), after_it)
            seen.reach(span[1])
        return DeadLetterPage(tuple(letters), None)

    async def catch_up(self, marks: "RedrivenMarks", *, until_s: float) -> None:
        """Read all marks so far; raise KafkaUnavailableError if that takes too long."""
        starts = {partition.partition: start for partition, (start, _) in self._spans.items()}
        await marks.read(self._reader, starts, until_s=until_s)

    async def _ranges(
        self, wanted: DeadLetterFilter, after: Place | None
    ) -> list[tuple[KafkaPartition, tuple[int, int]]]:
        """Return the ranges to read, in order; Kafka finds the offsets of the wanted times."""
        ends = {partition: end for partition, (_, end) in self._spans.items()}
        since, until = {partition: start for partition, (start, _) in self._spans.items()}, ends
        if wanted.from_ms is not None:
            since = ends | await self._reader.offsets_at(dict.fromkeys(ends, wanted.from_ms))
        if wanted.to_ms is not None:
            until = ends | await self._reader.offsets_at(dict.fromkeys(ends, wanted.to_ms))
        ranges = []
        for partition, (start, end) in sorted(self._spans.items()):
            _, number = partition
            if after is not None and number < after.partition:
                continue
            read_on = after.offset if after and number == after.partition else start
            span = max(since[partition], read_on), min(until[partition], end)
            parts = self._blocks.to_read(partition, span, wanted.takes_stream)
            ranges += [(partition, part) for part in parts]
        return ranges


class RedrivenMarks:
    """Knows which dead letters were sent again, from the marks read so far: a bit for each letter.

    They are kept between requests, so a process reads each mark only once. A hundred million
    letters take 12 MB. Marks of letters that Kafka has deleted are dropped.
    """

    def __init__(self) -> None:
        self._pieces: dict[tuple[int, int], bytearray] = {}
        self._read_to: dict[KafkaPartition, int] = {}
        self._turn = asyncio.Lock()

    def __contains__(self, place: Place) -> bool:
        number, bit = divmod(place.offset, _PIECE_BITS)
        piece = self._pieces.get((place.partition, number))
        return piece is not None and bool(piece[bit // 8] >> bit % 8 & 1)

    def add(self, place: Place) -> None:
        number, bit = divmod(place.offset, _PIECE_BITS)
        piece = self._pieces.setdefault((place.partition, number), bytearray(_PIECE_BITS // 8))
        piece[bit // 8] |= 1 << bit % 8

    def among(self, letters: Iterable[Letter]) -> AbstractSet[Place]:
        return {letter.place for letter in letters if letter.place in self}

    async def read(
        self, reader: KafkaReader, letters_from: Mapping[int, int], *, until_s: float
    ) -> None:
        """Read marks up to the current end; after a timeout, the next call continues there."""
        async with self._turn:
            spans = await reader.spans([REDRIVEN])
            if any(end < self._read_to.get(partition, 0) for partition, (_, end) in spans.items()):
                # The topic was deleted and created again.
                self._pieces.clear()
                self._read_to.clear()
            unread = {
                partition: (max(start, self._read_to.get(partition, 0)), end)
                for partition, (start, end) in spans.items()
            }
            async for records in reader.range(unread):
                for record in records:
                    place = marked_place(record.key)
                    if place is not None:
                        self.add(place)
                    topic, partition, offset = record.origin
                    self._read_to[KafkaPartition(topic, partition)] = offset + 1
                if time.monotonic() > until_s:
                    raise KafkaUnavailableError(
                        "Hifi still reads earlier redrives. Ask again: it continues from here."
                    )
            self._read_to |= {partition: end for partition, (_, end) in spans.items()}
            for at in list(self._pieces):
                partition_number, number = at
                if (number + 1) * _PIECE_BITS <= letters_from.get(partition_number, 0):
                    del self._pieces[at]


@asynccontextmanager
async def open_dead_letters(
    bootstrap_servers: str, blocks: LetterBlocks | None = None
) -> AsyncIterator[DeadLetters]:
    """Open the current dead letters; `blocks` are known ranges of each stream's letters."""
    async with topic_admin(bootstrap_servers) as admin:
        if missing := {DEAD, REDRIVEN} - await admin.names():
            raise KafkaUnavailableError(
                f"The Kafka at {bootstrap_servers} has no topic {', '.join(sorted(missing))}:"
                " is it a Kafka of Hifi? `hifi doctor` lists what is missing."
            )
    async with open_reader(bootstrap_servers, fetch_max_bytes=OUTCOME_BYTES_MAX * 8) as reader:
        spans, blocks = await reader.spans([DEAD]), blocks or LetterBlocks()
        blocks.keep(spans)
        yield DeadLetters(reader, spans, blocks)


class DeadLetterStore(Protocol):
    """The store of dead letters; KafkaDeadLetters in a running gateway."""

    async def page(
        self,
        wanted: DeadLetterFilter,
        *,
        after: Place | None,
        count_max: int,
        keeps_values: bool = False,
    ) -> tuple[DeadLetterPage, AbstractSet[Place]]: ...

    async def survey(
        self,
        wanted: DeadLetterFilter,
        *,
        count_max: int | None = None,
        newest_max: int = 0,
        before: Age | None = None,
    ) -> Survey: ...

    async def redrive(
        self, wanted: DeadLetterFilter, *, redrive_id: str, rate_per_s: float, count_max: int | None
    ) -> Redriven: ...


class KafkaDeadLetters:
    """The dead letters of the Kafka that the gateway runs with."""

    def __init__(self, bootstrap_servers: str, *, schedule: RetrySchedule) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._schedule = schedule
        self._marks = RedrivenMarks()
        self._blocks = LetterBlocks()

    async def page(
        self,
        wanted: DeadLetterFilter,
        *,
        after: Place | None,
        count_max: int,
        keeps_values: bool = False,
    ) -> tuple[DeadLetterPage, AbstractSet[Place]]:
        """Return a page of letters, and which of them have been sent again."""
        until_s = time.monotonic() + _SURVEY_S_MAX
        async with open_dead_letters(self._bootstrap_servers, self._blocks) as letters:
            page = await letters.page(
                wanted, after=after, count_max=count_max, keeps_values=keeps_values, until_s=until_s
            )
            await letters.catch_up(self._marks, until_s=until_s + _SURVEY_S_MAX)
            return page, self._marks.among(page.letters)

    async def survey(
        self,
        wanted: DeadLetterFilter,
        *,
        count_max: int | None = None,
        newest_max: int = 0,
        before: Age | None = None,
    ) -> Survey:
        """Count the letters that a redrive would send, and return the newest; change nothing.

        `before` limits the returned letters to older ones, but not the counts.
        """
        until_s = time.monotonic() + _SURVEY_S_MAX
        counts, newest, streams = Redriven(), list[Letter](), Counter[str]()
        async with open_dead_letters(self._bootstrap_servers, self._blocks) as letters:
            await letters.catch_up(self._marks, until_s=until_s)
            async for page in letters.pages(wanted, until_s=until_s):
                for letter in page.letters:
                    if letter.place in self._marks:
                        counts.already += 1
                    elif not letter.can_be_redriven:
                        counts.malformed += 1
                    else:
                        counts.count += 1
                        streams[letter.stream] += 1
                    if counts.count == count_max:
                        return Survey(counts, tuple(newest), self._marks.among(newest), streams)
                older = (each for each in page.letters if before is None or each.age < before)
                newest = heapq.nlargest(newest_max, [*newest, *older], key=_AGE)
                if time.monotonic() > until_s:
                    counts.next = page.next
                    break
        return Survey(counts, tuple(newest), self._marks.among(newest), streams)

    async def redrive(
        self,
        wanted: DeadLetterFilter,
        *,
        redrive_id: str,
        rate_per_s: float,
        count_max: int | None = None,
    ) -> Redriven:
        """Send letters of one stream again, none of them twice; safe to stop at any moment."""
        assert wanted.stream is not None, "a redrive needs a stream"
        # Once this writer has started, an earlier redrive of this stream cannot write any more,
        # so all its marks are stored.
        async with (
            only_writer(
                self._bootstrap_servers,
                f"hifi-redrive-{wanted.stream}",
                max_request_size=OUTCOME_BYTES_MAX,
                compression_type="lz4",
            ) as write,
            open_dead_letters(self._bootstrap_servers, self._blocks) as letters,
        ):
            until_s = time.monotonic() + REDRIVE_S_MAX
            await letters.catch_up(self._marks, until_s=until_s)
            done = Redriven()
            begun_s = time.monotonic()
            # A chunk is written at once, so a low rate needs small chunks.
            chunk_max = max(1, min(_CHUNK, int(rate_per_s)))
            async for page in letters.pages(
                wanted, count_max=chunk_max, keeps_values=True, until_s=until_s
            ):
                # A resend may have sent one of these letters in the meantime.
                await letters.catch_up(self._marks, until_s=until_s + _SURVEY_S_MAX)
                chunk: list[Letter] = []
                for letter in page.letters:
                    if letter.place in self._marks:
                        done.already += 1
                    elif not letter.can_be_redriven:
                        done.malformed += 1
                    elif done.count == count_max:
                        done.next = letter.place
                        break
                    else:
                        done.count += 1
                        chunk.append(letter)
                if chunk:
                    rows = redriven_rows(
                        chunk, schedule=self._schedule, redrive_id=redrive_id, now_ms=now_ms()
                    )
                    await write(rows_of(rows))
                next_s = begun_s + done.count / rate_per_s
                if done.next is not None or max(next_s, time.monotonic()) > until_s:
                    done.next = done.next or page.next
                    break
                await asyncio.sleep(max(next_s - time.monotonic(), 0.0))
        return done
