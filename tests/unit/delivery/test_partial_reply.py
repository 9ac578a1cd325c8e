"""A reply that accepts a part of a batch: it names the failed events, or leaves them unknown."""

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delivery.http.partial_reply import UnreadableReportError, failed_events, report_bytes_max

IDS = ["a", "b", "c", "a"]

READABLE: list[tuple[Any, dict[int, int]]] = [
    ({"failed": []}, {}),
    ({"failed": [{"id": "b", "status": 503}]}, {1: 503}),
    ({"failed": [{"index": 2, "status": 400}]}, {2: 400}),
    ({"failed": [{"index": 2}]}, {2: 500}),
    # An id that occurs twice in a batch names both events.
    ({"failed": [{"id": "a", "status": 429}], "more": 1}, {0: 429, 3: 429}),
    # With an index the id names one of the two, even beside an entry that names both.
    ({"failed": [{"id": "a", "index": 3, "status": 400}]}, {3: 400}),
    ({"failed": [{"id": "a", "index": 0, "status": 400}, {"id": "a"}]}, {0: 400, 3: 500}),
    (
        {"failed": [{"id": "a", "index": 0, "status": 400}, {"index": 3, "status": 503}]},
        {0: 400, 3: 503},
    ),
    # An index with another event's id is ignored: the id names all of its events.
    ({"failed": [{"id": "a", "index": 1, "status": 503}]}, {0: 503, 3: 503}),
    ({"failed": [{"id": "b", "index": 0, "status": 503}]}, {1: 503}),
    # Nobody can tell which of the two is refused for good, so both are retried.
    (
        {"failed": [{"id": "a", "status": 400}, {"id": "a", "status": 429}]},
        {0: 500, 3: 500},
    ),
    (
        {"failed": [{"id": "a", "status": 400}, {"id": "a", "status": 400}]},
        {0: 400, 3: 400},
    ),
    ({"failed": [{"id": "b", "status": 503}, {"index": 1, "status": 400}]}, {1: 400}),
]
UNREADABLE: list[Any] = [
    {"failed": None},
    {"failed": {}},
    {"failed": ["b"]},
    {"failed": [{"id": "x", "status": 503}]},
    {"failed": [{"index": 4}]},
    {"failed": [{"index": -1}]},
    {"failed": [{"index": True}]},
    {"failed": [{"id": "b", "status": 200}]},
    {"failed": [{"id": "b", "status": "503"}]},
    {"failed": [{"id": "b", "status": 600}]},
    {"failed": [{"status": 503}]},
    # More entries than one for each event and one for each id.
    {"failed": [{"id": "a"}] * 9},
]


@pytest.mark.parametrize("is_ours", [True, False])
@pytest.mark.parametrize(("said", "failed"), READABLE)
def test_a_report_names_events_by_id_or_place(
    said: Any,
    failed: dict[int, int],
    is_ours: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    assert failed_events(json.dumps(said).encode(), IDS, is_ours=is_ours) == failed


@pytest.mark.parametrize("said", UNREADABLE)
def test_a_report_that_cannot_be_understood_is_no_success(said: Any) -> None:
    with pytest.raises(UnreadableReportError):
        failed_events(json.dumps(said).encode(), IDS, is_ours=True)


@pytest.mark.parametrize("raw", [b"", b"ok", b"[]", b'{"a":1}', b"[" * 100_000])
def test_a_207_of_somebody_who_never_heard_of_reports_is_a_success(raw: bytes) -> None:
    assert failed_events(raw, IDS, is_ours=False) == {}
    with pytest.raises(UnreadableReportError):
        failed_events(raw, IDS, is_ours=True)


@pytest.mark.parametrize(
    "raw", [b"ok", b'{"failed": [{"id": "b"', b"\x1f\x8b\x08\0", b"[" * 100_000]
)
def test_a_207_that_calls_itself_json_and_is_none_is_no_success(raw: bytes) -> None:
    with pytest.raises(UnreadableReportError, match="no JSON"):
        failed_events(raw, IDS, is_ours=False, is_json=True)


@pytest.mark.parametrize("raw", [b"", b" \n", b"[]", b'{"a":1}'])
def test_a_207_in_json_without_a_word_of_failures_is_a_success(raw: bytes) -> None:
    assert failed_events(raw, IDS, is_ours=False, is_json=True) == {}


@given(st.binary(max_size=60), st.booleans())
def test_no_bytes_make_it_fail_otherwise(
    raw: bytes,
    is_ours: bool,  # noqa: FBT001 - drawn
) -> None:
    with contextlib.suppress(UnreadableReportError):
        assert set(failed_events(raw, IDS, is_ours=is_ours)) <= set(range(4))


@pytest.mark.parametrize(
    "entry", [{"id": "a"}, {"id": "a", "index": 9_999}, {"id": "a", "index": 10_000}]
)
def test_a_report_on_many_events_of_one_id_takes_no_longer_than_another(
    entry: dict[str, object],
) -> None:
    """Each entry names all events: 20,000 entries once took 10 s from all who share the worker."""
    ids, report = ["a"] * 10_000, json.dumps({"failed": [entry] * 20_000}).encode()
    begun_s = time.process_time()
    failed = failed_events(report, ids, is_ours=True)
    assert time.process_time() - begun_s < 1.0
    assert len(failed) == (1 if entry.get("index") == 9_999 else 10_000)


def test_a_report_is_as_long_as_its_batch_allows_and_no_longer_than_four_megabytes() -> None:
    assert [report_bytes_max(count) for count in (0, 1, 500, 10_000)] == [
        0,
        2_048,
        1_024_000,
        4 * 1_048_576,
    ]
