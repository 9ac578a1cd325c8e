"""Saves the audit's memory across restarts: one file, replaced as a whole.

What cannot be read is nothing: the audit then starts anew with all that Kafka still has.
"""

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import structlog

from observe.audit.books import AuditBooks
from shared.proof.statement import Statement
from shared.runtime.whole_file import write_whole

log = structlog.get_logger()

# MessagePack, as JSON has no keys of several parts.
_FILE = "audit.msgpack"


@dataclass(slots=True)
class Memory:
    books: AuditBooks = field(default_factory=AuditBooks)
    # Up to where each kind of record was read: by kind, topic and Kafka partition.
    read: dict[tuple[str, str, int], int] = field(default_factory=dict)
    # What was stated last of each minute, by topic.
    stated: dict[tuple[str, int], Statement] = field(default_factory=dict)
    # The digest of each stream's newest statement, by topic.
    chain: dict[str, str] = field(default_factory=dict)
    # Ids of events that the ledger does not name, by topic and minute.
    log_ids: dict[tuple[str, int], list[str]] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> "Memory":
        """What was saved last; nothing if nothing was."""
        path = folder / _FILE
        if not path.exists():
            return cls()
        saved = path.read_bytes()
        with contextlib.suppress(msgspec.DecodeError):
            memory = msgspec.msgpack.decode(saved, type=cls)
            # What another version calls otherwise must not pass for what is empty.
            if msgspec.msgpack.encode(memory) == saved:
                return memory
        log.warning("audit.memory_unreadable", path=str(path))
        return cls()

    def save(self, folder: Path) -> None:
        """Replace the file."""
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / _FILE, msgspec.msgpack.encode(self))
