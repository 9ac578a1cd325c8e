"""A row of the ledger names every acknowledged event once, in its minute, with its id."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.proof.acked import (
    EARLY_MS_MAX,
    LATE_MS_MAX,
    WILD,
    AckedRequest,
    AckedRow,
    AckedSlice,
    audited_minute,
    request_time_ms,
    runs_of,
)
from tests.support.suite.samples import log_buckets

MINUTE = 1_699_999_980_000
ROW = AckedRow(
    topic="hifi.stream.orders",
    partition=3,
    slices=(
        AckedSlice(10, ((2, MINUTE), (1, MINUTE + 60_000)), MINUTE + 5, "request-1", 4),
        AckedSlice(40, ((1, WILD),), MINUTE + 9, "request-2", 1),
    ),
    ids=("a", "b", "é", "d"),
    value_bytes=2_000,
    ingest=log_buckets([5, 7, 9, 11]),
    process=log_buckets([3, 3, 3, 4]),
)


def test_a_row_says_which_offsets_are_of_which_minute() -> None:
    assert list(ROW.claims()) == [
        (MINUTE, 10, 12),
        (MINUTE + 60_000, 12, 13),
        (WILD, 40, 41),
    ]
    assert list(ROW.named()) == [
        (MINUTE, 10, "a"),
        (MINUTE, 11, "b"),
        (MINUTE + 60_000, 12, "é"),
        (WILD, 40, "d"),
    ]
    assert ROW.count == 4


def test_a_row_is_the_same_after_its_bytes_and_its_ids_can_be_left_out() -> None:
    assert AckedRow.from_bytes(ROW.to_bytes()) == ROW
    bare = AckedRow.from_bytes(ROW.to_bytes(), with_ids=False)
    assert (bare.ids, bare.slices) == ((), ROW.slices)


def test_a_row_names_the_events_of_a_request() -> None:
    found = list(AckedRow.from_bytes(ROW.to_bytes()).of_request("request-1"))
    assert [(offset, event_id) for offset, event_id, _ in found] == [
        (10, "a"),
        (11, "b"),
        (12, "é"),
    ]
    assert {one.request_count for _, _, one in found} == {4}
    assert [event_id for _, event_id, _ in ROW.of_request("request-2")] == ["d"]
    assert list(ROW.of_request("request-3")) == []


def test_a_request_is_gathered_from_rows_until_all_of_its_events_are_there() -> None:
    found = AckedRequest("request-1")
    found.take(ROW.to_bytes()[:-40])
    found.take(b"request-1, and no row")
    found.take(replace(ROW, slices=(AckedSlice(0, ((4, MINUTE),), MINUTE),)).to_bytes())
    assert (found.ids, found.is_complete) == ({}, False)
    first = AckedSlice(10, ((2, MINUTE),), MINUTE + 5, "request-1", 3)
    found.take(replace(ROW, slices=(first,), ids=("a", "b")).to_bytes())
    found.take(replace(ROW, slices=(first,), ids=("a", "b")).to_bytes())
    assert (found.count, found.is_complete) == (3, False)
    second = AckedSlice(7, ((1, MINUTE),), MINUTE + 5, "request-1", 3)
    found.take(replace(ROW, partition=0, slices=(second,), ids=("c",)).to_bytes())
    assert found.is_complete
    assert (found.topic, found.accepted_at_ms) == ("hifi.stream.orders", MINUTE + 5)
    assert found.ids == {(3, 10): "a", (3, 11): "b", (0, 7): "c"}


def test_a_row_from_before_requests_were_named_is_read_as_ever() -> None:
    old = (
        b'{"topic":"hifi.stream.orders","partition":3,"slices":[[10,1699999980005,2,1699999980000,'
        b'1,1700000040000],[40,1699999980009,1,-1]],"value_bytes":2000,"ingest":[0],'
        b'"process":[0]}\na\nb\n\xc3\xa9\nd'
    )
    row = AckedRow.from_bytes(old)
    assert (row.ids, list(row.claims())) == (ROW.ids, list(ROW.claims()))
    assert [(one.request_id, one.request_count) for one in row.slices] == [("", 0)] * 2
    assert row.keys == ()
    assert list(row.of_request("request-1")) == []


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("topic", 5),
        ("partition", "3"),
        ("slices", None),
        ("slices", [[]]),
        ("slices", [["10", MINUTE, 2, MINUTE], [40, MINUTE, 1, WILD]]),
        ("slices", [[10, MINUTE, 2], [40, MINUTE, 1, WILD]]),
        ("requests", [["request-1", 4]]),
        ("ingest", {}),
        ("process", [0, 1]),
    ],
)
def test_what_is_no_row_is_a_value_error(member: str, value: object) -> None:
    head = json.loads(ROW.to_bytes().split(b"\n")[0])
    AckedRow.from_bytes(json.dumps(head).encode())
    with pytest.raises(ValueError, match=r".+"):
        AckedRow.from_bytes(json.dumps({**head, member: value}).encode())
    del head[member]
    if member != "requests":
        with pytest.raises(ValueError, match=member):
            AckedRow.from_bytes(json.dumps(head).encode())


def test_readers_of_old_find_the_slices_as_they_were() -> None:
    """An older audit finds the same slices in the first line as before."""
    head = json.loads(ROW.to_bytes().split(b"\n")[0])
    assert head["slices"] == [
        [10, MINUTE + 5, 2, MINUTE, 1, MINUTE + 60_000],
        [40, MINUTE + 9, 1, WILD],
    ]


@pytest.mark.parametrize(
    "text",
    ["", "x", "01a1ff25-35c5-4a5b-b0e6-761692f0e9b6", "01A1FF25-35C5-7A5B-B0E6-761692F0E9B6"],
)
def test_what_is_no_id_of_a_request_has_no_time(text: str) -> None:
    assert request_time_ms(text) is None


def test_the_id_of_a_request_says_when_it_came() -> None:
    assert request_time_ms("018bcfe5-6800-7a5b-b0e6-761692f0e9b6") == 1_700_000_000_000


@given(st.lists(st.integers(0, 3).map(lambda n: n * 60_000), max_size=30))
def test_runs_unfold_to_what_they_came_from(minutes: list[int]) -> None:
    runs = runs_of(minutes)
    assert [minute for count, minute in runs for _ in range(count)] == minutes
    assert all(here != there for (_, here), (_, there) in pairwise(runs))


def test_a_wild_event_time_belongs_to_no_minute() -> None:
    at = MINUTE + 30_000
    assert audited_minute(at, at) == MINUTE
    assert audited_minute(at - LATE_MS_MAX, at) == MINUTE - LATE_MS_MAX
    assert audited_minute(at - LATE_MS_MAX - 1, at) == WILD
    assert audited_minute(at + EARLY_MS_MAX, at) == MINUTE + EARLY_MS_MAX
    assert audited_minute(at + EARLY_MS_MAX + 1, at) == WILD
