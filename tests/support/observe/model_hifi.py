"""A model of Hifi as the audit sees it, which keeps the truth beside its reports.

The audit's own tasks answer its questions over Arrow batches. At each statement, the model counts
the expected statements again from its log, event by event.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa

from observe.audit.audit_run import Audit, AuditOutcome
from observe.audit.evidence import Evidence, Layers
from observe.audit.ids.log_ids import LogIds
from observe.audit.memory import Memory
from observe.audit.minutes import DEAD, PASSED, WRITTEN, Rules
from observe.audit.signing import Signer
from observe.audit.spark_tasks import LoggedRun, MinuteRoots, name
from shared.event.record import KafkaPartition, Ranges
from shared.event.topics import ACKED, RETRIER, stream_topic
from shared.proof.acked import AckedRow, AckedSlice, runs_of
from shared.proof.intervals import Offsets
from shared.proof.statement import SignedStatement, Statement

PARTITIONS = 2
RULES = Rules(check_after_ms=120_000, overdue_ms=600_000)
MINUTE_MS, DAY_MS = 60_000, 86_400_000
NOW_MS = 1_699_999_980_000


@dataclass
class ModelEvent:
    """An event of the log."""

    event_id: str
    minute: int
    accepted_at_ms: int
    # The next run of the audit, and whether a row of the ledger names the event.
    run: int
    is_named: bool = False


@dataclass
class Lane:
    """A destination's position, and its report on each event that it has reached."""

    begins: dict[int, int]
    is_late: bool
    at: dict[int, int]
    fates: dict[tuple[int, int], str] = field(default_factory=dict)
    is_there: bool = True


class ModelHifi:
    """One stream; with `is_wrong` its gateway acknowledges events that are not in the log (G1)."""

    def __init__(self, folder: Path, dice: Random, *, is_wrong: bool = False) -> None:
        self.dice, self.is_wrong, self.now_ms = dice, is_wrong, NOW_MS
        self.topic = stream_topic("model")
        self.log: dict[int, list[ModelEvent]] = {number: [] for number in range(PARTITIONS)}
        self.rows: list[bytes] = []
        # Later rows, which a gateway could not write yet.
        self.late_rows: list[bytes] = []
        # Places that lack the event that the ledger names there: its id and minute.
        self.gone: dict[tuple[int, int], tuple[str, int]] = {}
        self.lanes: dict[str, Lane] = {}
        self.statements: list[SignedStatement] = []
        self.outcome: AuditOutcome | None = None
        # Ids that were ever reported missing.
        self.missing: set[str] = set()
        self._folder, self._count, self._run = folder, 0, 0
        self._told: list[tuple[str, str, int, int]] = []
        self._read = Counter[str]()
        self.memory = Memory()
        self.start_again(Memory())

    # Events of the model.

    def post(self, count: int, *, is_named: bool = True) -> None:
        """Post a request: its events come from one or two minutes, mostly from this one."""
        partition = self.dice.randrange(PARTITIONS)
        events = self._events(count)
        self._store(partition, events)
        if is_named:
            self._name(partition, len(self.log[partition]) - count, events)

    def move_leader(self, count: int) -> None:
        """Store a batch without an answer; the next batch is stored after it, or is lost."""
        partition, first = 0, len(self.log[0])
        before = self._events(count)
        self._store(partition, before)
        # Requests of the same moment.
        events = [replace(one, event_id=f"{one.event_id}-behind", run=self._run) for one in before]
        if not self.is_wrong:
            self._store(partition, events)
            self._name(partition, first + count, events)
            return
        self.gone |= {
            (partition, first + nth): (one.event_id, one.minute) for nth, one in enumerate(events)
        }
        self._name(partition, first, events)

    def _events(self, count: int) -> list[ModelEvent]:
        late_ms = self.dice.choice((0, 0, 0, 90_000, 7_200_000, 3 * DAY_MS))
        events = []
        for nth in range(count):
            self._count += 1
            at_ms = self.now_ms - late_ms - nth * self.dice.choice((0, 7_000))
            minute = -1 if self.now_ms - at_ms > DAY_MS else at_ms - at_ms % MINUTE_MS
            events.append(ModelEvent(f"e{self._count}", minute, self.now_ms, self._run))
        return events

    def _store(self, partition: int, events: Sequence[ModelEvent]) -> None:
        self.log[partition] += events

    def _name(self, partition: int, first: int, events: Sequence[ModelEvent]) -> None:
        """Write the gateway's row: now, with later news, or never, because it dies."""
        runs = runs_of([one.minute for one in events])
        part = (AckedSlice(first, runs, self.now_ms),)
        row = AckedRow(self.topic, partition, part, tuple(one.event_id for one in events))
        when = self.dice.choice(("now", "now", "now", "late"))
        if when == "late":
            self.late_rows.append(row.to_bytes())
            return
        self._write(row.to_bytes())

    def _write(self, value: bytes) -> None:
        self.rows.append(value)
        row = AckedRow.from_bytes(value)
        for _, offset, event_id in row.named():
            stored = self.log[row.partition][offset]
            stored.is_named = stored.is_named or stored.event_id == event_id

    def write_late_rows(self) -> None:
        for value in self.late_rows:
            self._write(value)
        self.late_rows.clear()

    def add(self, to: str, *, is_late: bool) -> None:
        """Add a destination at the start or at the end of the log; a removed one continues."""
        if to in self.lanes:
            self.lanes[to].is_there = True
            return
        begins = {number: len(log) * is_late for number, log in self.log.items()}
        self.lanes[to] = Lane(begins, is_late, dict(begins))

    def remove(self, *names: str) -> None:
        for to in names:
            self.lanes[to].is_there = False

    def deliver(self, to: str, *, at_most: int) -> None:
        lane = self.lanes[to]
        for number, log in self.log.items():
            end = min(len(log), lane.at[number] + self.dice.randint(0, at_most))
            for offset in range(lane.at[number], end):
                fate = self.dice.choice(("delivered",) * 6 + ("waiting", "dead"))
                self._tell(lane, to, fate, number, offset)
            lane.at[number] = end

    def retry(self, to: str) -> None:
        """End all events that wait."""
        lane = self.lanes[to]
        for (number, offset), fate in list(lane.fates.items()):
            if fate == "waiting":
                ended = self.dice.choice(("delivered", "delivered", "dead"))
                self._tell(lane, to, ended, number, offset)
                self._told.append((PASSED, to, number, offset))

    def _tell(self, lane: Lane, to: str, fate: str, number: int, offset: int) -> None:
        lane.fates[number, offset] = fate
        self._told.append((fate, to, number, offset))
        kind = {"waiting": WRITTEN, "dead": DEAD}.get(fate)
        if kind is not None:
            self._told.append((kind + "!", to, number, offset))

    # The audit.

    def start_again(self, memory: Memory | None = None) -> None:
        """Go on as an observer with its saved memory; without any, it reads all again."""
        ours: Any = self
        if memory is None:
            memory = Memory.from_bytes(self.memory.to_bytes())
        else:
            self._read.clear()
            for offset, signed in enumerate(self.statements):
                memory.read_statement(signed, offset)
        self.memory = memory
        self._audit = Audit(
            job=ours, kafka=ours, memory=memory, signer=Signer(self._folder),
            publish=self._publish, rules=RULES, now_ms=lambda: self.now_ms,
        )  # fmt: skip
        self._first_run = self._run

    def audit(self) -> None:
        there = {to: lane for to, lane in self.lanes.items() if lane.is_there}
        late = frozenset(to for to, lane in there.items() if lane.is_late)
        while True:
            outcome = asyncio.run(self._audit.run({self.topic: list(there)}, late=late))
            if not outcome.is_behind:
                break
        self.outcome = outcome
        self.missing |= {
            one.event_id
            for minutes in outcome.minutes.values()
            for books in minutes
            for one in books.missing
        }
        self._run += 1

    async def _publish(self, made: Sequence[SignedStatement]) -> None:
        for signed in made:
            self._check(signed.statement)
        self.statements.extend(made)

    # The expected statements.

    def _check(self, said: Statement) -> None:
        expected = self.recount(said.minute_ms)
        ids = expected["ids"]
        assert (said.acked + said.derived, said.id_count) == (expected["count"], len(ids)), said
        assert said.root == root_of(ids), said
        assert said.compared is not None
        assert said.compared <= expected["count"]
        for name_, counts in said.destinations.items():
            to = f"model/{name_}"
            assert self.lanes[to].is_there
            plain = (counts.due, counts.delivered, counts.waiting, counts.dead, dict(counts.lost))
            assert plain == self.line(to, said.minute_ms), (to, said)

    def recount(self, minute: int) -> dict[str, Any]:
        """Count a minute in the log, with only what an audit can know now."""
        stored = [
            one
            for log in self.log.values()
            for one in log
            if one.minute == minute and (one.is_named or one.run < self._run)
        ]
        gone = [event_id for event_id, of in self._known_gone().values() if of == minute]
        ids = {one.event_id for one in stored} | set(gone)
        return {"count": len(stored) + len(gone), "ids": ids}

    def _known_gone(self) -> dict[tuple[int, int], tuple[str, int]]:
        named = {
            (row.partition, offset)
            for row in map(AckedRow.from_bytes, self.rows)
            for _, offset, _ in row.named()
        }
        return {place: one for place, one in self.gone.items() if place in named}

    def line(self, to: str, minute: int) -> tuple[int, int, int, int, dict[str, int]]:
        """Count a minute's events at a destination: due, delivered, waiting, dead and lost."""
        lane = self.lanes[to]
        fates = Counter[str]()
        for number, log in self.log.items():
            for offset in range(lane.begins[number], len(log)):
                one = log[offset]
                if one.minute == minute and (one.is_named or one.run < self._run):
                    fates[lane.fates.get((number, offset), "queued")] += 1
        lost = sum(
            of == minute and offset >= lane.begins[number]
            for (number, offset), (_, of) in self._known_gone().items()
        )
        return (
            sum(fates.values()) + lost, fates["delivered"], fates["waiting"], fates["dead"],
            {"gateway": lost} if lost else {},
        )  # fmt: skip

    # The audit asks Spark for these.

    def gather(self, _: object) -> Evidence:
        found = Evidence()
        for offset in range(self._read["rows"], len(self.rows)):
            found.take_ledger(self.rows[offset], partition=0, offset=offset)
        for what, to, number, offset in self._told[self._read["told"] :]:
            if what.endswith("!") or what == PASSED:
                key = (what.rstrip("!"), to, self.topic, number)
                found.records.setdefault(key, Layers()).add(offset, offset + 1)
            else:
                key = (to, what, self.topic, number)
                found.outcomes.setdefault(key, Offsets()).add(offset, offset + 1)
        self._read.update(rows=len(self.rows) - self._read["rows"])
        self._read.update(told=len(self._told) - self._read["told"])
        return msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Evidence)

    def look_up(self, wanted: Mapping[KafkaPartition, Offsets], log: Ranges) -> list[LoggedRun]:
        found = []
        for where, offsets in wanted.items():
            for low, high in offsets:
                for offset in range(low, min(high, log[where][1])):
                    one = self.log[where.partition][offset]
                    run = LoggedRun(where, offset, one.minute, one.accepted_at_ms, [one.event_id])
                    found.append(run)
        return found

    def name(
        self,
        ledger: Mapping[int, Offsets],
        *,
        minutes: Sequence[tuple[str, int]],
        offsets: Mapping[KafkaPartition, Offsets],
        extra: Mapping[tuple[str, int], Sequence[str]],
        compare: Mapping[tuple[str, int], Mapping[int, Offsets]],
    ) -> MinuteRoots:
        spans = [span for of in ledger.values() for span in of]
        rows = [(at, self.rows[at]) for low, high in spans for at in range(low, high)]
        (part,) = name(
            [_batch(ACKED, 0, rows)],
            wanted=frozenset(minutes),
            spans={where: list(spans) for where, spans in offsets.items()},
            extra=extra,
            compare={
                key: {at: list(spans) for at, spans in places.items()}
                for key, places in compare.items()
            },
            read_ids=self._read_ids,
        )
        return msgspec.msgpack.decode(part.column("part")[0].as_py(), type=MinuteRoots)

    def _read_ids(self, wanted: Mapping[KafkaPartition, Offsets]) -> LogIds:
        found = LogIds()
        for where, offsets in wanted.items():
            log, places = self.log[where.partition], [at for it in offsets for at in range(*it)]
            found.take(where, places, [log[at].event_id.encode() for at in places])
        return found

    # And Kafka.

    async def position(self, lane: str) -> Mapping[KafkaPartition, int]:
        at = {} if lane == RETRIER else self.lanes[lane].at
        return {KafkaPartition(self.topic, number): offset for number, offset in at.items()}

    async def restored(self) -> dict[KafkaPartition, int]:
        return {}

    async def spans(self, topics: Sequence[str]) -> dict[KafkaPartition, tuple[int, int]]:
        if self.topic not in topics:
            return {}
        return {KafkaPartition(self.topic, at): (0, len(log)) for at, log in self.log.items()}


def _batch(topic: str, partition: int, rows: Sequence[tuple[int, bytes]]) -> pa.RecordBatch:
    columns = {
        "topic": pa.array([topic] * len(rows), pa.string()),
        "partition": pa.array([partition] * len(rows), pa.int32()),
        "offset": pa.array([offset for offset, _ in rows], pa.int64()),
        "value": pa.array([value for _, value in rows], pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns)


def root_of(ids: set[str]) -> str:
    """Compute the root exactly as in RFC 9162, 2.1.1, over blocks of 64 sorted ids."""
    lines = sorted(ids)
    blocks = ["\n".join(lines[at : at + 64]).encode() for at in range(0, len(lines), 64)]
    return _root(blocks).hex()


def _root(leaves: Sequence[bytes]) -> bytes:
    if len(leaves) < 2:
        return hashlib.sha256(b"".join(b"\x00" + leaf for leaf in leaves)).digest()
    at = 1
    while at * 2 < len(leaves):
        at *= 2
    return hashlib.sha256(b"\x01" + _root(leaves[:at]) + _root(leaves[at:])).digest()
