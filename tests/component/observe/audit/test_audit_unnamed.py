"""Events that no ledger names, because a gateway died or Kafka stood still, are stated, too.

A signed statement must cover all of a minute's events in a stream's log. Otherwise `hifi verify`,
which compares it with the ledger and then with the log, says that it cannot be trusted.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from observe.audit import audit_run
from observe.audit.memory import Memory
from shared.config.pipeline import Pipeline
from shared.event.times import DAY_MS, HOUR_MS
from shared.event.topics import stream_topic
from shared.proof.intervals import Offsets
from shared.proof.merkle import merkle_root
from shared.proof.overview import MinuteState, Stage
from tests.support.observe.partly_named import M0, Half, all_of, said


def test_what_only_the_log_has_is_stated_also_of_a_stream_that_was_removed(
    tmp_path: Path,
) -> None:
    hifi = Half(tmp_path, "orders")
    hifi.accept("orders", "a", "b")
    # A gateway is killed before it has written its ledger, so the audit reads the log.
    hifi.accept("orders", "c", is_named=False)
    hifi.at(M0 + 20_000)
    hifi.at(M0 + 40_000)
    # Kafka stands still: it stores an unacknowledged event. Then the stream is removed.
    hifi.accept("orders", "d", is_named=False)
    hifi.remove("orders")
    for minutes in (3, 4, 5):
        hifi.at(M0 + minutes * 60_000)
    assert [said(one) for one in hifi.stated("orders")] == [all_of("a", "b", "c", "d")]
    # The index gets each of these events once, and no other.
    orders = stream_topic("orders")
    assert hifi.heard == [(orders, 0, 2, "c"), (orders, 0, 3, "d")]
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
    # Another observer takes over, and reads the ledger first.
    hifi.start_again()
    states = [
        [books.state for books in hifi.at(M0 + later_ms + wait_ms, wanted).changed]
        for wait_ms in (0, 60_000, 120_000)
    ]
    assert states == [[MinuteState.UNCHECKED], [MinuteState.CHECKED], []]
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
    # The event arrives while its minute is known, but is read when the minute is to be forgotten.
    hifi.now_ms = M0 + 23 * HOUR_MS
    hifi.accept("orders", "d")
    hifi.start_again()
    for hours in (30, 31, 32, 58):
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
    """Add a pipeline, and return its lane."""
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
    # Another event comes late, after a restart of the observer, which has forgotten the minute.
    hifi.start_again()
    hifi.derive("eu", "f")
    for hours in (1, 2, 3):
        hifi.at(M0 + hours * HOUR_MS)
    newest = hifi.stated("eu")[-1]
    assert (newest.revision, newest.acked, newest.derived) == (2, 2, 4)
    assert newest.root == merkle_root(["a", "b", "c", "d", "e", "f"]).hex()
    # Another observer knows of the event only by the statements.
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
    assert (books.state, books.lost) == (MinuteState.LOSS, {Stage.PIPELINE: 1})
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
