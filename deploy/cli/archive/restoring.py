"""Restores archived events into a stream: each once, in order, in its old Kafka partition.

Each transaction holds some events, the restore's position (ADR 0026), and a record of the events
put back so far (ADR 0092). A new restore into the same stream ends any earlier one; a restore that
is started again resumes.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from deploy.cli.archive.put_back import PutBack, nothing_yet
from shared.event.derived import RESTORED
from shared.event.record import KafkaPartition
from shared.event.topics import RESTORES, restore_group, restore_writer, stream_topic
from shared.proof.archived import ArchivedObject, ArchiveId, Laid, by_time, gaps, laid
from shared.proof.intervals import Offsets
from shared.proof.restored import RestoredEvents
from shared.runtime.archive.archived_log import sound_list, sound_rows
from shared.runtime.archive.stores import OpenStore
from shared.runtime.clock import now_ms
from shared.runtime.kafka.clients import AWAY
from shared.runtime.kafka.leases.fenced_positions import FencedPositions, Reach
from shared.runtime.kafka.lookup.restores import read_restores
from shared.runtime.kafka.only_writer import Row, only_writer
from shared.runtime.kafka.reader import open_reader
from shared.runtime.setup_error import SetupError

# Limits of a transaction: enough events to share its cost, few enough for Kafka's 10 s timeout.
_EVENTS, _BYTES = 2_000, 4_194_304
# The client sends one batch per Kafka partition at a time: with aiokafka's default of 16 KB, a
# transaction would take a hundred round trips.
_BATCH_BYTES = 524_288

# A new Kafka takes some seconds to say which broker keeps positions.
_NEW_KAFKA_S, _AGAIN_S = 30.0, 0.2


@dataclass(frozen=True, slots=True)
class Restore:
    """The events to restore, and the stream to put them into."""

    id: str
    archive: ArchiveId
    to_stream: str
    # The span of time in which Kafka stored the events.
    from_ms: int | None
    to_ms: int | None
    rate_per_s: float | None

    def takes(self, time_ms: int) -> bool:
        return (self.from_ms is None or time_ms >= self.from_ms) and (
            self.to_ms is None or time_ms < self.to_ms
        )

    def has_some(self, said: ArchivedObject) -> bool:
        return (self.to_ms is None or said.from_ms < self.to_ms) and (
            self.from_ms is None or said.to_ms >= self.from_ms
        )

    def has_all(self, said: ArchivedObject) -> bool:
        return self.takes(said.from_ms) and self.takes(said.to_ms)


@dataclass(frozen=True, slots=True)
class ArchiveContents:
    """The part of an archive that a restore needs."""

    objects: list[Laid]
    count: int

    @property
    def partitions(self) -> set[int]:
        return {each.archived.partition for each in self.objects}

    @property
    def times_ms(self) -> tuple[int, int]:
        """When Kafka stored the first and the last event of these objects."""
        archived = [each.archived for each in self.objects]
        return min(each.from_ms for each in archived), max(each.to_ms for each in archived)

    @property
    def begins(self) -> dict[int, int]:
        """By Kafka partition: the first offset that the archive covers."""
        return {entry.archived.partition: entry.from_offset for entry in reversed(self.objects)}

    @property
    def gaps(self) -> Mapping[int, Offsets]:
        """The gaps between objects, if the archive was to keep all events; else none."""
        archived = [each.archived for each in self.objects]
        return gaps(archived) if all(each.is_whole for each in archived) else {}


def found(bucket: OpenStore, wanted: Restore) -> ArchiveContents:
    """Count the events to restore; DamagedObjectError if an object has changed."""
    there = sound_list(bucket, wanted.archive, from_ms=wanted.from_ms, to_ms=wanted.to_ms)
    # Objects go in the order of time, so that no partition falls far behind the others.
    objects = [each for each in by_time(laid(there)) if wanted.has_some(each.archived)]
    return ArchiveContents(objects, sum(_count(bucket, each, wanted) for each in objects))


def _count(bucket: OpenStore, each: Laid, wanted: Restore) -> int:
    archived, from_offset = each
    if wanted.has_all(archived) and from_offset == archived.first:
        return archived.count
    return sum(
        event["offset"] >= from_offset and wanted.takes(event["time_ms"])
        for event in sound_rows(bucket, archived)
    )


@dataclass
class Restoring:
    """One restore under way."""

    bootstrap_servers: str
    bucket: OpenStore
    wanted: Restore
    found: ArchiveContents
    done: int = field(default=0, init=False)
    # By Kafka partition: the archived offset of the next event to restore.
    _next: dict[int, int] = field(default_factory=dict, init=False)
    _put_back: PutBack = field(init=False)

    async def run(self) -> AsyncGenerator[int, None]:
        """Yield the number of restored events after each transaction; safe to stop at any time."""
        wanted = self.wanted
        # Each life of a stream has its own offsets, so the position belongs to one life.
        group = restore_group(".".join(filter(None, (wanted.id, wanted.archive.life))))
        topic = stream_topic(wanted.to_stream)
        writer = only_writer(
            self.bootstrap_servers,
            restore_writer(wanted.to_stream),
            compression_type="lz4",
            max_batch_size=_BATCH_BYTES,
        )
        async with writer as write:
            # From now on no other restore can write into this stream.
            known = await self._known(group)
            self._next = {
                where.partition: reach.at for where, reach in known.items() if where.topic == topic
            }
            self._put_back = PutBack(await self._before(topic))
            began_s, sent = time.monotonic(), 0
            chunks = self._chunks(topic)
            while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
                rows, nexts = chunk
                events = len(rows)
                reached = {
                    KafkaPartition(topic, partition): (at, Reach(at, at).word)
                    for partition, at in nexts.items()
                }
                restored = self._put_back.said(now_ms())
                account = (RESTORES, restored.key.encode(), restored.to_json(), ())
                # The record comes first: otherwise its topic takes a separate request to Kafka.
                await write([account, *rows], {group: reached})
                sent += events
                self.done += events
                if wanted.rate_per_s:
                    ahead_s = sent / wanted.rate_per_s - (time.monotonic() - began_s)
                    await asyncio.sleep(max(0.0, ahead_s))
                yield self.done

    async def _known(self, group: str) -> Mapping[KafkaPartition, Reach]:
        """Return the restore's positions; retry while a new Kafka creates its topic for them."""
        positions = FencedPositions(self.bootstrap_servers, group)
        until_s = time.monotonic() + _NEW_KAFKA_S
        try:
            while True:
                try:
                    return await positions.read()
                except AWAY:
                    if time.monotonic() > until_s:
                        raise
                    await asyncio.sleep(_AGAIN_S)
        finally:
            await positions.close()

    async def _before(self, topic: str) -> RestoredEvents:
        """Return the restore's last record; if there is none, one with nothing put back."""
        wanted, at_ms = self.wanted, now_ms()
        async with open_reader(self.bootstrap_servers) as reader:
            if not await reader.ends([RESTORES]):
                raise SetupError(f"This Kafka has no topic {RESTORES}: `hifi topics` creates it.")
            restores, ends = await read_restores(reader), await reader.ends([topic])
        fresh = nothing_yet(wanted.id, wanted.archive, wanted.to_stream, at_ms=at_ms, ends=ends)
        return (restores and restores.get(fresh.key)) or fresh

    def _chunks(self, topic: str) -> Iterator[tuple[list[Row], dict[int, int]]]:
        """Yield rows for a transaction, with each Kafka partition's next offset after them."""
        most = _EVENTS
        if self.wanted.rate_per_s is not None:
            most = max(1, min(_EVENTS, int(self.wanted.rate_per_s)))
        rows: list[Row] = []
        nexts: dict[int, int] = {}
        size = 0
        for partition, event in self._missing():
            row = _row(topic, partition, event, self.wanted.id)
            rows.append(row)
            nexts[partition] = event["offset"] + 1
            size += len(row[1] or b"") + len(row[2] or b"")
            if len(rows) >= most or size >= _BYTES:
                yield rows, nexts
                rows, nexts, size = [], {}, 0
        if rows:
            yield rows, nexts

    def _missing(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the events that are not restored yet; count the others as done."""
        ends: dict[int, int] = {}
        for archived, from_offset in self.found.objects:
            at = self._next.get(archived.partition, 0)
            if ends.get(archived.partition, from_offset) != from_offset:
                self._put_back.leave_out(archived.partition)
            ends[archived.partition] = archived.end
            if (
                at >= archived.end
                and self.wanted.has_all(archived)
                and from_offset == archived.first
            ):
                self.done += archived.count
                continue
            for event in sound_rows(self.bucket, archived):
                if event["offset"] < from_offset:
                    continue
                if not self.wanted.takes(event["time_ms"]):
                    self._put_back.leave_out(archived.partition)
                elif event["offset"] < at:
                    self.done += 1
                else:
                    self._put_back.add(archived.partition, event, is_of_whole=archived.is_whole)
                    yield archived.partition, event


def _row(topic: str, partition: int, event: dict[str, Any], restore_id: str) -> Row:
    headers = [(each["key"], each["value"]) for each in event["headers"] or ()]
    label = (RESTORED, restore_id.encode())
    return topic, event["key"], event["value"], (*headers, label), partition


def default_id(wanted: Restore) -> str:
    """Derive the id from the options, so that the same command resumes its restore."""
    named = "/".join(map(str, (wanted.archive, wanted.to_stream, wanted.from_ms, wanted.to_ms)))
    return hashlib.sha256(named.encode()).hexdigest()[:12]
