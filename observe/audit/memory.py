"""Saves the audit's memory across restarts: one file, replaced as a whole."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from observe.audit.books import AuditBooks

_FILE = "audit.msgpack"


@dataclass(frozen=True, slots=True)
class Stated:
    """What the last statement about a minute said."""

    revision: int
    acked: int
    root: str
    id_count: int
    # The counts by destination, as they were signed.
    counts: str


@dataclass(slots=True)
class Memory:
    books: AuditBooks = field(default_factory=AuditBooks)
    # Up to where each kind of record was read: by kind, topic and Kafka partition.
    read: dict[tuple[str, str, int], int] = field(default_factory=dict)
    stated: dict[tuple[str, int], Stated] = field(default_factory=dict)
    # The digest of each stream's newest statement.
    chain: dict[str, str] = field(default_factory=dict)
    # Ids of events that the ledger does not name, by topic and minute.
    log_ids: dict[tuple[str, int], list[str]] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> "Memory":
        """What was saved last; nothing if nothing was."""
        path = folder / _FILE
        return msgspec.msgpack.decode(path.read_bytes(), type=cls) if path.exists() else cls()

    def save(self, folder: Path) -> None:
        """Replace the file: written aside, brought to the disk, then renamed."""
        folder.mkdir(parents=True, exist_ok=True)
        aside = folder / f"{_FILE}.new"
        with aside.open("wb") as file:
            file.write(msgspec.msgpack.encode(self))
            file.flush()
            os.fsync(file.fileno())
        aside.rename(folder / _FILE)
