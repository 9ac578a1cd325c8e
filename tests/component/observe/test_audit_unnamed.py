"""Events that no ledger names, as their gateway died or Kafka stood still: they are stated, too.

What is signed must be all that a stream's log has of a minute, or whoever verifies it, by the
ledger and then by the log, is told not to trust it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from observe.audit import audit_run
from observe.audit.audit_run import Audit, AuditOutcome
from observe.audit.evidence import Claim, Evidence
from observe.audit.loop import Auditor
from observe.audit.memory import Memory
from observe.audit.minutes import Rules
from observe.audit.signing import Signer
from observe.audit.spark_tasks import LoggedRun, Named
from shared.config.configuration import Configuration, RemovedStream, Stream
from shared.config.pipeline import Pipeline
from shared.event.record import KafkaPartition, Ranges
from shared.event.times import DAY_MS, HOUR_MS
from shared.event.topics import stream_topic
from shared.proof.intervals import Offsets
from shared.proof.merkle import merkle_root
from shared.proof.overview import MinuteState, Node
from shared.proof.statement import SignedStatement, Statement

M0 = 1_699_999_980_000
RULES = Rules(settle_ms=120_000, blind_ms=600_000)


class Half:
    """Hifi as the audit sees it: of what the logs have, the ledger names a part."""

    def __init__(self, folder: Path, *streams: str) -> None:
        self.folder = folder
        self.configuration = Configuration(streams={name: Stream(name) for name in streams})
        self.now_ms = M0
        self.memory = Memory()
        self.statements: list[SignedStatement] = []
        self.positions: dict[str, dict[KafkaPartition, int]] = {}
        # By topic: ids at their offsets, all of one minute; and those of each row of the ledger.
        self._log: dict[str, list[str]] = {}
        self._rows: list[tuple[str, Sequence[str]]] = []
        # Where events are that pipelines wrote, or restores.
        self._derived, self._restored = set[tuple[str, int]](), set[tuple[str, int]]()
        self._gone: set[tuple[str, int]] = set()
        self._evidence = Evidence()
        ours: Any = self
        self._auditor = Auditor(ours, ours, lambda: self.configuration, ours)
        self.start_again()

    def start_again(self) -> None:
        """The observer goes on with what it has saved, and nothing else."""
        ours: Any = self

        async def publish(made: Sequence[SignedStatement]) -> None:
            self.statements.extend(made)

        self._audit = Audit(
            job=ours, kafka=ours, memory=Memory.from_bytes(self.memory.to_bytes()),
            signer=Signer(self.folder), publish=publish, rules=RULES, now_ms=lambda: self.now_ms,
        )  # fmt: skip
        self.memory = self._audit.memory

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
        """A pipeline writes events to it."""
        first = len(self._log.get(stream_topic(stream), ()))
        self.accept(stream, *ids, is_named=False)
        self._derived |= {(stream_topic(stream), first + nth) for nth in range(len(ids))}

    def restore(self, stream: str, *ids: str) -> None:
        """Events are put back into it."""
        first = len(self._log.get(stream_topic(stream), ()))
        self.accept(stream, *ids, is_named=False)
        self._restored |= {(stream_topic(stream), first + nth) for nth in range(len(ids))}

    def pipe(self, lane: str, done: Offsets, *, end: int, filtered: int = 0) -> None:
        """A pipeline says what it has come to, and goes on from `end`."""
        where = KafkaPartition(stream_topic(lane.split("/", maxsplit=1)[0]), 0)
        self._evidence.outcomes[lane, "delivered", *where] = done
        self._evidence.not_passed[lane, M0] = {"filtered": filtered}
        self.positions[lane] = {where: end}

    def forget(self, stream: str, event_id: str) -> None:
        """Kafka has it no more."""
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

    # What the audit asks Spark for.

    def gather(self, _: object) -> Evidence:
        found, self._evidence = self._evidence, Evidence()
        return found

    def look_up(self, wanted: Mapping[KafkaPartition, Offsets], log: Ranges) -> list[LoggedRun]:
        return [
            LoggedRun(
                where, offset, M0, M0, [self._log[where.topic][offset]],
                (where.topic, offset) in self._derived, (where.topic, offset) in self._restored,
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
    ) -> Named:
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
        return Named(roots)

    # And Kafka.

    async def position(self, lane: str) -> Mapping[KafkaPartition, int]:
        return self.positions.get(lane, {})

    async def spans(self, topics: Sequence[str]) -> dict[KafkaPartition, tuple[int, int]]:
        known = [topic for topic in topics if topic in self._log]
        return {KafkaPartition(topic, 0): (0, len(self._log[topic])) for topic in known}


def said(statement: Statement) -> tuple[int, int, str]:
    return statement.revision, statement.acked, statement.root


def all_of(*ids: str, revision: int = 1) -> tuple[int, int, str]:
    return revision, len(ids), merkle_root(ids).hex()


def test_what_only_the_log_has_is_stated_also_of_a_stream_that_was_removed(
    tmp_path: Path,
) -> None:
    hifi = Half(tmp_path, "orders")
    hifi.accept("orders", "a", "b")
    # A gateway is killed before it has written its ledger, and the log is asked in its place.
    hifi.accept("orders", "c", is_named=False)
    hifi.at(M0 + 20_000)
    hifi.at(M0 + 40_000)
    # Kafka stands still: it stores what nobody was told of. Then the stream is removed.
    hifi.accept("orders", "d", is_named=False)
    hifi.remove("orders")
    for minutes in (3, 4, 5):
        hifi.at(M0 + minutes * 60_000)
    assert [said(one) for one in hifi.stated("orders")] == [all_of("a", "b", "c", "d")]
    assert hifi.memory.books.ledgers[stream_topic("orders")].times_ms() == []


def test_a_stream_of_which_no_ledger_says_anything_is_stated_though_it_was_removed(
    tmp_path: Path,
) -> None:
    hifi = Half(tmp_path, "orders")
    hifi.accept("orders", "a", is_named=False)
    hifi.remove("orders")
    for minutes in (3, 4):
        hifi.at(M0 + minutes * 60_000)
    assert [said(one) for one in hifi.stated("orders")] == [all_of("a")]


@pytest.mark.parametrize("later_ms", [HOUR_MS, 3 * DAY_MS])
def test_no_minute_is_complete_before_the_log_was_asked_for_what_no_ledger_names(
    later_ms: int, tmp_path: Path
) -> None:
    to = "orders/shop"
    wanted = {stream_topic("orders"): [to]}
    hifi = Half(tmp_path, "orders")
    hifi.accept("orders", "a", "b")
    hifi.accept("orders", "c", is_named=False)
    hifi.deliver_all("orders", to)
    # Another observer takes over: what it reads first is the ledger.
    hifi.start_again()
    states = [
        [books.state for books in hifi.at(M0 + later_ms + wait_ms, wanted).changed]
        for wait_ms in (0, 60_000, 120_000)
    ]
    assert states == [[MinuteState.OPEN], [MinuteState.COMPLETE], []]
    assert [said(one) for one in hifi.stated("orders")] == [all_of("a", "b", "c")]
    assert hifi.stated("orders")[0].destinations["shop"].delivered == 3
    assert hifi.memory.books.ledgers[stream_topic("orders")].times_ms() == []


def test_what_came_late_is_stated_with_all_that_was_before_when_the_observer_was_away(
    tmp_path: Path,
) -> None:
    hifi = Half(tmp_path, "orders")
    hifi.accept("orders", "a", "b")
    hifi.accept("orders", "c", is_named=False)
    for minutes in (3, 4, 5):
        hifi.at(M0 + minutes * 60_000)
    # It comes in time to be counted in its minute, and is read when others would be forgotten.
    hifi.now_ms = M0 + 23 * HOUR_MS
    hifi.accept("orders", "d")
    hifi.start_again()
    for hours in (30, 31, 32):
        hifi.at(M0 + hours * HOUR_MS)
    assert [said(one) for one in hifi.stated("orders")] == [
        all_of("a", "b", "c"),
        all_of("a", "b", "c", "d", revision=2),
    ]
    assert (hifi.memory.stated, hifi.memory.books.closed) == ({}, {})


def test_a_stream_of_which_much_must_be_asked_holds_up_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_run, "_LOOK_UP_MAX", 2)
    hifi = Half(tmp_path, "orders", "others")
    hifi.accept("orders", "a")
    hifi.accept("orders", "b", "c", "d", is_named=False)
    hifi.accept("others", "e")
    hifi.at(M0 + HOUR_MS)
    hifi.at(M0 + HOUR_MS + 60_000)
    assert [said(one) for one in hifi.stated("others")] == [all_of("e")]
    assert hifi.stated("orders") == []
    hifi.at(M0 + HOUR_MS + 120_000)
    assert [said(one) for one in hifi.stated("orders")] == [all_of("a", "b", "c", "d")]


def with_pipeline(hifi: Half, name: str, *, reads: str, writes: str) -> str:
    """Its lane."""
    pipeline = Pipeline.of({"name": name, "from": {"stream": reads}, "to": [{"stream": writes}]})
    hifi.configuration = replace(hifi.configuration, pipelines={name: pipeline})
    return pipeline.lane_id


def test_what_pipelines_write_is_stated_and_no_gateway_has_acknowledged_it(tmp_path: Path) -> None:
    hifi = Half(tmp_path, "orders", "eu")
    with_pipeline(hifi, "p", reads="orders", writes="eu")
    hifi.accept("eu", "a", "b")
    hifi.derive("eu", "c", "d", "e")
    for minutes in (3, 4):
        hifi.at(M0 + minutes * 60_000)
    (only,) = hifi.stated("eu")
    assert (only.acked, only.derived, only.id_count) == (2, 3, 5)
    assert only.root == merkle_root(["a", "b", "c", "d", "e"]).hex()
    # More comes late, once all of that is forgotten, and the observer was away.
    hifi.start_again()
    hifi.derive("eu", "f")
    for hours in (1, 2, 3):
        hifi.at(M0 + hours * HOUR_MS)
    newest = hifi.stated("eu")[-1]
    assert (newest.revision, newest.acked, newest.derived) == (2, 2, 4)
    assert newest.root == merkle_root(["a", "b", "c", "d", "e", "f"]).hex()
    # Another observer knows of it by the statements alone.
    memory = Memory()
    memory.read_statement(hifi.statements[-1], 7)
    assert memory.stated[stream_topic("eu"), M0].acked == 6


def test_a_minute_of_which_the_log_has_lost_ids_is_not_signed(tmp_path: Path) -> None:
    hifi = Half(tmp_path, "orders", "eu")
    with_pipeline(hifi, "p", reads="orders", writes="eu")
    hifi.derive("eu", "a", "b")
    hifi.at(M0 + 20_000)
    hifi.at(M0 + 40_000)
    hifi.forget("eu", "b")
    for minutes in (3, 4):
        hifi.at(M0 + minutes * 60_000)
    assert hifi.stated("eu") == []


def test_a_pipeline_that_has_left_something_out_loses_it_and_that_is_signed(tmp_path: Path) -> None:
    hifi = Half(tmp_path, "orders")
    lane = with_pipeline(hifi, "p", reads="orders", writes="eu")
    hifi.accept("orders", "a", "b", "c", "d")
    hifi.pipe(lane, Offsets.of([(0, 1), (2, 4)]), end=4, filtered=2)
    outcomes = [hifi.at(M0 + minutes * 60_000) for minutes in (3, 4, 5)]
    books = outcomes[-1].minutes[lane][0]
    assert (books.state, books.lost) == (MinuteState.LOSING, {Node.PIPELINE: 1})
    assert [missing.offset for missing in books.missing] == [1]
    assert (books.delivered, books.passed, books.not_passed) == (3, 1, {"filtered": 2})
    (only,) = hifi.stated("orders")
    counts = only.destinations["pipeline:p"]
    assert (counts.delivered, counts.lost) == (3, {"pipeline": 1})
    assert counts.not_passed == {"filtered": 2}


def test_a_pipeline_that_has_all_is_settled_and_what_it_filtered_stays_told(tmp_path: Path) -> None:
    hifi = Half(tmp_path, "orders")
    lane = with_pipeline(hifi, "p", reads="orders", writes="eu")
    hifi.accept("orders", "a", "b")
    hifi.pipe(lane, Offsets.of([(0, 2)]), end=2, filtered=1)
    for minutes in (3, 4):
        hifi.at(M0 + minutes * 60_000)
    hifi.accept("orders", "c")
    hifi.pipe(lane, Offsets.of([(2, 3)]), end=3, filtered=1)
    for hours in (1, 2):
        hifi.at(M0 + hours * HOUR_MS)
    counts = [one.destinations["pipeline:p"] for one in hifi.stated("orders")]
    assert [(one.delivered, one.not_passed) for one in counts] == [
        (2, {"filtered": 1}),
        (3, {"filtered": 2}),
    ]
    hifi.at(M0 + 3 * DAY_MS)
    assert hifi.memory.books.not_passed == {}


def test_a_stream_that_pipelines_fill_leaves_room_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_run, "_LOOK_UP_MAX", 4)
    hifi = Half(tmp_path, "orders", "eu", "others")
    with_pipeline(hifi, "p", reads="orders", writes="eu")
    hifi.derive("eu", *(f"d{nth}" for nth in range(9)))
    hifi.accept("others", "a", is_named=False)
    hifi.at(M0 + 3 * 60_000)
    hifi.at(M0 + 4 * 60_000)
    claimed = {topic: known.claimed[0] for topic, known in hifi.memory.books.ledgers.items()}
    assert list(claimed[stream_topic("others")]) == [(0, 1)]
    assert list(claimed[stream_topic("eu")]) == [(0, 3)]


def test_no_memory_grows_with_what_is_put_back(tmp_path: Path) -> None:
    ids = [f"{'long' * 20}-{nth}" for nth in range(1_000)]
    hifi = Half(tmp_path, "orders")
    hifi.restore("orders", *ids)
    for minutes in (1, 2, 4):
        hifi.at(M0 + minutes * 60_000)
        assert len(hifi.memory.to_bytes()) < 1_000
    hifi.start_again()
    hifi.accept("orders", "a")
    for hours in (1, 2, 3):
        hifi.at(M0 + hours * HOUR_MS)
    assert [said(one) for one in hifi.stated("orders")] == [
        all_of(*ids),
        all_of(*ids, "a", revision=2),
    ]
    assert len(hifi.memory.to_bytes()) < 1_000


def test_much_that_was_put_back_is_no_history_of_before_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_run, "_LOOK_UP_MAX", 5)
    monkeypatch.setattr(audit_run, "_BACK_MAX", 3)
    monkeypatch.setattr(audit_run, "_PROBE", 2)
    hifi = Half(tmp_path, "again", "anew", "old")
    restored = [f"r{nth}" for nth in range(9)]
    hifi.restore("again", *restored)
    hifi.restore("anew", *restored[:4])
    hifi.accept("old", *(f"o{nth}" for nth in range(9)), is_named=False)
    for stream in ("again", "old"):
        hifi.accept(stream, "a")
    for hours in range(1, 9):
        hifi.at(M0 + hours * HOUR_MS)
    stated = {name: [said(one) for one in hifi.stated(name)] for name in ("again", "anew", "old")}
    assert stated == {
        "again": [all_of(*restored, "a")], "anew": [all_of(*restored[:4])], "old": [all_of("a")],
    }  # fmt: skip
