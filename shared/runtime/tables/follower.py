"""Follows all tables, and writes this machine's copies of them: one process for all readers.

It continues at each copy's position. It rebuilds a copy from the log if the copy is damaged, if its
topic was deleted and created again, if the copy is ahead of its log, or if it was offline long
enough to miss deletions. After a crash of the machine it rebuilds all copies. The process that
starts this one ends it (`keeper.py`).
"""

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path

import msgspec
import structlog

from shared.config.table import Table
from shared.event.record import KafkaPartition, RecordIn
from shared.event.table_row import names_row
from shared.event.topics import TOMBSTONES_KEPT_MS
from shared.runtime.clock import now_ms
from shared.runtime.files.one_owner import own_folder
from shared.runtime.kafka.config_topic import ConfigFeed
from shared.runtime.kafka.log_client import LogClient
from shared.runtime.kafka.lookup.topic_ids import topic_ids
from shared.runtime.kafka.reader import Follow, KafkaReader, open_reader
from shared.runtime.logs import configure_logs
from shared.runtime.setup_error import OperatorError
from shared.runtime.tables.copy import Change, DamagedError, Extent, FullError, WrittenCopy
from shared.runtime.tables.folders import DAMAGED, FULL, LOCK, HeardFile, copy_folder

log = structlog.get_logger()

# A record is in the copies, with their new freshness, at most this long after its write.
_POLL_S = 0.1
# The records to read at once: some milliseconds of work for each table.
_RECORDS_MAX = 5_000
_HOUSEKEEPING_S = 1.0
# The maximum number of rows of each table that expire at once.
_EXPIRED_MAX = 2_000
# A full table is tried again after this time, as its limit may have been raised.
_FULL_S = 10.0
# The pause before another request for a topic that Kafka does not know yet.
_UNTOLD_S = 1.0
_PAUSE_S, _PAUSE_S_MAX = 0.5, 5.0
_read_any = msgspec.json.Decoder(msgspec.Raw).decode
_BOOT = "boot"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(slots=True)
class _FollowedTable:
    """A table whose copy we write."""

    table: Table
    folder: Path
    copy: WrittenCopy
    heard: HeardFile
    position: int
    is_whole: bool
    # Whether a file tells readers that the copy has stopped because it is full.
    is_told_full: bool
    full_until_s: float = 0.0

    @property
    def where(self) -> KafkaPartition:
        return KafkaPartition(self.table.topic, 0)

    def stand_still(self) -> None:
        """Stop because the copy is full; a file tells readers why."""
        self.full_until_s = time.monotonic() + _FULL_S
        self.is_told_full = True
        (self.folder / FULL).touch()

    def has_all(self, at_ms: int) -> None:
        """Note that the copy was complete at a time."""
        if not self.is_whole:
            self.copy.be_whole()
            self.is_whole = True
        if self.is_told_full:
            self.is_told_full = False
            (self.folder / FULL).unlink(missing_ok=True)
        self.heard.at_ms = max(self.heard.at_ms, at_ms)

    def close(self) -> None:
        self.copy.close()
        self.heard.close()


class TableFollower:
    """Writes copies of all configured tables into a folder."""

    def __init__(self, folder: Path, bootstrap_servers: str) -> None:
        self._folder = folder
        self._bootstrap_servers = bootstrap_servers
        self._followed: dict[str, _FollowedTable] = {}
        self._seen: list[Table] | None = None
        # When to look again for tables whose topic Kafka did not know.
        self._assigned_until_s = inf

    async def run(self, config: ConfigFeed, stop: asyncio.Event) -> None:
        """Follow until `stop` is set; restart after errors."""
        self._check_boot()
        pause_s = _PAUSE_S
        try:
            while not stop.is_set():
                try:
                    async with open_reader(self._bootstrap_servers) as reader:
                        await self._follow(reader, config, stop)
                    pause_s = _PAUSE_S
                except Exception as error:  # noqa: BLE001 - after any error we must follow again
                    log.warning("tables.cut_off", error=repr(error), again_in_s=pause_s)
                    with suppress(TimeoutError):
                        await asyncio.wait_for(stop.wait(), pause_s)
                    pause_s = min(2 * pause_s, _PAUSE_S_MAX)
        finally:
            self._leave()

    async def _follow(self, reader: KafkaReader, config: ConfigFeed, stop: asyncio.Event) -> None:
        self._seen = None
        follow: Follow | None = None
        kept_s = 0.0
        while not stop.is_set():
            if self._seen != (tables := config.configuration.followed_tables) or self._stale():
                self._seen = tables
                follow = await self._assigned(reader, tables)
            if follow is None:
                await asyncio.sleep(_POLL_S)
                continue
            records = await follow.read(wait_s=_POLL_S, records_max=_RECORDS_MAX)
            self._take(records)
            await self._hear(follow)
            if time.monotonic() - kept_s >= _HOUSEKEEPING_S:
                kept_s = time.monotonic()
                self._keep_house()

    def _stale(self) -> bool:
        """Return whether a copy must be opened, for the first time or again."""
        now_s = time.monotonic()
        is_full = any(0 < each.full_until_s < now_s for each in self._followed.values())
        return is_full or now_s > self._assigned_until_s

    async def _assigned(self, reader: KafkaReader, tables: Collection[Table]) -> Follow | None:
        """Open copies of new tables, and close old ones; follow all from their positions."""
        for topic, each in list(self._followed.items()):
            if each.table not in tables or each.full_until_s:
                self._close(topic)
        self._remove_others(tables)
        spans = await reader.spans([table.topic for table in tables])
        there = {where.topic: span for where, span in spans.items() if not where.partition}
        new = [
            wanted
            for wanted in tables
            if wanted.topic in there and wanted.topic not in self._followed
        ]
        ids = await self._topic_ids([table.topic for table in new])
        for table in new:
            if (topic_id := ids.get(table.topic)) is not None:
                self._followed[table.topic] = self._opened(table, topic_id, *there[table.topic])
        # A broker may not know a topic yet: other tables must not wait for that.
        self._assigned_until_s = inf if len(ids) == len(new) else time.monotonic() + _UNTOLD_S
        ours = [each for each in self._followed.values() if each.where in spans]
        if not ours:
            return None
        return reader.follow({each.where: each.position for each in ours})

    async def _topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        if not topics:
            return {}
        async with LogClient(self._bootstrap_servers) as client:
            return await topic_ids(client, topics)

    def _opened(self, table: Table, topic_id: str, first: int, end: int) -> _FollowedTable:
        folder = copy_folder(self._folder, table)
        if (folder / DAMAGED).exists():
            shutil.rmtree(folder)
        try:
            return self._open(table, topic_id, folder, first, end)
        except (DamagedError, OSError, ValueError) as error:
            log.warning("tables.made_anew", table=table.name, why=str(error))
            shutil.rmtree(folder, ignore_errors=True)
            return self._open(table, topic_id, folder, first, end)

    @staticmethod
    def _open(table: Table, topic_id: str, folder: Path, first: int, end: int) -> _FollowedTable:
        copy = WrittenCopy(folder, bytes_max=table.bytes_max, topic_id=topic_id)
        try:
            extent, heard = copy.extent(), HeardFile(folder, is_writer=True)
            _check_fresh(extent, end, was_away_ms=now_ms() - heard.at_ms)
        except BaseException:
            copy.close()
            raise
        position = max(extent.offset, first)
        is_full = (folder / FULL).exists()
        return _FollowedTable(table, folder, copy, heard, position, extent.is_whole, is_full)

    def _take(self, records: Sequence[RecordIn]) -> None:
        by_topic: dict[str, list[RecordIn]] = {}
        for record in records:
            by_topic.setdefault(record.origin.topic, []).append(record)
        for topic, theirs in by_topic.items():
            if (each := self._followed.get(topic)) is not None and not each.full_until_s:
                self._enter(each, theirs)

    def _enter(self, each: _FollowedTable, records: Sequence[RecordIn]) -> None:
        if records[0].origin.offset < each.position:
            # This is another log than before.
            self._make_anew(each, "its log has started again")
            return
        changes = [
            Change(record.key or b"", record.value, record.origin.offset, record.timestamp_ms)
            for record in records
            if record.key and _is_row(record.key, record.value)
        ]
        position = records[-1].origin.offset + 1
        try:
            each.copy.take(changes, position)
        except FullError:
            log.warning("tables.full", table=each.table.name, bytes_max=each.table.bytes_max)
            each.stand_still()
        except DamagedError as error:
            self._make_anew(each, str(error))
        else:
            each.position = position

    async def _hear(self, follow: Follow) -> None:
        """Note which copies are known to be complete, and at what time."""
        for each in list(self._followed.values()):
            if each.full_until_s:
                continue
            at_ms = await follow.at_end_ms(each.where)
            if at_ms is not None:
                each.has_all(at_ms)

    def _keep_house(self) -> None:
        for each in list(self._followed.values()):
            try:
                each.copy.free_dead_readers()
                if each.table.retention_ms is not None:
                    each.copy.expire(now_ms() - each.table.retention_ms, limit=_EXPIRED_MAX)
            except FullError:
                if not each.full_until_s:
                    each.stand_still()
            except DamagedError as error:
                self._make_anew(each, str(error))
                continue
            if (each.folder / DAMAGED).exists():
                self._make_anew(each, "a reader cannot read it")

    def _make_anew(self, each: _FollowedTable, why: str) -> None:
        log.warning("tables.made_anew", table=each.table.name, why=why)
        self._close(each.table.topic)
        shutil.rmtree(each.folder, ignore_errors=True)
        self._seen = None

    def _remove_others(self, tables: Collection[Table]) -> None:
        """Remove the copies of tables that no longer exist."""
        ours = {copy_folder(self._folder, table).name for table in tables} | {LOCK}
        for folder in self._folder.iterdir():
            if folder.is_dir() and folder.name not in ours:
                log.info("tables.copy_removed", folder=folder.name)
                shutil.rmtree(folder, ignore_errors=True)

    def _close(self, topic: str) -> None:
        self._followed.pop(topic).close()

    def _check_boot(self) -> None:
        """Remove all copies after a crash of the machine: parts of them may not be on the disk."""
        note, boot = self._folder / _BOOT, _boot_id()
        if (note.read_text() if note.exists() else "") not in {boot, "left in order"}:
            self._remove_others([])
        note.write_text(boot)

    def _leave(self) -> None:
        """Stop normally, with everything flushed to the disk."""
        with suppress(DamagedError, FullError):
            for each in self._followed.values():
                each.copy.bring_to_disk()
            (self._folder / _BOOT).write_text("left in order")
        for topic in list(self._followed):
            self._close(topic)


def _is_row(key: bytes, value: bytes) -> bool:
    """Return whether a record is a valid row; other writers may write anything."""
    try:
        is_object = not value or (value.lstrip()[:1] == b"{" and _read_any(value) is not None)
    except (msgspec.DecodeError, RecursionError):
        return False
    return is_object and names_row(key)


def _check_fresh(extent: Extent, end: int, *, was_away_ms: int) -> None:
    """Raise DamagedError if a copy cannot be continued."""
    if extent.offset > end:
        raise DamagedError(f"it goes up to {extent.offset}, but the log ends at {end}")
    if extent.is_whole and was_away_ms > TOMBSTONES_KEPT_MS // 2:
        raise DamagedError("it was offline for too long to have seen all deletions")


def _boot_id() -> str:
    """Return an id of the machine's current boot."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return str(round(time.time() - time.monotonic(), -1))


async def _run(folder: Path, bootstrap_servers: str, whose: int) -> None:
    stop = asyncio.Event()
    config = ConfigFeed(bootstrap_servers)
    await config.start()
    try:
        watching = asyncio.create_task(_stop_after(whose, stop))
        await TableFollower(folder, bootstrap_servers).run(config, stop)
        watching.cancel()
    finally:
        await config.stop()


async def _stop_after(whose: int, stop: asyncio.Event) -> None:
    """Set `stop` when the parent has ended: nobody else would end the follower."""
    while _is_there(whose):  # noqa: ASYNC110 - there is no event for a process's end
        await asyncio.sleep(_HOUSEKEEPING_S / 2)
    stop.set()


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


def main(arguments: Sequence[str]) -> None:
    """FOLDER KAFKA PROCESS: follow until the process ends, if nobody else follows."""
    folder, bootstrap_servers, whose = Path(arguments[0]), arguments[1], int(arguments[2])
    configure_logs(service="tables", level="warning")
    # An unusable folder ends this with a traceback; another follower, or a Kafka, in silence.
    (folder / LOCK).mkdir(parents=True, exist_ok=True)
    with suppress(OperatorError, KeyboardInterrupt), own_folder(folder / LOCK, what="follower"):
        asyncio.run(_run(folder, bootstrap_servers, whose))


if __name__ == "__main__":
    main(sys.argv[1:])
