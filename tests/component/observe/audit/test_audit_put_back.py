"""Restored events are stated once and whole, and are forgotten afterwards."""

from pathlib import Path

import pytest

from observe.audit import audit_run
from observe.audit import ledger as audit_ledger
from shared.event.times import DAY_MS, HOUR_MS
from tests.support.observe.partly_named import M0, Half, all_of, said


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


def test_what_was_put_back_behind_a_long_history_is_stated_and_the_history_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_run, "_BACK_MAX", 3)
    hifi = Half(tmp_path, "orders")
    hifi.accept("orders", *(f"o{nth}" for nth in range(3_000)), is_named=False)
    hifi.restore("orders", "a", "b")
    hifi.accept("orders", "c")
    for hours in (1, 2, 3):
        hifi.at(M0 + hours * HOUR_MS)
    assert [said(one) for one in hifi.stated("orders")] == [all_of("a", "b", "c")]


@pytest.mark.parametrize("is_afresh", [False, True])
def test_what_is_put_back_into_a_minute_that_was_stated_long_ago_makes_no_other_statement(
    tmp_path: Path, *, is_afresh: bool
) -> None:
    hifi = Half(tmp_path, "orders")
    hifi.accept("orders", "a", "b")
    for minutes in (3, 4):
        hifi.at(M0 + minutes * 60_000)
    for hours in (26, 27):
        hifi.at(M0 + hours * HOUR_MS)
    if is_afresh:
        hifi.start_again(with_memory=False)
        hifi.at(M0 + 28 * HOUR_MS)
        hifi.at(M0 + 29 * HOUR_MS)
    hifi.restore("orders", "b")
    for hours in (30, 31, 32):
        hifi.at(M0 + hours * HOUR_MS)
    assert [said(one) for one in hifi.stated("orders")] == [all_of("a", "b")]


def test_a_minute_of_long_ago_that_is_put_back_in_two_parts_is_stated_whole(tmp_path: Path) -> None:
    hifi = Half(tmp_path, "orders")
    hifi.restore("orders", "a", "b")
    for hours in (100, 101, 102):
        hifi.at(M0 + hours * HOUR_MS)
    hifi.start_again()
    hifi.restore("orders", "c")
    for hours in (103, 104, 105):
        hifi.at(M0 + hours * HOUR_MS)
    assert [said(one) for one in hifi.stated("orders")] == [
        all_of("a", "b"), all_of("a", "b", "c", revision=2),
    ]  # fmt: skip
    # The minute is forgotten later; events restored after that cause no partial statement.
    hifi.at(M0 + 10 * DAY_MS)
    hifi.at(M0 + 11 * DAY_MS)
    assert (hifi.memory.stated, hifi.memory.books.closed) == ({}, {})
    hifi.restore("orders", "d")
    for hours in (1, 2, 3):
        hifi.at(M0 + 12 * DAY_MS + hours * HOUR_MS)
    assert len(hifi.stated("orders")) == 2


def test_many_minutes_of_long_ago_are_remembered_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_ledger, "_LATE_MAX", 3)
    hifi = Half(tmp_path, *(f"s{nth}" for nth in range(5)))
    for nth in range(5):
        hifi.restore(f"s{nth}", "a")
        for hours in (1, 2, 3):
            hifi.at(M0 + (100 + 3 * nth + hours) * HOUR_MS)
    assert [topic[-2:] for topic, _ in hifi.memory.books.closed] == ["s2", "s3", "s4"]
