"""Fills the index from the gateways' ledger as it is written, and answers lookups.

The ledger has the ids, and is small compared with the log. After a start, reading continues where
the index's files end, or begins a limited number of rows back. Events that no ledger names come
from the audit, which has found them in the log.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import monotonic

import msgspec
import structlog

from observe.index.entries import entries_of, entries_of_ids, hash_of_id, hash_of_key
from observe.index.store import EventIndex
from observe.settings import ObserveSettings
from shared.config.configuration import Configuration
from shared.event.places import Places
from shared.event.record import KafkaPartition
from shared.event.topics import ACKED
from shared.runtime.kafka.lookup.streams_with_id import PlacesOf
from shared.runtime.kafka.reader import KafkaReader, open_reader
from shared.runtime.setup_error import KafkaUnavailableError

log = structlog.get_logger()

# The rows to read at the first start: at most 450 million events, ten minutes of a core.
_ROWS_BACK = 500_000
# Rows to read at once; a row of 900 events takes 0.6 ms, and other tasks run after each.
_ROWS = 20
_POLL_S = 1.0
_PAUSE_S = 5.0
# The index counts as complete if its feed was at the ledger's end within this time.
_LEVEL_S = 5.0
# A row has a megabyte at most.
_FETCH_BYTES = 4_000_000


class IndexFeed:
    """The index of one process, if the settings allow one."""

    def __init__(
        self, settings: ObserveSettings, configuration: Callable[[], Configuration]
    ) -> None:
        self._bootstrap_servers = settings.bootstrap_servers
        self._index: EventIndex | None = None
        if settings.index_bytes_max:
            self._index = EventIndex(
                settings.folder / "index",
                settings.index_bytes_max,
                lambda stream: configuration().tenant_of(stream),
            )

    @property
    def askable(self) -> tuple[PlacesOf, ...]:
        """The lookups of places by id and by key; empty if there is no index."""
        return () if self._index is None else (self.places_by_id, self.places_by_key)

    def places_by_id(self, topic: str, event_id: str) -> Places:
        return self._places(topic, hash_of_id(topic, event_id))

    def places_by_key(self, topic: str, key: str) -> Places:
        return self._places(topic, hash_of_key(topic, key))

    def page(self, asked: Mapping[str, str]) -> bytes:
        """Return the places of an id, or else of an ordering key, as JSON for gateways."""
        topic = asked.get("topic", "")
        by_key = hash_of_key(topic, asked.get("key", ""))
        hashed = hash_of_id(topic, asked["id"]) if "id" in asked else by_key
        return msgspec.json.encode(self._places(topic, hashed))

    def take_logged(self, where: KafkaPartition, first: int, ids: Sequence[str]) -> None:
        """Enter events that no ledger names but the audit has found."""
        if self._index is not None:
            known = [(where.partition, first, first + len(ids))]
            self._index.add(where.topic, entries_of_ids(*where, first, ids), known)

    async def run(self) -> None:
        """Follow the ledger until cancelled, and retry after failures of Kafka and the disk."""
        index = self._index
        if index is None:
            await asyncio.Event().wait()
        while index is not None:
            try:
                async with open_reader(
                    self._bootstrap_servers,
                    fetch_max_wait_ms=round(_POLL_S * 1000),
                    fetch_max_bytes=_FETCH_BYTES,
                ) as reader:
                    await _follow(reader, index)
            except (KafkaUnavailableError, OSError) as error:
                log.warning("index.failed", error=repr(error))
            except Exception:
                # A bug here may make searches find less, but must not end this process's audit.
                log.exception("index.failed")
            else:
                continue
            index.is_behind = True
            index.forget_open()
            await asyncio.sleep(_PAUSE_S)

    def _places(self, topic: str, hashed: bytes) -> Places:
        if self._index is None:
            return Places(is_behind=True)
        is_behind = self._index.is_behind
        return Places(*self._index.look(topic, hashed), is_behind=is_behind)


async def _follow(reader: KafkaReader, index: EventIndex) -> None:
    spans, known = await reader.spans([ACKED]), index.position
    if not spans:
        # The topic of the ledger does not exist yet.
        await asyncio.sleep(_PAUSE_S)
        return
    if any(known.get(where.partition, 0) > end for where, (_, end) in spans.items()):
        log.warning("index.forgotten", reason="the ledger was replaced by another one")
        index.forget()
        known = {}
    back = _ROWS_BACK // max(len(spans), 1)
    at = {
        where: min(max(known.get(where.partition, end - back), first), end)
        for where, (first, end) in spans.items()
    }
    follow, level_s = reader.follow(at), 0.0
    while True:
        records = await follow.read(wait_s=_POLL_S, records_max=_ROWS)
        began_s = monotonic()
        for record in records:
            at[record.origin.log] = record.origin.offset + 1
            try:
                index.add(*entries_of(record.value))
            except (ValueError, TypeError, KeyError, OverflowError) as error:
                log.warning("record.unreadable", topic=ACKED, error=repr(error))
            await asyncio.sleep(0)
        if index.is_full:
            position = {where.partition: offset for where, offset in at.items()}
            await asyncio.to_thread(index.seal, position)
        if len(records) < _ROWS and all([await follow.at_end_ms(where) for where in at]):
            level_s = monotonic()
        index.is_behind = monotonic() - level_s > _LEVEL_S
        if index.is_behind:
            # While reading a long history, leave half of the core to others.
            await asyncio.sleep(monotonic() - began_s)
