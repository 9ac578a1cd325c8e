"""Looks up rows of tables for events, a batch of events at a time, in this machine's copy.

No look-up uses the network, so no event waits for the table's source. A key that many events of a
batch have is looked up once. All events of a batch see the table as of one moment.
"""

import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from shared.config.table import Table
from shared.event.table_row import ROW_KEY_BYTES_MAX
from shared.runtime.clock import now_ms
from shared.runtime.tables.copy import ClosedError, DamagedError, Extent
from shared.runtime.tables.folders import TableCopies
from shared.runtime.tables.keeper import command, is_followed, lock_folder

# Any, as pyarrow's types describe nulls in lists, but not nulls that are left out.
_Column: TypeAlias = Any
# The result for a key: the row as JSON, and the offset up to which the table was known.
FOUND = "struct<row: string, at: bigint>"
# On a cluster machine the copy may have to be made first.
_READY_WITHIN_S, _LOOK_S = 20.0, 0.1


class TableNotReadyError(Exception):
    """There is no copy of the table here (yet)."""


class LookUp(Protocol):
    """Returns a FOUND value for each key, in whichever process Spark runs it."""

    def __call__(self, keys: _Column, partitions: _Column) -> _Column: ...


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a document, as its plan needs them."""

    # The tables that it writes, by name.
    written: Mapping[str, Table] = field(default_factory=dict)
    look_ups: Mapping[str, LookUp] = field(default_factory=dict)


NO_TABLES = Tables()


@dataclass(frozen=True, slots=True)
class CopyRows:
    """Looks up in the copy on the machine where the task runs."""

    folder: str
    table: Table
    # The brokers from which to follow the table; empty if a process on the machine already does so.
    bootstrap_servers: str = ""

    def __call__(self, keys: _Column, partitions: _Column) -> _Column:
        assert len(keys) == len(partitions), "columns of one batch"
        encoded = keys.dictionary_encode()
        wanted = [key.encode() for key in encoded.dictionary.to_pylist()]
        values, extent = self._values(wanted)
        texts = [None if value is None else value.decode(errors="replace") for value in values]
        rows = pa.array(texts, pa.string()).take(encoded.indices)
        at = pa.repeat(pa.scalar(extent.offset, pa.int64()), len(keys))
        return pa.StructArray.from_arrays([rows, at], ["row", "at"])

    def _values(self, keys: list[bytes]) -> tuple[list[bytes | None], Extent]:
        kept_ms = self.table.retention_ms
        since_ms = 0 if kept_ms is None else now_ms() - kept_ms
        # No row has a key of another length: look up a dummy instead.
        asked = [key if 0 < len(key) <= ROW_KEY_BYTES_MAX else b"\0" for key in keys]
        copies = _copies(self.folder)
        until_s = time.monotonic() + (_READY_WITHIN_S if self.bootstrap_servers else 0)
        while True:
            try:
                if (copy := copies.of(self.table)) is not None:
                    return copy.copy.look_up(asked, since_ms=since_ms)
            except ClosedError:
                continue
            except DamagedError:
                copies.damaged(self.table)
            if time.monotonic() > until_s:
                raise TableNotReadyError(f"there is no copy of {self.table.name} yet")
            _have_followed(Path(self.folder), self.bootstrap_servers)
            time.sleep(_LOOK_S)


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Looks rows up among those of a document's tests: each test has its own table."""

    # Tables by the partition of a test's events; -1: for all.
    tables: Mapping[int, Mapping[str, str]]

    def __call__(self, keys: _Column, partitions: _Column) -> _Column:
        everywhere = self.tables.get(-1, {})
        rows = [
            self.tables.get(partition, everywhere).get(key)
            for key, partition in zip(keys.to_pylist(), partitions.to_pylist(), strict=True)
        ]
        at = pa.repeat(pa.scalar(0, pa.int64()), len(keys))
        return pa.StructArray.from_arrays([pa.array(rows, pa.string()), at], ["row", "at"])


@cache
def _copies(folder: str) -> TableCopies:
    """The copies that this process has open: no process may open a file twice."""
    return TableCopies(Path(folder))


_begun: list[subprocess.Popen[bytes]] = []


def _have_followed(folder: Path, bootstrap_servers: str) -> None:
    """Start a follower if this machine has none; it lives as long as Spark's own process here."""
    lock_folder(folder)
    if bootstrap_servers and not is_followed(folder):
        # Processes that have ended are polled here, which reaps them.
        _begun[:] = [each for each in _begun if each.poll() is None]
        words = command(folder, bootstrap_servers, os.getppid())
        _begun.append(subprocess.Popen(words, stdin=subprocess.DEVNULL))
        time.sleep(1.0)
