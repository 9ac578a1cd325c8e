"""Saves the audit's memory across restarts: one JSON file, replaced as a whole."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from observe.audit.books import AuditBooks, Closed
from observe.audit.evidence import life
from observe.audit.layers import Layers
from observe.audit.minutes import Ledger, LedgerMinute, Outcomes
from shared.proof.intervals import Offsets
from shared.proof.overview import Node

_FILE = "audit.json"


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
        return _memory_of(json.loads(path.read_bytes())) if path.exists() else cls()

    def save(self, folder: Path) -> None:
        """Replace the file: written aside, brought to the disk, then renamed."""
        folder.mkdir(parents=True, exist_ok=True)
        aside = folder / f"{_FILE}.new"
        with aside.open("wb") as file:
            file.write(json.dumps(_fields_of(self), separators=(",", ":")).encode())
            file.flush()
            os.fsync(file.fileno())
        aside.rename(folder / _FILE)


def _fields_of(memory: Memory) -> dict[str, Any]:
    books = memory.books
    return {
        "ledgers": {topic: _ledger_fields(one) for topic, one in books.ledgers.items()},
        "outcomes": [
            [who, *where, _outcome_fields(one)] for (who, where), one in books.outcomes.items()
        ],
        "closed": [
            [topic, minute, one.acked, one.outcomes, _spans(one.ledger)]
            for (topic, minute), one in books.closed.items()
        ],
        "done": [[*where, list(offsets)] for where, offsets in books.done.items()],
        "first_outcome": [[who, *where, at] for (who, where), at in books.first_outcome.items()],
        "read": [[*key, at] for key, at in memory.read.items()],
        "stated": [
            [*key, one.revision, one.acked, one.root, one.id_count, one.counts]
            for key, one in memory.stated.items()
        ],
        "chain": memory.chain,
        "log_ids": [[*key, ids] for key, ids in memory.log_ids.items()],
    }


def _ledger_fields(ledger: Ledger) -> dict[str, Any]:
    return {
        "claimed": _spans(ledger.claimed),
        "from_log": _spans(ledger.from_log),
        "minutes": [
            [
                minute,
                _spans(held.acked),
                held.overwritten,
                held.accepted_at_ms,
                _spans(held.ledger),
            ]
            for minute, held in ledger.minutes.items()
        ],
    }


def _outcome_fields(known: Outcomes) -> dict[str, Any]:
    return {
        "delivered": list(known.delivered),
        "dead": list(known.dead),
        "waiting": list(known.waiting),
        "lives": {name: list(offsets) for name, offsets in known.lives.items()},
        "in_tier": list(known.in_tier),
        "was_in_tier": list(known.was_in_tier),
        "in_dead": list(known.in_dead),
        "suspects": [[at, node.value, list(offsets)] for at, node, offsets in known.suspects],
    }


def _spans(by_partition: dict[int, Offsets]) -> list[list[Any]]:
    return [[partition, list(offsets)] for partition, offsets in by_partition.items()]


def _memory_of(fields: dict[str, Any]) -> Memory:
    books = AuditBooks(
        ledgers={topic: _ledger_of(one) for topic, one in fields["ledgers"].items()},
        outcomes={
            (who, (topic, partition)): _outcomes_of(one)
            for who, topic, partition, one in fields["outcomes"]
        },
        closed={
            (topic, minute): Closed(
                acked,
                {who: (delivered, dead) for who, (delivered, dead) in outcomes.items()},
                _ledger_rows(ledger),
            )
            for topic, minute, acked, outcomes, ledger in fields["closed"]
        },
        done={(topic, n): Offsets.of(spans) for topic, n, spans in fields["done"]},
        first_outcome={(who, (topic, n)): at for who, topic, n, at in fields["first_outcome"]},
    )
    return Memory(
        books=books,
        read={(kind, topic, n): at for kind, topic, n, at in fields["read"]},
        stated={(topic, minute): Stated(*rest) for topic, minute, *rest in fields["stated"]},
        chain=fields["chain"],
        log_ids={(topic, minute): ids for topic, minute, ids in fields["log_ids"]},
    )


def _ledger_of(fields: dict[str, Any]) -> Ledger:
    return Ledger(
        minutes={
            minute: LedgerMinute(
                acked=_offsets(acked),
                overwritten=[(partition, offset) for partition, offset in overwritten],
                accepted_at_ms=accepted_at_ms,
                ledger=_ledger_rows(ledger),
            )
            for minute, acked, overwritten, accepted_at_ms, ledger in fields["minutes"]
        },
        claimed=_offsets(fields["claimed"]),
        from_log=_offsets(fields["from_log"]),
    )


def _outcomes_of(fields: dict[str, Any]) -> Outcomes:
    return Outcomes(
        delivered=Offsets.of(fields["delivered"]),
        dead=Offsets.of(fields["dead"]),
        waiting=Offsets.of(fields["waiting"]),
        lives={name: Offsets.of(spans) for name, spans in _lives(fields).items()},
        in_tier=Layers.of(fields["in_tier"]),
        was_in_tier=Offsets.of(fields["was_in_tier"]),
        in_dead=Offsets.of(fields["in_dead"]),
        suspects=[(at, Node(node), Offsets.of(spans)) for at, node, spans in fields["suspects"]],
    )


def _offsets(saved: list[list[Any]]) -> dict[int, Offsets]:
    return {partition: Offsets.of(spans) for partition, spans in saved}


def _lives(fields: dict[str, Any]) -> dict[str, Any]:
    """What an older audit has saved says at most that something was sent again, not what came."""
    before = {life("delivered", 1): fields["redriven"]} if "redriven" in fields else {}
    lives: dict[str, Any] = fields.get("lives", before)
    return lives


def _ledger_rows(saved: list[list[Any]]) -> dict[int, Offsets]:
    """By Kafka partition; an older audit has saved the first record and the last."""
    return {
        number: Offsets.of(spans if isinstance(spans[0], list) else [(spans[0], spans[1] + 1)])
        for number, spans in saved
    }
