"""Hands the events of a pipeline to its database, within Spark's tasks.

A task has one connection, to the table of its Kafka partition. Hosts are judged here as for
destinations: each address of a host is checked, and the connection goes to a checked address.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from pipelines.databases.database import OpenTable, PositionOf, Server, Target
from pipelines.databases.postgres import PostgresTable
from pipelines.databases.refusals import AwayError, DatabaseError, SettingError
from pipelines.databases.rows import EventRows
from pipelines.databases.sqlite import SqliteTable
from pipelines.databases.sync import TablePosition
from pipelines.jobs.sink import RefusedEvent, Said, SinkAwayError
from shared.config.addresses import Address, HostError, host_class, may_send, read_host
from shared.config.outside import database as config
from shared.event.record import KafkaPartition, Ranges, RecordOut
from shared.runtime.resolver import NoSuchHostError, Resolver, ResolverDownError, ascii_host
from shared.runtime.secret_box import SecretUnavailableError
from shared.runtime.settings import SecretSettings

REFUSED_BY_DATABASE = "refused_by_database"
# The maximum number of tasks at once, each with a connection: a waiting task occupies its place in
# Spark.
_TASKS = 2
_RESOLVE_S = 5.0
# The maximum number of addresses of one host to try; two would be enough.
_ADDRESSES_MAX = 4

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DatabaseSink:
    """A table, or one for each Kafka partition, with the columns to write."""

    # The name of the pipeline and its generation, which own the positions.
    name: str
    # The owner for whom the password was sealed.
    owner: str
    table: config.DatabaseTable
    columns: tuple[str, ...]
    allows_private: bool
    # The folder of this tenant's SQLite files; without one, they are not allowed.
    files: Path | None
    # Where the log of each Kafka partition ends: no position can be beyond that.
    ends: Mapping[int, int]
    # The id of the stream's topic; a stream that was deleted and recreated has a new one.
    topic_id: str

    @property
    def tasks(self) -> int:
        return _TASKS

    @contextmanager
    def open(self, ranges: Ranges) -> Iterator["DatabaseWriter"]:
        writer = DatabaseWriter(self, ranges)
        try:
            yield writer
        finally:
            writer.close()

    def records(self, ranges: Ranges, reports: Sequence[str]) -> Iterable[RecordOut]:
        """Return nothing: databases send no reports."""
        del ranges, reports
        return ()

    def target(self, table: str) -> Target:
        inserts_only = self.table.mode == "insert"
        return Target(table, self.columns, self.table.key, inserts_only)

    def place(self, partition: int) -> config.TableAddress:
        try:
            return self.table.shard(partition)
        except KeyError:
            count = len(self.table.shards)
            raise SettingError(
                f"the stream has a Kafka partition {partition}, but `shards` names only {count}"
                f" tables, for 0 to {count - 1}: name one for each"
            ) from None


class DatabaseWriter:
    """The writer of a task: it writes one Kafka partition after another."""

    def __init__(self, sink: DatabaseSink, ranges: Ranges) -> None:
        self._sink = sink
        self._ranges = ranges
        self._topic = next(iter(ranges)).topic
        self._open: tuple[config.TableAddress, OpenTable] | None = None
        self._partition = -1
        self._position: TablePosition | None = None
        # The event whose rows are still coming.
        self._offset = -1
        self._key: bytes | None = None
        self._rows: list[bytes | None] = []
        # The place of each event that may still be refused.
        self._seen: dict[int, tuple[pa.RecordBatch, int]] = {}

    def take(self, events: pa.RecordBatch) -> Iterable[Said]:
        partition = events.column("partition")[0].as_py()
        if partition != self._partition:
            yield from self.end()
            self._position = _said(lambda: self._begun(partition))
            self._partition = partition
        columns = (events.column(name).to_pylist() for name in ("offset", "key", "value"))
        for index, (offset, key, value) in enumerate(zip(*columns, strict=True)):
            if offset != self._offset:
                self._hand()
                self._offset, self._key, self._rows = offset, key, []
                self._seen[offset] = events, index
            self._rows.append(value)
        yield from self._refused()

    def end(self) -> Iterable[Said]:
        if self._position is None:
            return
        self._hand()
        _said(self._position.finish)
        yield from self._refused()
        self._position, self._offset = None, -1
        self._seen.clear()

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def _hand(self) -> None:
        """Hand over an event whose rows are all there."""
        if self._rows and (position := self._position) is not None:
            event = EventRows(self._offset, self._key, tuple(self._rows))
            self._rows = []
            _said(lambda: position.take(event))

    def _refused(self) -> Iterator[RefusedEvent]:
        """Yield the events that will never be in the table, once this is certain."""
        position = self._position
        assert position is not None, "a Kafka partition is under way"
        for offset, why in position.refused.items():
            if offset < position.next_offset and (seen := self._seen.pop(offset, None)):
                events, index = seen
                (row,) = events.slice(index, 1).to_pylist()
                yield RefusedEvent(row, REFUSED_BY_DATABASE, why)
        for offset in [each for each in self._seen if each < position.next_offset]:
            del self._seen[offset]

    def _begun(self, partition: int) -> TablePosition:
        sink = self._sink
        begin, end = self._ranges[KafkaPartition(self._topic, partition)]
        place = sink.place(partition)
        if self._open is None or self._open[0] != place:
            self.close()
            self._open = place, opened(sink, place)
        _, table = self._open
        # A recreated stream, or one of the same name in another Hifi, has its own position.
        at = PositionOf(sink.name, f"{self._topic}@{sink.topic_id}", partition)
        log_end = sink.ends.get(partition)
        return TablePosition(table, sink.table.key, at, begin, end, log_end=log_end)


def opened(sink: DatabaseSink, place: config.TableAddress) -> OpenTable:
    """Connect to the database that a document names; raise DatabaseError if that fails."""
    if place.file is not None:
        if sink.files is None:
            raise SettingError(
                "SQLite files are not allowed here: the operator names a folder for them in"
                " HIFI_PIPELINES_SQLITE_FOLDER"
            )
        sink.files.mkdir(parents=True, exist_ok=True)
        return SqliteTable(sink.files / f"{place.file}.sqlite", sink.target(place.table))
    password = ""
    if place.password is not None:
        try:
            password = SecretSettings().secret_box.unseal(place.password, owner=sink.owner)
        except SecretUnavailableError as error:
            raise SettingError(f"the password cannot be read: {error}") from error
    addresses = _addresses(place.host, allows_private=sink.allows_private)
    server = Server(
        place.host,
        place.port,
        place.database,
        place.user,
        password,
        tuple(map(str, addresses)),
        sink.table.tls,
    )
    return PostgresTable(server, sink.target(place.table))


def _addresses(name: str, *, allows_private: bool) -> Sequence[Address]:
    """The addresses of a host, each of them judged."""
    try:
        host = read_host(ascii_host(name))
    except HostError as error:
        raise SettingError(f"{name} is not a host: {error}") from error
    # Do not name the addresses: that would draw a map of our network.
    forbidden = f"Hifi does not connect to {name}: its addresses are not allowed"
    if host_class(host) == "never":
        raise SettingError(forbidden)
    addresses: Sequence[Address] = [host] if not isinstance(host, str) else _resolved(host)
    if not may_send(addresses, allows_private=allows_private):
        raise SettingError(forbidden)
    return addresses[:_ADDRESSES_MAX]


def _resolved(host: str) -> Sequence[Address]:
    loop, resolver = _resolving()
    try:
        return loop.run_until_complete(resolver(host, loop.time() + _RESOLVE_S))
    except NoSuchHostError as error:
        raise AwayError(f"the name {host} does not exist: {error}") from error
    except ResolverDownError as error:
        raise AwayError(f"no name server answers for {host}: {error}") from error


@cache
def _resolving() -> tuple[asyncio.AbstractEventLoop, Resolver]:
    """Return the worker's loop and resolver, made at its first task: Spark forks before that."""
    return asyncio.new_event_loop(), Resolver()


def _said(work: Callable[[], T]) -> T:
    """Do the work; raise database errors as SinkAwayError, which is shown during retries."""
    try:
        return work()
    except DatabaseError as error:
        is_wrongly_set = isinstance(error, SettingError)
        raise SinkAwayError(str(error), is_wrongly_set=is_wrongly_set) from error
