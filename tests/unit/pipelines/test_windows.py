"""Merged windows equal a recount of all their events, in whatever order these arrived."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.windows import open_windows
from pipelines.windows.change import (
    ALL_QUIET_MS,
    HEAD,
    Head,
    KeptChange,
    KeptPosition,
    TooManyChangedError,
    TooMuchKeptError,
    head_of,
)
from pipelines.windows.open_windows import OpenWindows, Partial, group_of
from shared.config.steps.window import WindowOf
from shared.event.record import KafkaPartition

MINUTE_MS = 60_000
HOURLY = WindowOf(
    compute={"n": "count(*)", "total": "sum(x)", "mean": "avg(x)", "least": "min(x)"},
    every="1 minute",
    late="2 minutes",
    by=("k",),
)
FINAL = WindowOf(
    compute={"n": "count(*)"}, every="1 minute", late="2 minutes", by=("k",), emit="final"
)
SESSIONS = WindowOf(compute={"n": "count(*)"}, session="1 minute", late="2 minutes", by=("k",))
FAR_MS = 10**12

# The time of an event, its key, and its value.
Event = tuple[int, str, int]
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 20 * MINUTE_MS), st.sampled_from(["a", "b"]), st.integers(-99, 10**25)
    ),
    max_size=40,
)
JOBS = st.lists(EVENTS, min_size=1, max_size=6)


def hourly(events: Sequence[Event]) -> list[Partial]:
    """Return Spark's results from these events, in one job."""
    groups: dict[tuple[int, str], list[Event]] = defaultdict(list)
    for event in events:
        groups[event[0] - event[0] % MINUTE_MS, event[1]].append(event)
    return [
        Partial(
            start,
            start + MINUTE_MS,
            json.dumps({"k": key}),
            max(event[0] for event in own),
            0,
            [
                len(own),
                str(sum(event[2] for event in own)),
                [str(sum(event[2] for event in own)), len(own)],
                str(min(event[2] for event in own)),
            ],
        )
        for (start, key), own in groups.items()
    ]


def single(events: Sequence[Event]) -> list[Partial]:
    """Return a session of each event."""
    return [
        Partial(at, at + MINUTE_MS, json.dumps({"k": key}), at, 0, [1]) for at, key, _ in events
    ]


def stored(kept: OpenWindows, change: KeptChange, log: dict[bytes, bytes | None]) -> OpenWindows:
    """Store the change, and check that a reader of the records has the writer's state."""
    kept.apply(change)
    log |= dict(change.records)
    again = OpenWindows(kept.of, Head(kept.head.shape))
    for key, value in log.items():
        again.read(key, value)
    assert again._windows == kept._windows
    assert (again.head, again.size) == (kept.head, kept.size)
    return again


@given(JOBS)
@settings(max_examples=60, deadline=None)
def test_rows_grow_to_what_a_recount_has_and_whoever_reads_goes_on(jobs: list[list[Event]]) -> None:
    kept = OpenWindows(HOURLY, Head("s"))
    log: dict[bytes, bytes | None] = {}
    rows: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for events in jobs:
        change = kept.changed_by(hourly(events), 0)
        for row in change.rows:
            rows[row.group, row.start_ms].append(json.loads(row.value))
        kept = stored(kept, change, log)
    expected: dict[tuple[str, int], list[int]] = defaultdict(list)
    for at, key, number in (event for events in jobs for event in events):
        expected[key, at - at % MINUTE_MS].append(number)
    assert rows.keys() == expected.keys()
    for group, versions in rows.items():
        numbers, last = expected[group], versions[-1]
        assert (last["n"], last["total"], last["least"]) == (
            len(numbers),
            sum(numbers),
            min(numbers),
        )
        assert last["mean"] == pytest.approx(sum(numbers) / len(numbers))
        assert all(one["n"] < other["n"] for one, other in pairwise(versions))
    kept.apply(kept.changed_by([], FAR_MS))
    assert (len(kept), kept.size, kept.closes_at_ms) == (0, 0, None)


@given(JOBS)
@settings(max_examples=60, deadline=None)
def test_a_final_row_is_written_once_and_has_all(jobs: list[list[Event]]) -> None:
    kept = OpenWindows(FINAL, Head("s"))
    log: dict[bytes, bytes | None] = {}
    rows: dict[tuple[str, int], int] = {}
    for nth, events in enumerate([*jobs, []]):
        parts = [part._replace(parts=part.parts[:1]) for part in hourly(events)]
        change = kept.changed_by(parts, FAR_MS if nth == len(jobs) else 0)
        for row in change.rows:
            assert (row.group, row.start_ms) not in rows
            rows[row.group, row.start_ms] = json.loads(row.value)["n"]
        kept = stored(kept, change, log)
    assert sum(rows.values()) == sum(map(len, jobs))
    assert len(kept) == 0


def sessions_of(events: Sequence[Event]) -> list[tuple[str, int, int, int]]:
    """Return the sessions of these events, counted at once."""
    found = []
    for key in ("a", "b"):
        begun: list[int] = []
        for at in [*sorted(at for at, of, _ in events if of == key), FAR_MS]:
            if begun and at > begun[-1] + MINUTE_MS:
                found.append((key, begun[0], begun[-1] + MINUTE_MS, len(begun)))
                begun = []
            begun.append(at)
    return sorted(found)


@given(JOBS)
@settings(max_examples=100, deadline=None)
def test_sessions_become_one_in_whatever_order_their_events_come(jobs: list[list[Event]]) -> None:
    kept = OpenWindows(SESSIONS, Head("s"))
    log: dict[bytes, bytes | None] = {}
    for events in jobs:
        kept = stored(kept, kept.changed_by(single(events), 0), log)
    rows = kept.changed_by([], FAR_MS).rows
    found = [(it.group, it.start_ms, it.end_ms, json.loads(it.value)["n"]) for it in rows]
    assert sorted(found) == sessions_of([event for events in jobs for event in events])


def test_a_window_is_over_once_all_has_been_read_past_its_end_and_its_late_ones() -> None:
    kept = OpenWindows(HOURLY, Head("s"))
    kept.apply(kept.changed_by(hourly([(5, "a", 1)]), 0))
    assert kept.closes_at_ms == 3 * MINUTE_MS
    assert not kept.changed_by([], 3 * MINUTE_MS - 1).gone
    change = kept.changed_by([], 3 * MINUTE_MS)
    assert (change.rows, [value for _, value in change.records[1:]]) == ([], [None])
    # A window that is already over when it is stored is not kept.
    assert not kept.changed_by(hourly([(7, "b", 1)]), FAR_MS).opened


def test_time_never_goes_back() -> None:
    kept = OpenWindows(HOURLY, Head("s"))
    kept.apply(kept.changed_by([], 900))
    assert kept.changed_by([], 100).frontier_ms == 900


def test_there_is_no_more_room_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = OpenWindows(HOURLY, Head("s"))
    with pytest.raises(TooMuchKeptError, match="no more room"):
        kept.changed_by(hourly([(1, "a", 1)]), 0, room=100)
    monkeypatch.setattr(open_windows, "WINDOWS_KEPT_MAX", 1)
    kept.apply(kept.changed_by(hourly([(1, "a", 1)]), 0))
    with pytest.raises(TooMuchKeptError, match="1 windows are open"):
        kept.changed_by(hourly([(1, "b", 1)]), 0)
    assert kept.changed_by(hourly([(2, "a", 1)]), 0).opened, "open windows continue"
    monkeypatch.setattr(open_windows, "CHANGED_MAX", 1)
    with pytest.raises(TooManyChangedError):
        kept.changed_by(hourly([(1, "a", 1), (1, "b", 1)]), 0)


def test_what_is_over_is_written_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_windows, "CLOSED_MAX", 2)
    kept = OpenWindows(FINAL, Head("s"))
    parts = [Partial(n, n + 1, f'{{"k":"{n}"}}', n, 0, [1]) for n in range(5)]
    kept.apply(kept.changed_by(parts, 0))
    counts = []
    while kept.closes_at_ms is not None:
        change = kept.changed_by([], FAR_MS)
        counts.append((len(change.rows), change.has_more))
        kept.apply(change)
    assert counts == [(2, True), (2, True), (1, False)]


def test_a_row_is_called_by_its_values_and_no_two_are_called_the_same() -> None:
    assert group_of("{}", []) == "all"
    assert group_of('{"k":"DE","n":5}', ["k", "n"]) == "DE/5"
    assert group_of('{"k":"a/b"}', ["k"]) == "a%2Fb"
    assert group_of('{"n":5}', ["k", "n"]) == "%-/5"
    assert group_of('{"k":"\\u0000\\u00e4"}', ["k"]) == "%00ä"
    # Each of these groups was once called "all", so two of them had one row.
    alike = [
        "{}",
        '{"k":""}',
        '{"k":"all"}',
        '{"k":"%"}',
        '{"k":"%-"}',
        '{"k":"\\u0000"}',
        '{"k":"/"}',
    ]
    assert len({group_of(by, ["k"]) for by in alike}) == len(alike)
    many = [f'{{"k":0.1000000000000000000{n}}}' for n in range(1, 4)]
    assert len({group_of(by, ["k"]) for by in many}) == len(many)
    long, longer = (group_of(json.dumps({"k": "x" * n}), ["k"]) for n in (400, 401))
    assert long != longer
    assert len(long) < 100


def test_the_head_says_of_what_it_is() -> None:
    kept = OpenWindows(HOURLY, Head("shape"))
    (key, value), *_ = kept.changed_by([], 7).records
    assert (key, head_of(value)) == (HEAD, Head("shape", 7))
    assert head_of(None) == Head()
    position = {KafkaPartition("s", 11): 3, KafkaPartition("s", 2): 2**40}
    assert KeptPosition.of(KeptPosition(position, "one").record[1]) == (position, "one")
    assert KeptPosition.of(None) == ({}, "")
    assert head_of(b'{"shape": "s", "newer": 1}') == Head("s")
    assert replace(kept.head, quiet_ms=ALL_QUIET_MS).is_quiet
    assert not kept.head.is_quiet


def test_a_session_that_went_on_is_over_when_it_is_and_not_when_it_would_have_been() -> None:
    kept = OpenWindows(SESSIONS, Head("s"))
    for at in (0, 50_000, 100_000):
        kept.apply(kept.changed_by(single([(at, "b", 1), (0, "a", 1)]), 0))
    rows = kept.changed_by([], FAR_MS).rows
    assert [(row.group, row.end_ms) for row in rows] == [("a", MINUTE_MS), ("b", 160_000)]


def test_what_is_not_there_is_null_and_what_is_not_kept_is_forgotten_in_vain() -> None:
    of = WindowOf(compute={"least": "min(x)", "most": "top(x, 1)"}, every="1 minute")
    kept = OpenWindows(of, Head("s"))
    parts: list[Any] = [None, {"v": {"7": 2, "8": 1}, "cut": True}]
    (row,) = kept.changed_by([Partial(0, MINUTE_MS, "{}", 0, 0, parts)], 0).rows
    written = json.loads(row.value)
    assert (row.group, written["least"], written["most_cut"]) == ("all", None, True)
    assert written["most"] == [{"value": 7, "count": 2}]
    kept.read(b"5 {}", None)
    assert len(kept) == 0


def test_no_window_and_no_change_is_larger_than_can_be_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = OpenWindows(HOURLY, Head("s"))
    one, two = hourly([(1, "a", 1)]), hourly([(1, "a", 1), (1, "b", 1)])
    with pytest.raises(TooMuchKeptError, match="a row would have"):
        kept.changed_by(one, 0, row_bytes_max=50)
    monkeypatch.setattr(open_windows, "CHANGED_BYTES_MAX", 300)
    assert kept.changed_by(one, 0).rows
    with pytest.raises(TooManyChangedError, match="too large"):
        kept.changed_by(two, 0)
    monkeypatch.setattr(open_windows, "WINDOW_BYTES_MAX", 20)
    with pytest.raises(TooMuchKeptError, match="of one window"):
        kept.changed_by(one, 0)
