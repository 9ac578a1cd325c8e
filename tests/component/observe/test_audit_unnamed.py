"""Events that no ledger names, as their gateway died or Kafka stood still: they are stated, too.

What is signed must be all that a stream's log has of a minute, or whoever verifies it, by the
ledger and then by the log, is told not to trust it.
"""

import asyncio
from collections.abc import Mapping, Sequence
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
from observe.audit.spark_tasks import LoggedEvent, Named
from shared.config.configuration import Configuration, RemovedStream, Stream
from shared.event.record import KafkaPartition, Ranges
from shared.event.times import DAY_MS, HOUR_MS
from shared.event.topics import stream_topic
from shared.proof.intervals import Offsets
from shared.proof.merkle import merkle_root
from shared.proof.overview import MinuteState
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
        streams, late = self._auditor._destinations()
        return asyncio.run(self._audit.run({**streams, **destinations}, late=late))

    def stated(self, stream: str) -> list[Statement]:
        made = (signed.statement for signed in self.statements)
        return [statement for statement in made if statement.stream == stream]

    # What the audit asks Spark for.

    def gather(self, _: object) -> Evidence:
        found, self._evidence = self._evidence, Evidence()
        return found

    def look_up(self, wanted: Mapping[KafkaPartition, Offsets], _: Ranges) -> list[LoggedEvent]:
        return [
            LoggedEvent(where, offset, self._log[where.topic][offset], M0, M0)
            for where, offsets in wanted.items()
            for span in offsets
            for offset in range(*span)
        ]

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
            ids = set(extra.get(key, ()))
            for row, (topic, named) in enumerate(self._rows):
                if topic == key[0] and row in ledger.get(0, Offsets()):
                    ids.update(named)
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
    assert (hifi.memory.log_ids, hifi.memory.stated, hifi.memory.books.closed) == ({}, {}, {})


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
