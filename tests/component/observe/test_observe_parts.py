"""Observe's parts that touch a file or a clock: the key, the memory, the news, the chain."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deploy.cli.events.minute_ids import MinuteIds, read_minute
from deploy.cli.events.proofs import broken_link
from deploy.cli.events.reconcile import id_of
from deploy.cli.events.verify import distrust, read_ids
from observe.audit.books import AuditBooks
from observe.audit.evidence import Claim, life
from observe.audit.ledger import ClosedMinute, Ledger
from observe.audit.memory import Memory, StatedMinute
from observe.audit.minutes import Outcomes
from observe.audit.signing import PUBLIC, Signer
from observe.audit.status import AuditStatus, is_news
from observe.metrics import ObserveMetrics
from shared import metric_names as names
from shared.event.record import KafkaPartition
from shared.event.times import DAY_MS, HOUR_MS
from shared.proof.acked import WILD
from shared.proof.intervals import Offsets
from shared.proof.merkle import merkle_root
from shared.proof.overview import MinuteBooks, MinuteState, Missing, OverdueMinutes, Stage
from shared.proof.statement import NO_PREVIOUS, Counts, SignedStatement, Statement
from shared.runtime.setup_error import SetupError, UsageError
from tests.support.console.console_fixtures import overview
from tests.support.observe import memory_files
from tests.support.observe.published import proof_of, proofs_of
from tests.support.suite.samples import layers_of

TOPIC, TO = "hifi.stream.orders", "orders/shop"
M0 = 1_699_999_980_000


def a_statement(previous: str = NO_PREVIOUS, *, ids: tuple[str, ...] = ("a", "b")) -> Statement:
    root = merkle_root(ids).hex()
    return Statement("orders", M0, 1, len(ids), len(ids), root, {}, M0, previous)


def test_the_key_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    first, second = Signer(tmp_path), Signer(tmp_path)
    assert first.public_key == second.public_key == (tmp_path / PUBLIC).read_text().strip()
    assert (tmp_path / "statement.key").stat().st_mode & 0o777 == 0o600
    signed = first.sign(a_statement())
    assert proof_of(signed).is_signed(public_key=second.public_key)
    assert not proof_of(signed).is_signed(public_key=Signer(tmp_path / "other").public_key)
    assert not proof_of(signed).is_signed(public_key="nonsense")
    forged = replace(signed, statement=msgspec.structs.replace(signed.statement, acked=1))
    assert not proof_of(forged).is_signed(public_key=first.public_key)
    (tmp_path / "statement.key").write_text("broken")
    with pytest.raises(SetupError, match="has no valid ed25519 key"):
        Signer(tmp_path)


def test_what_was_remembered_is_remembered_after_a_restart(tmp_path: Path) -> None:
    ledger = Ledger()
    ledger.enter(Claim(TOPIC, 1, M0, 0, 9, M0 + 5, (0, 3, 4)))
    ledger.enter(Claim(TOPIC, 1, M0, 8, 12, M0 + 6, (0, 5, 5)))
    ledger.enter(Claim(TOPIC, 1, M0, 12, 13, M0 + 6, (-1, 0, 0)), is_from_log=True)
    known = Outcomes(
        delivered=Offsets.of([(0, 4)]),
        lives={life("waiting", 1): Offsets.of([(3, 5)])},
        in_tier=layers_of([(4, 6), (5, 6)]),
        suspects=[(M0, Stage.RETRIER, Offsets.of([(4, 5)]))],
    )
    memory = Memory(
        books=AuditBooks(
            ledgers={TOPIC: ledger},
            outcomes={(TO, KafkaPartition(TOPIC, 1)): known},
            closed={(TOPIC, M0): ClosedMinute(3, {TO: (2, 1)}, {0: Offsets.of([(1, 3), (7, 8)])})},
            done={KafkaPartition(TOPIC, 1): Offsets.of([(0, 3)])},
            first_outcome={(TO, KafkaPartition(TOPIC, 1)): 0},
        ),
        read={("ledger", "hifi.acked", 0): 77},
        stated={(TOPIC, M0): StatedMinute(1, 3, 3, "ab", "cd")},
        chain={TOPIC: "cd"},
    )
    assert memory_files.load(tmp_path) == Memory()
    memory_files.save(memory, tmp_path)
    assert memory_files.load(tmp_path) == memory
    assert len(ledger.minutes[M0].overwritten) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda saved: saved[:-1],
        lambda saved: saved + b"x",
        lambda _: b"",
        lambda _: b"{}",
        # Another version names these differently.
        lambda saved: saved.replace(b"ledgers", b"ledgerz"),
        lambda saved: saved.replace(b"claimed", b"claimes"),
    ],
)
def test_a_memory_that_cannot_be_read_as_a_whole_is_none(
    tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    ledger = Ledger()
    ledger.enter(Claim(TOPIC, 1, M0, 0, 9, M0 + 5, (0, 3, 4)))
    memory = Memory(
        books=AuditBooks(ledgers={TOPIC: ledger}), read={("ledger", "hifi.acked", 0): 7}
    )
    memory_files.save(memory, tmp_path)
    assert memory_files.load(tmp_path) == memory
    (file,) = tmp_path.iterdir()
    file.write_bytes(change(file.read_bytes()))
    assert memory_files.load(tmp_path) == Memory()


def test_a_memory_that_was_cut_anywhere_or_is_all_zeros_is_none(tmp_path: Path) -> None:
    ledger = Ledger()
    ledger.enter(Claim(TOPIC, 1, M0, 0, 9, M0 + 5, (0, 3, 4)))
    memory = Memory(books=AuditBooks(ledgers={TOPIC: ledger}), chain={TOPIC: "cd"})
    memory_files.save(memory, tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for cut in (*(whole[:length] for length in range(len(whole))), bytes(len(whole))):
        file.write_bytes(cut)
        assert memory_files.load(tmp_path) == Memory()


def test_a_memory_of_before_ids_were_read_again_is_none(tmp_path: Path) -> None:
    """A memory that an older version wrote has ids, but not their places."""
    minute = {"acked": {1: [[0], [9]]}, "overwritten": [], "accepted_at_ms": 5, "ledger": {}}
    ledger = {"minutes": {M0: minute}, "claimed": {1: [[0], [9]]}, "from_log": {}}
    others: dict[str, Any] = {"outcomes": {}, "closed": {}, "done": {}, "first_outcome": {}}
    books = {"ledgers": {TOPIC: ledger}, **others}
    old: dict[str, Any] = {"books": books, "read": {}, "stated": {}, "chain": {TOPIC: "cd"}}
    for ids, is_known in ({}, True), ({"log_ids": {(TOPIC, M0): ["x"]}}, False):
        (tmp_path / "memory").write_bytes(msgspec.msgpack.encode({**old, **ids}))
        assert (memory_files.load(tmp_path) != Memory()) == is_known


def test_an_audit_that_hangs_blinds_and_one_that_is_off_does_not() -> None:
    news = AuditStatus(started_ms=0, interval_s=60, overdue_after_s=600)
    assert news.blindness(660_000 - 1) == ""
    assert "the audit is 600 s behind" in news.blindness(660_000)
    news.health = replace(news.health, last_run_ms=660_000, problem="")
    assert news.blindness(670_000) == ""
    assert news.health_at(730_000).behind_s == 10
    news.failed("no Kafka")
    assert "no Kafka" in news.blindness(2_000_000)
    off = AuditStatus(started_ms=0, interval_s=60, overdue_after_s=600, is_on=False)
    assert off.blindness(10**12) == ""
    assert "off" in off.health_at(10**12).problem


def test_who_takes_the_audit_over_is_not_late_for_what_another_did() -> None:
    news = AuditStatus(started_ms=0, interval_s=60, overdue_after_s=600)
    news.health = replace(news.health, last_run_ms=1_000, problem="")
    news.is_elsewhere = lambda: True
    assert news.blindness(10**12) == ""
    elsewhere = news.health_at(10**12)
    assert (elsewhere.is_elsewhere, elsewhere.behind_s) == (True, 0.0)
    assert "another observer" in elsewhere.problem
    news.is_elsewhere = lambda: False
    assert news.blindness(10**12 + 660_000 - 1) == ""
    assert "behind" in news.blindness(10**12 + 660_000)


def test_who_stands_by_shows_no_figures_that_would_count_twice() -> None:
    shown = overview()
    (view, *_) = shown.destinations
    metrics = ObserveMetrics()
    value = metrics.registry.get_sample_value
    backlog = names.OBSERVE_BACKLOG_EVENTS.name, {"destination": view.destination_id}
    metrics.show(shown)
    assert value(names.OBSERVE_LEASE_UP.name) == 1
    assert value(*backlog) == view.backlog_events
    metrics.show(replace(shown, audit=replace(shown.audit, is_elsewhere=True)))
    assert (value(names.OBSERVE_LEASE_UP.name), value(names.OBSERVE_UP.name)) == (0, 1)
    assert value(*backlog) is None
    metrics.show(shown)
    assert value(*backlog) == view.backlog_events


def test_a_statement_is_trusted_only_with_its_key_its_chain_and_its_ids(tmp_path: Path) -> None:
    signer = Signer(tmp_path)
    first = signer.sign(a_statement())
    second = signer.sign(a_statement(first.statement.digest))
    lone = signer.sign(a_statement("ff" * 32))
    first_proof, second_proof, lone_proof = proofs_of([first, second, lone])
    assert broken_link([first_proof, second_proof]) is None
    assert broken_link([first_proof, second_proof, lone_proof]) is lone_proof

    def trust(signed: SignedStatement, broken: SignedStatement | None, *ids: str) -> str:
        at = None if broken is None else proof_of(broken)
        return distrust(MinuteIds(proof_of(signed), at, frozenset(ids)), signer.public_key)

    assert trust(second, None, "a", "b") == ""
    assert "chain" in trust(second, lone, "a", "b")
    assert "Kafka (1) are not the signed ones (2; " in trust(second, None, "a")
    assert "try again" not in trust(second, None, "a")
    # A late event is in the log before the audit has stated it.
    assert "follows within minutes: try again then" in trust(second, None, "a", "b", "c")
    assert "not signed" in distrust(MinuteIds(second_proof, None, frozenset("ab")), "00" * 32)
    counts = Counts(delivered=1, waiting=0, dead=0, lost={}, due=2)
    short = msgspec.structs.replace(a_statement(), destinations={"shop": counts})
    assert "shop: its parts sum to 1 events, but 2 were due" in trust(
        signer.sign(short), None, "a", "b"
    )


@pytest.mark.parametrize(
    ("text", "minute"),
    [
        ("-1", WILD),
        (str(M0), M0),
        (str(M0 + 59_999), M0),
        ("2023-11-14T22:13Z", M0),
        ("2023-11-14T22:13:20", M0),
        ("2023-11-14T23:13+01:00", M0),
    ],
)
def test_a_minute_can_be_written_in_several_ways(text: str, minute: int) -> None:
    assert read_minute(text) == minute


def test_what_is_no_minute_or_no_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a minute"):
        read_minute("yesterday")
    with pytest.raises(UsageError, match="cannot be read"):
        read_ids(tmp_path / "none")
    (tmp_path / "ids").write_text("a\n\n b \n")
    assert read_ids(tmp_path / "ids") == {"a", "b"}


@pytest.mark.parametrize(
    ("raw", "name"), [(b'{"id":"a"}', "a"), (b'{"id":7}', "7"), (b'{"id":true}', ""), (b"[1]", "")]
)
def test_an_events_own_id_is_found(raw: bytes, name: str) -> None:
    assert id_of(raw) == name


def test_a_minutes_books_are_plain_json() -> None:
    books = MinuteBooks(
        "orders", TO, None, MinuteState.LOSS, 2, 1, 0, 0, 0, {Stage.QUEUE: 1},
        (Missing("a", Stage.QUEUE, TOPIC, 0, 7),),
    )  # fmt: skip
    found = json.loads(msgspec.json.encode(books))
    assert (found["state"], found["minute_ms"], found["lost"]) == ("loss", None, {"queue": 1})
    assert found["missing"][0] == {
        "event_id": "a", "stage": "queue", "topic": TOPIC, "partition": 0, "offset": 7,
    }  # fmt: skip


def test_what_is_not_settled_and_what_cannot_be_read_have_figures() -> None:
    shown = overview()
    view = shown.streams[0].destinations[0]
    blind = replace(view, minutes=(), overdue=OverdueMinutes(10_068, M0, "its lane stands still"))
    stream = replace(shown.streams[0], destinations=(blind,))
    audit = replace(shown.audit, unreadable_count=7)
    metrics = ObserveMetrics()
    metrics.show(replace(shown, streams=(stream,), audit=audit))
    value = metrics.registry.get_sample_value
    labels = {"destination": view.destination_id}
    assert value(names.OBSERVE_OVERDUE_CHECKS.name, labels) == 10_068
    assert value(names.OBSERVE_UNREADABLE_RECORDS.name) == 7


def test_a_loss_is_news_for_an_hour_after_it_was_told_however_old_its_minute_is() -> None:
    books = MinuteBooks("orders", TO, M0, MinuteState.LOSS, 1, 0, 0, 0, 0, {Stage.QUEUE: 1})
    told_at_ms = M0 + 8 * DAY_MS
    told = replace(books, told_at_ms=told_at_ms)
    assert [is_news(told, told_at_ms + later) for later in (0, HOUR_MS - 1, HOUR_MS)] == [
        True, True, False,
    ]  # fmt: skip
    assert not is_news(books, told_at_ms)
    assert is_news(replace(books, minute_ms=None), told_at_ms)
