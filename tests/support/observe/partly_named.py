"""Hifi as the audit sees it, with a ledger that names only a part; no Kafka and no Spark."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from observe.audit.audit_run import Audit, AuditOutcome
from observe.audit.evidence import Claim, Evidence
from observe.audit.loop import Auditor
from observe.audit.memory import Memory
from observe.audit.minutes import Rules
from observe.audit.signing import Signer
from observe.audit.spark_tasks import LoggedRun, MinuteRoots
from shared.config.configuration import Configuration, RemovedStream, Stream
from shared.event.record import KafkaPartition, Ranges
from shared.event.topics import stream_topic
from shared.proof.intervals import Offsets
from shared.proof.merkle import merkle_root
from shared.proof.statement import SignedStatement, Statement

M0 = 1_699_999_980_000
RULES = Rules(check_after_ms=120_000, overdue_ms=600_000)


class Half:
    """Hifi as the audit sees it: the ledger names a part of the events in the logs."""

    def __init__(self, folder: Path, *streams: str) -> None:
        self.folder = folder
        self.configuration = Configuration(streams={name: Stream(name) for name in streams})
        self.now_ms = M0
        self.memory = Memory()
        self.statements: list[SignedStatement] = []
        # Reports of events that no ledger names: where they begin, and their ids.
        self.heard: list[tuple[Any, ...]] = []
        self.positions: dict[str, dict[KafkaPartition, int]] = {}
        # By topic: ids in order of offset, all of one minute; and the ids of each row of the
        # ledger.
        self._log: dict[str, list[str]] = {}
        self._rows: list[tuple[str, Sequence[str]]] = []
        # The places of events that pipelines wrote.
        self._derived = set[tuple[str, int]]()
        # The offsets from which restores have put events back.
        self._restored: dict[KafkaPartition, int] = {}
        self._gone: set[tuple[str, int]] = set()
        self._evidence = Evidence()
        ours: Any = self
        self._auditor = Auditor(ours, ours, lambda: self.configuration, ours)
        self.start_again()

    def start_again(self, *, with_memory: bool = True) -> None:
        """Go on as an observer with its saved memory, if any, and the statements in Kafka."""
        ours: Any = self

        async def publish(made: Sequence[SignedStatement]) -> None:
            self.statements.extend(made)

        self._audit = Audit(
            job=ours, kafka=ours, memory=self._saved() if with_memory else self._none(),
            signer=Signer(self.folder), publish=publish, rules=RULES, now_ms=lambda: self.now_ms,
            hear=lambda where, first, ids: self.heard.append((*where, first, *ids)),
        )  # fmt: skip
        self.memory = self._audit.memory

    def _saved(self) -> Memory:
        return Memory.from_bytes(self.memory.to_bytes())

    def _none(self) -> Memory:
        memory = Memory()
        for offset, signed in enumerate(self.statements):
            memory.read_statement(signed, offset)
        # The audit rereads all that Kafka has of the ledger.
        for row, (topic, ids) in enumerate(self._rows):
            first = self._log[topic].index(ids[0])
            claim = Claim(topic, 0, M0, first, first + len(ids), M0, (0, row, row))
            self._evidence.claims.append(claim)
        return memory

    def accept(self, stream: str, *ids: str, is_named: bool = True) -> None:
        topic = stream_topic(stream)
        log = self._log.setdefault(topic, [])
        first = len(log)
        log += ids
        if is_named:
            row = len(self._rows)
            self._rows.append((topic, ids))
            claim = Claim(topic, 0, M0, first, len(log), self.now_ms, (0, row, row))
            self._evidence.claims.append(claim)

    def derive(self, stream: str, *ids: str) -> None:
        """Let a pipeline write events to a stream."""
        first = len(self._log.get(stream_topic(stream), ()))
        self.accept(stream, *ids, is_named=False)
        self._derived |= {(stream_topic(stream), first + nth) for nth in range(len(ids))}

    def restore(self, stream: str, *ids: str) -> None:
        """Put events back into a stream."""
        first = len(self._log.get(stream_topic(stream), ()))
        self.accept(stream, *ids, is_named=False)
        self._restored.setdefault(KafkaPartition(stream_topic(stream), 0), first)

    def pipe(self, lane: str, done: Offsets, *, end: int, filtered: int = 0) -> None:
        """Let a pipeline report its results, and continue from `end`."""
        where = KafkaPartition(stream_topic(lane.split("/", maxsplit=1)[0]), 0)
        self._evidence.outcomes[lane, "delivered", *where] = done
        self._evidence.not_passed[lane, M0] = {"filtered": filtered}
        self.positions[lane] = {where: end}

    def forget(self, stream: str, event_id: str) -> None:
        """Let Kafka lose this event."""
        self._gone.add((stream_topic(stream), self._log[stream_topic(stream)].index(event_id)))

    def deliver_all(self, stream: str, to: str) -> None:
        where = KafkaPartition(stream_topic(stream), 0)
        end = len(self._log[where.topic])
        self._evidence.outcomes[to, "delivered", *where] = Offsets.of([(0, end)])
        self.positions[to] = {where: end}

    def remove(self, stream: str) -> None:
        gone = RemovedStream(stream, "default", 1, self.now_ms)
        self.configuration = Configuration(removed_streams={stream: gone})

    def at(self, now_ms: int, destinations: Mapping[str, Sequence[str]] = {}) -> AuditOutcome:
        self.now_ms = now_ms
        streams, late, derived = self._auditor._destinations()
        run = self._audit.run({**streams, **destinations}, late=late, derived=derived)
        return asyncio.run(run)

    def stated(self, stream: str) -> list[Statement]:
        made = (signed.statement for signed in self.statements)
        return [statement for statement in made if statement.stream == stream]

    # The audit asks Spark for these.

    def gather(self, _: object) -> Evidence:
        found, self._evidence = self._evidence, Evidence()
        return found

    def look_up(self, wanted: Mapping[KafkaPartition, Offsets], log: Ranges) -> list[LoggedRun]:
        return [
            LoggedRun(
                where, offset, M0, M0, [self._log[where.topic][offset]],
                (where.topic, offset) in self._derived,
            )
            for where, offsets in wanted.items()
            for low, high in offsets
            for offset in range(low, min(high, log[where][1]))
            if (where.topic, offset) not in self._gone
        ]  # fmt: skip

    def name(
        self,
        ledger: Mapping[int, Offsets],
        *,
        minutes: Sequence[tuple[str, int]],
        extra: Mapping[tuple[str, int], Sequence[str]],
        **_: object,
    ) -> MinuteRoots:
        roots = {}
        for key in minutes:
            rows = [
                named
                for row, (topic, named) in enumerate(self._rows)
                if topic == key[0] and row in ledger.get(0, Offsets())
            ]
            if rows:
                ids = {*extra.get(key, ()), *(each for named in rows for each in named)}
                roots[key] = (merkle_root(ids), len(ids))
        return MinuteRoots(roots)

    # And Kafka.

    async def position(self, lane: str) -> Mapping[KafkaPartition, int]:
        return self.positions.get(lane, {})

    async def ids(self, _: object) -> dict[Any, Any]:
        return {}

    async def restored(self) -> dict[KafkaPartition, int]:
        return dict(self._restored)

    async def spans(self, topics: Sequence[str]) -> dict[KafkaPartition, tuple[int, int]]:
        known = [topic for topic in topics if topic in self._log]
        return {KafkaPartition(topic, 0): (0, len(self._log[topic])) for topic in known}


def said(statement: Statement) -> tuple[int, int, str]:
    return statement.revision, statement.acked, statement.root


def all_of(*ids: str, revision: int = 1) -> tuple[int, int, str]:
    return revision, len(ids), merkle_root(ids).hex()
